"""How a command ends: whatever happens is one sentence on standard error and an exit code; called by the programs' main.

2: an error that the sentence explains; 128 + N: ended by signal N, with everything that it had started.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType

from embedded_cluster.base import children, say

FULL = (errno.ENOSPC, errno.EDQUOT)
FULL_WORDS = ("no space left on device", "disk quota exceeded")
"""As every program writes them, but for their capitals: C's strerror(3) has some, Go's has none."""
FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
SIGNALS = {signal.SIGINT: "interrupted", signal.SIGTERM: "ended by a signal", signal.SIGHUP: "its terminal was closed"}


class Ended(KeyboardInterrupt):
    """A signal ended this command; like Ctrl-C, it is not caught by `except Exception`."""

    def __init__(self, number: int) -> None:
        """Keep the number of the signal."""
        super().__init__(number)
        self.number = number


def run(main: Callable[[], int], after: str) -> int:
    """Run the command line `main` and return its exit code; `after` says what to do after an interruption."""
    for each in SIGNALS:
        if signal.getsignal(each) is not signal.SIG_IGN:  # wanted by nohup, or for a script's background job
            signal.signal(each, _end)
    try:
        return main()
    except say.UserError as error:
        return _failed(_with_remedy(str(error)))
    except OSError as error:
        return _failed(_explained(error))
    except (KeyboardInterrupt, RuntimeError) as error:
        number = _number(error)
        if number is None:
            raise
        sys.stderr.write(f"error: {SIGNALS[signal.Signals(number)]}{_during()}; {after}\n")
        return 128 + number


def _number(error: BaseException) -> int | None:
    """The signal that ended this command, also where it came while a lock was taken, which then fails by a RuntimeError of its
    own (a thread's start, seen); None for any other error.
    """
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, KeyboardInterrupt):
        cause = cause.__context__
    return cause.number if isinstance(cause, Ended) else int(signal.SIGINT) if cause else None


@contextlib.contextmanager
def uncut(what: str) -> Iterator[None]:
    """Let a signal end this command only after the block, and say so: `what`, in a session of its own, is left alone."""
    noted: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        if not noted:
            with contextlib.suppress(OSError):  # the terminal may be gone
                say.info(f"{SIGNALS[signal.Signals(number)]}: {what} must not be cut short, this ends once it is done")
        noted.append(number)

    before = {each: signal.getsignal(each) for each in SIGNALS}
    heard = {each: handler for each, handler in before.items() if handler is not signal.SIG_IGN}
    for each in heard:
        signal.signal(each, note)
    try:
        yield
    finally:
        for each, handler in heard.items():
            signal.signal(each, handler)
        if noted:
            signal.raise_signal(noted[0])


def _end(number: int, _frame: FrameType | None) -> None:
    """Kill what this command has started, then end it; a second signal does not disturb its cleanup."""
    for each in SIGNALS:
        signal.signal(each, lambda *__: None)  # not SIG_IGN, which programs of the cleanup would inherit
    children.end_all()
    raise Ended(number)


def _failed(text: str) -> int:
    sys.stderr.write(f"error: {text}\n")
    return 2


def _during() -> str:
    return f" during `{say.current()}`" if say.current() else ""


def _with_remedy(text: str) -> str:
    """A helper program reports a full disk in its own words, without a remedy."""
    full = any(words in text.lower() for words in FULL_WORDS)
    return f"{text}\n{_room()}" if full and "free some" not in text else text


def _explained(error: OSError) -> str:
    """What a system call refused, on which file, and the remedy."""
    if isinstance(error, shutil.Error):
        error = _cause(error)
    file = f"{error.filename}: " if error.filename else ""
    what = f"{file}{error.strerror or error}{_during()}"
    if error.errno in FULL:
        return f"{what}; {_room()}"
    if error.errno == errno.ENOENT and error.filename and "/" not in str(error.filename):
        return f"{error.filename}: command not found{_during()}; install the package that has it and put it on PATH"
    if error.errno in FORBIDDEN:
        return f"{what}; make it writable for this user, or set TRAINLAB_HOME to a folder that is"
    return f"{what}; run the same command again; if it fails again, make demo-down removes the cluster, not the caches"


def _cause(error: shutil.Error) -> OSError:
    """The full disk among what a copy of a folder lists (source, target, message), or the first; `error` if it has no list."""
    listed = error.args[0] if isinstance(error.args[0], list) else []
    numbers = [(re.match(r"\[Errno (\d+)\]", message), target) for __, target, message in listed]
    errors = [OSError(int(number[1]), os.strerror(int(number[1])), target) for number, target in numbers if number]
    return next((cause for cause in errors if cause.errno in FULL), errors[0] if errors else error)


def _room() -> str:
    from embedded_cluster.base import paths  # late: it reads the environment, which may be what is wrong

    folder = next(folder for folder in (paths.HOME, *paths.HOME.parents) if folder.exists())
    free = shutil.disk_usage(folder).free / 2**20
    return (
        f"{folder} has {free:.0f} MiB free: free some space (or i-nodes: df -i), or set TRAINLAB_HOME to a folder on a "
        "larger disk, then run the same command again"
    )
