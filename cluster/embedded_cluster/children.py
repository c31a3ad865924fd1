"""The processes that a command of the embedded cluster starts: run in parallel, and killed with it.

Called by ends.py and by everything that runs several programs at a time.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

AGAIN_SECONDS = 0.2
_ended: set[int] = set()


def side_by_side(work: Callable[[Item], Result], items: Iterable[Item], jobs: int) -> list[Result]:
    """Do the work for every item, `jobs` at a time; when one raises or this command is ended, the others end too.

    A thread cannot be killed, its programs can: again and again, as some threads retry.
    """
    others = set(threading.enumerate())
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        try:
            futures = [pool.submit(work, item) for item in items]
            for future in concurrent.futures.wait(futures, return_when=concurrent.futures.FIRST_EXCEPTION).done:
                future.result()
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            # The pool itself does not know a thread during whose start a signal arrived.
            while any(not one.daemon for one in set(threading.enumerate()) - others):
                end_all()
                time.sleep(AGAIN_SECONDS)
            raise


def end_all() -> None:
    """Kill every descendant of this process, however deep; the kernel kills the rest of a namespace."""
    found = [os.getpid()]
    for parent in found:  # grows while it is iterated
        children = [pid for pid, its in _parents().items() if its == parent]
        for pid in children:
            _signal(pid, signal.SIGSTOP)  # or it might start another one in the meantime
        found += [pid for pid in children if pid not in found]
    _ended.update(found[1:])
    for pid in found[1:]:
        _signal(pid, signal.SIGKILL)


def ended() -> bool:
    """Whether end_all has killed something: a program that fails now did not fail on its own."""
    return bool(_ended)


def _parents() -> dict[int, int]:
    """Pid -> pid of its parent, of every process that this one sees."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended in the meantime
            # the name in parentheses may itself contain blanks and parentheses
            found[int(stat.parent.name)] = int(stat.read_text(errors="replace").rpartition(")")[2].split()[1])
    return found


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
