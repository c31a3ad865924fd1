"""Runs a command to its end, or to a line of its output, with a guard against hanging; called by fresh_machine.py."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO

END_SECONDS = 40.0
"""How long a command may take to end after SIGTERM."""
SHOWN = 60


@dataclass
class Ended:
    """How a command ended: its exit status, what it said, and what it left running."""

    code: int = 0
    text: str = ""
    """Both outputs, line by line as they came."""
    err: str = ""
    left: list[str] = field(default_factory=list)
    """Command lines of processes that were alive 5 s after the command."""
    stopped: bool = False
    """Whether the line that was waited for came, and the command was told to end."""
    seconds: float = 0.0

    def shown(self) -> str:
        """Return the end of the output with the exit status, for the message of an assertion."""
        return "\n".join([f"exit {self.code} after {self.seconds:.0f} s", *self.text.splitlines()[-SHOWN:], *self.left])


def watch(
    argv: Sequence[str], *, env: Mapping[str, str], left: tuple[int, int], seconds: float, until: str = ""
) -> Ended:
    """Run `argv`; `left` is a pipe to whose second end it writes what it left running."""
    ended = Ended()
    seen = threading.Event()
    pattern = re.compile(until) if until else None
    lock = threading.Lock()

    def take(stream: IO[str], error: bool) -> None:
        for line in stream:
            with lock:
                ended.text += line
                ended.err += line if error else ""
            if pattern and pattern.search(line):
                seen.set()

    began = time.monotonic()
    process = subprocess.Popen(
        argv,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
        pass_fds=[left[1]],
    )
    os.close(left[1])
    assert process.stdout and process.stderr
    readers = [
        threading.Thread(target=take, args=(process.stdout, False), daemon=True),
        threading.Thread(target=take, args=(process.stderr, True), daemon=True),
    ]
    for reader in readers:
        reader.start()
    late = ""
    end = began + seconds
    while process.poll() is None and not late:
        if seen.is_set() and not ended.stopped:
            ended.stopped, end = True, time.monotonic() + END_SECONDS
            os.killpg(process.pid, signal.SIGTERM)
        if time.monotonic() > end:
            late = (
                f"it did not end within {END_SECONDS:.0f} s of SIGTERM" if ended.stopped else f"{seconds:.0f} s passed"
            )
        time.sleep(0.05)
    if late:
        os.killpg(process.pid, signal.SIGKILL)
    ended.code = process.wait()
    for reader in readers:
        reader.join(10)
    ended.seconds = time.monotonic() - began
    with os.fdopen(left[0], encoding="utf-8", errors="replace") as pipe:
        ended.left = pipe.read().splitlines()
    assert not late, f"{late}\n{ended.shown()}"
    return ended
