"""The processes that a command of the embedded cluster starts: run in parallel, and killed with it.

Called by ends.py and by everything that runs several programs at a time.
"""

from __future__ import annotations

import _thread
import collections
import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

RETRY_SECONDS = 0.2
POLL_SECONDS = 0.02
STOP_SECONDS = 2.0
STOPPED = "TtZX"
"""States of a thread that starts no process: stopped, traced, ended (proc(5))."""
_ended: set[int] = set()
_kept: set[int] = set()


def side_by_side(work: Callable[[Item], Result], items: Iterable[Item], jobs: int) -> list[Result]:
    """Do the work for every item, `jobs` at a time; when one raises or this command is ended, the others end too.

    A thread cannot be killed, its programs can: again and again, as some threads retry.

    Not concurrent.futures or threading, whose Python code takes locks here: a signal's exception between taking one and
    its `with` leaves it taken, and everything waits for ever. What is shared below, one operation changes.
    """
    todo = collections.deque(enumerate(items))
    results: dict[int, Result] = {}
    failures: list[BaseException] = []
    working: set[int] = set()
    wanted = len(todo)

    def worker(number: int) -> None:
        working.add(number)  # before it takes an item: once `todo` is cleared, who is not here has none
        try:
            while True:
                try:
                    index, item = todo.popleft()
                except IndexError:
                    return
                results[index] = work(item)
        except BaseException as error:  # raised below
            failures.append(error)
        finally:
            working.discard(number)

    try:
        for number in range(min(jobs, wanted)):
            _thread.start_new_thread(worker, (number,))
        while len(results) < wanted:
            if failures:
                raise failures[0]
            time.sleep(POLL_SECONDS)
    except BaseException:
        todo.clear()
        while working:
            end_all()
            time.sleep(RETRY_SECONDS)
        raise
    return [results[index] for index in range(wanted)]


def keep(pid: int) -> None:
    """Leave this child and all below it out of `end_all`: it outlives this command."""
    _kept.add(pid)


def end_all() -> None:
    """Kill every descendant of this process but what is to be kept, however deep; the kernel kills the rest of a namespace."""
    pids = [os.getpid()]
    for parent in pids:  # grows while it is iterated
        children = [pid for pid, its in _parents().items() if its == parent and pid not in _kept]
        for pid in children:
            _signal(pid, signal.SIGSTOP)  # or it might start another one in the meantime
        _wait_until_stopped(children)
        pids += [pid for pid in children if pid not in pids]
    _ended.update(pids[1:])
    for pid in pids[1:]:
        _signal(pid, signal.SIGKILL)


def _wait_until_stopped(pids: Iterable[int]) -> None:
    """Wait until these processes are stopped: one that was in a fork ends that first, and its child must be there to be found.

    At most STOP_SECONDS: one that waits for a disk stops later, and starts nothing until then.
    """
    end = time.monotonic() + STOP_SECONDS
    while not all(map(_stopped, pids)) and time.monotonic() < end:
        time.sleep(POLL_SECONDS / 10)


def _stopped(pid: int) -> bool:
    """Whether each thread of a process is stopped, or the process is gone."""
    try:
        threads = [(thread / "stat").read_text(errors="replace") for thread in Path(f"/proc/{pid}/task").iterdir()]
    except FileNotFoundError:  # of the process, or of a thread that has just ended
        return not Path(f"/proc/{pid}").exists()
    except ProcessLookupError:
        return False
    return all(text.rpartition(")")[2].split()[0] in STOPPED for text in threads)


def ended() -> bool:
    """Whether end_all has killed something: a program that fails now did not fail on its own."""
    return bool(_ended)


def _parents() -> dict[int, int]:
    """Pid -> pid of its parent, of every process that this one sees."""
    result = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended in the meantime
            # the name in parentheses may itself contain blanks and parentheses
            result[int(stat.parent.name)] = int(stat.read_text(errors="replace").rpartition(")")[2].split()[1])
    return result


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
