"""What the package prints and the one error that it raises; imported by all its other modules."""

from __future__ import annotations

import _thread
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

HEARTBEAT_SECONDS = 30.0
_steps: list[str] = []


class UserError(Exception):
    """Something that the user has to know or fix; ends.py prints `error: TEXT` and exits 2."""


def line(text: str) -> None:
    """Print one whole line at once, even when stdout is a pipe or other processes print as well."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def info(text: str) -> None:
    """Print one indented line."""
    line(f"    {text}")


@contextmanager
def step(name: str, limit: float = 0) -> Iterator[None]:
    """Print `==> name` at once, a line every 30 s while the block runs, and its seconds at the end.

    A wait passes its limit in seconds, so that each line says how long it may take.
    """
    most = f" of at most {limit:.0f} s" if limit else ""
    line(f"==> {name}")
    _steps.append(name)
    start = time.monotonic()
    try:
        with repeating(
            HEARTBEAT_SECONDS, lambda: info(f"{name}: still running after {time.monotonic() - start:.0f} s{most}")
        ):
            yield
        _steps.remove(name)  # not after an error, whose message names the step
    finally:
        info(f"{name}: {time.monotonic() - start:.1f} s")


@contextmanager
def repeating(seconds: float, work: Callable[[], None]) -> Iterator[None]:
    """Do this every so many seconds while the block runs, in a thread.

    Not a Thread, whose `start` waits for a lock: a signal there, of a user who ends the command at the line that was just
    printed, ended in a RuntimeError of that lock (seen).
    """
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(seconds):
            work()

    _thread.start_new_thread(repeat, ())
    try:
        yield
    finally:
        ended.set()


def current() -> str:
    """The innermost step that began and has not succeeded yet; empty when there is none."""
    return _steps[-1] if _steps else ""
