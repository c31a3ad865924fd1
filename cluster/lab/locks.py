"""Lock files by which commands of different processes wait for each other."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

import say


@contextlib.contextmanager
def waiting(path: Path, why: str, shared: bool = False) -> Iterator[None]:
    """Hold the lock file `path`, alone or shared; says `why` once where somebody else has to be waited for."""
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    with path.open("w") as held:
        try:
            fcntl.flock(held, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            say.info(why)
            fcntl.flock(held, kind)
        yield
