"""Lock files with which commands in different processes wait for each other; the only place that locks.

A lock file contains its holder's pid and command, so that whoever waits can name it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from embedded_cluster.base import say

POLL_SECONDS = 0.2
SAY_SECONDS = 30.0
MAX_COMMAND = 160


@contextlib.contextmanager
def waiting(path: Path, why: str, shared: bool = False, seconds: float | None = None) -> Iterator[None]:
    """Hold the lock file `path`, exclusively or shared; while it is held, say `why`, by whom, and for how long.

    Raises say.UserError with the same words when it is still held after `seconds`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as held:
        begin, next_line = time.monotonic(), 0.0
        while not _taken(held.fileno(), shared):
            waited = time.monotonic() - begin
            if seconds is not None and waited > seconds:
                raise say.UserError(
                    f"{why} ({holder(path)}); waited {waited:.0f} s: wait for it or end it, then try again"
                )
            if waited >= next_line:
                say.info(f"{why} ({holder(path)}); waiting for it" + (f", {waited:.0f} s so far" if next_line else ""))
                next_line += SAY_SECONDS
            time.sleep(POLL_SECONDS)
        if next_line:
            say.info(f"waited {time.monotonic() - begin:.1f} s")
        held.seek(0)
        held.truncate()
        held.write(f"{os.getpid()} {shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])[:MAX_COMMAND]}\n")
        held.flush()
        yield


def _taken(file: int, shared: bool) -> bool:
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def holder(path: Path) -> str:
    """Who wrote the lock file last: `pid 12: cluster up`; of several sharing a lock, the last one."""
    with contextlib.suppress(OSError):
        number, __, command = path.read_text(errors="replace").strip().partition(" ")
        if number:
            return f"pid {number}: {command}" if command else f"pid {number}"
    return "pid unknown"


def written(path: Path) -> bool:
    """Whether this is a lock file of ours, by what `waiting` writes into it, and not somebody's file of that name."""
    if not path.is_file():
        return False
    with path.open(errors="replace") as file:
        return re.match(r"\d+ \S", file.read(20)) is not None


def held(path: Path) -> bool:
    """Whether this lock file is held now."""
    try:
        with path.open("r+") as file:
            return not _taken(file.fileno(), shared=False)
    except FileNotFoundError:
        return False
