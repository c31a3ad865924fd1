"""Runs a command to one of its lines and ends it there, as Ctrl-C or `kill` does; a variable identifies what it leaves."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
SECONDS = 600.0
"""A hang guard: a playbook is slow while other tests run."""
GONE_SECONDS = 5.0
MARK = "TRAINLAB_TEST_STOPPED"
"""Set to a unique value in each command, so that its descendants can be found."""


@dataclass(frozen=True)
class Stopped:
    """Its exit code, all its output, and the command lines of its processes that still run."""

    code: int
    lines: list[str]
    left: list[str]


def at(
    line: str, number: signal.Signals, argv: Sequence[str], env: Mapping[str, str], checkout: Path = REPO
) -> Stopped:
    """Send the signal to the command alone, once it has printed a line with `line`; kill it if that takes too long."""
    mark = f"{os.getpid()}-{time.monotonic_ns()}"
    process = subprocess.Popen(
        argv,
        cwd=checkout,
        env={**os.environ, **env, MARK: mark},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    guard = threading.Timer(SECONDS, process.kill)
    guard.start()
    said: list[str] = []
    assert process.stdout is not None
    for text in process.stdout:
        said.append(text)
        if line in text:
            process.send_signal(number)
            break
    said += process.stdout.readlines()
    code = process.wait()
    guard.cancel()
    end = time.monotonic() + GONE_SECONDS
    while (left := _marked(mark)) and time.monotonic() < end:
        time.sleep(0.1)
    return Stopped(code, said, left)


def _marked(mark: str) -> list[str]:
    word, result = f"{MARK}={mark}".encode(), []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if word in (folder / "environ").read_bytes().split(b"\0"):
                result.append((folder / "cmdline").read_text().replace("\0", " "))
    return result
