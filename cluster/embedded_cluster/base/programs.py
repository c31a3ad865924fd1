"""Runs helper programs of the host to completion; a failure is a sentence, not a traceback."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping

from embedded_cluster.base import say

LINES_OF_ERROR = 2


def with_us() -> tuple[str, ...]:
    """Return the prefix of a command that must die with this process, so that it never runs alongside our next one.

    setpriv asks for the signal when it runs; the shell ends what lost its parent before that (prctl(2)).
    """
    return ("setpriv", "--pdeathsig", "KILL", "sh", "-c", '[ "$PPID" = "$0" ] && exec "$@"', str(os.getpid()))


def isolated() -> tuple[str, ...]:
    """Return the prefix of such a command with processes and mounts of its own, which nobody else sees and no kill leaves over."""
    return (*with_us(), "unshare", "--fork", "--kill-child", "--pid", "--mount-proc")


def run(*argv: str, env: Mapping[str, str] | None = None) -> str:
    """Run a program and return its standard output; say.UserError with its last lines when it fails."""
    done = subprocess.run(
        argv,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        prefix = with_us()
        command = argv[len(prefix) :] if argv[: len(prefix)] == prefix else argv
        words = (done.stderr or done.stdout).strip().splitlines()[-LINES_OF_ERROR:] or [f"exit {done.returncode}"]
        raise say.UserError(f"{' '.join(command)}: " + "\n  ".join(words))
    return done.stdout


def remove(folder: str) -> None:
    """Remove a folder and its contents, but nothing that is mounted there."""
    run(*with_us(), "rm", "-rf", "--one-file-system", folder)
