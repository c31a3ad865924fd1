"""Runs helper programs of the host to completion; a failure is a sentence, not a traceback."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping

from embedded_cluster import say

LINES_OF_ERROR = 2
WITH_US = ("setpriv", "--pdeathsig", "KILL")
"""Prefix of a command that must die with this process, so that it never runs alongside our next one."""


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
        command = argv[len(WITH_US) :] if argv[: len(WITH_US)] == WITH_US else argv
        words = (done.stderr or done.stdout).strip().splitlines()[-LINES_OF_ERROR:] or [f"exit {done.returncode}"]
        raise say.UserError(f"{' '.join(command)}: " + "\n  ".join(words))
    return done.stdout


def remove(folder: str) -> None:
    """Remove a folder and its contents, but nothing that is mounted there."""
    run(*WITH_US, "rm", "-rf", "--one-file-system", folder)
