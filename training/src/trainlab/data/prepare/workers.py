"""Batches of text worked on by several processes, with results in the order of the batches; used by ingest.py and pipeline.py."""

import ctypes
import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Self, TypeVar

from trainlab.errors import UserError

B = TypeVar("B")
N = TypeVar("N")
R = TypeVar("R")
AHEAD = 4  # batches read ahead of each process
WORTH = 16_000_000  # bytes of text from which more processes pay: each takes half a second to start
PR_SET_PDEATHSIG = 1
LOST = (
    "a process of `trainlab prepare` was killed, as the kernel does when memory runs out; give it more memory (site.prepare.memory of a "
    "release) and run it again: it goes on where it was"
)
CPU_MAX = Path("/sys/fs/cgroup/cpu.max")  # a pod's limit: microseconds of CPU in so many of time


def cores() -> int:
    """Return the cores that this process may use, by its affinity and its pod's limit."""
    usable = len(os.sched_getaffinity(0))
    if CPU_MAX.exists():
        quota, period = CPU_MAX.read_text("ascii").split()
        if quota != "max":
            usable = min(usable, -(-int(quota) // int(period)))
    return max(1, usable)


def begin() -> None:
    """Tokenize with one thread, and be killed with the process that started this one, or wait for batches for ever (prctl(2))."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    libc = ctypes.CDLL(None)
    if hasattr(libc, "prctl"):
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    parent = multiprocessing.parent_process()
    if parent and not parent.is_alive():  # killed while this one imported: no signal comes any more
        os._exit(1)


class Workers:
    """So many processes, started when there is work; one is this process itself."""

    def __init__(self, count: int) -> None:
        """`count` of the processes."""
        self._count = count
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        """Nothing is started yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """End them."""
        if self._pool:
            self._pool.shutdown(cancel_futures=True)

    def map(self, function: Callable[[B], R], batches: Iterable[tuple[N, B]]) -> Iterator[tuple[N, R]]:
        """Yield what the function, which must pickle, returns for each batch, with the note of that batch, which stays here.

        What fails fails in its turn; UserError when a process was killed.
        """
        if self._count == 1:
            yield from ((note, function(batch)) for note, batch in batches)
            return
        try:
            yield from self._mapped(function, batches)
        except BrokenProcessPool:
            raise UserError(LOST) from None

    def _mapped(self, function: Callable[[B], R], batches: Iterable[tuple[N, B]]) -> Iterator[tuple[N, R]]:
        # a fork would copy the threads' locks of tokenizers and Arrow
        self._pool = self._pool or ProcessPoolExecutor(
            self._count, multiprocessing.get_context("spawn"), initializer=begin
        )
        waiting, source = deque[tuple[N, Future[R]]](), iter(batches)
        failed: Exception | None = None
        more = True
        while more or waiting:
            while more and len(waiting) < AHEAD * self._count:
                try:
                    note, batch = next(source)
                except StopIteration:
                    more = False
                except Exception as error:
                    failed, more = error, False
                else:
                    waiting.append((note, self._pool.submit(function, batch)))
            if waiting:
                note, result = waiting.popleft()
                yield note, result.result()
        if failed:
            raise failed
