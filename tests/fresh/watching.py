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
from pathlib import Path
from typing import IO

from fresh.meter import Meter

HANGS = 900.0
"""Seconds after which a command counts as hung: four times the usual with two other suites on two slow processors."""
END_SECONDS = 40.0
"""How long a command may take to end after SIGTERM."""
SHOWN = 60
STAGE = re.compile(r"==> |.*Both models answered here")
"""The lines at which CPU-seconds are read."""


@dataclass
class Ended:
    """How a command ended: its exit status, its output, and what it left running."""

    code: int = 0
    text: str = ""
    """Both outputs, line by line as they arrived."""
    err: str = ""
    left: list[str] = field(default_factory=list)
    """Command lines of processes that were alive 5 s after the command."""
    stopped: bool = False
    """Whether the awaited line appeared and the command was told to end."""
    late: str = ""
    """Why it was killed."""
    seconds: float = 0.0
    stages: list[tuple[float, float, str]] = field(default_factory=list)
    """(seconds, CPU-seconds, line) of each stage, with a meter only; the last is the command's end."""

    def shown(self) -> str:
        """Return the end of the output with the exit status, for the message of an assertion."""
        head = f"exit {self.code} after {self.seconds:.0f} s {self.late}"
        return "\n".join([head, *self.text.splitlines()[-SHOWN:], *(f"still running: {one}" for one in self.left)])


class _Reader:
    """Both outputs of a process, as they arrive."""

    def __init__(self, process: subprocess.Popen[str], until: str, log: Path | None, meter: Meter | None) -> None:
        self.ended, self.seen = Ended(), threading.Event()
        self.meter, self._began = meter, time.monotonic()
        self._pattern = re.compile(until) if until else None
        self._log, self._lock = log, threading.Lock()
        assert process.stdout and process.stderr
        self._threads = [
            threading.Thread(target=self._take, args=(stream, stream is process.stderr), daemon=True)
            for stream in (process.stdout, process.stderr)
        ]
        for thread in self._threads:
            thread.start()

    def _take(self, stream: IO[str], error: bool) -> None:
        for line in stream:
            with self._lock:
                self.ended.text += line
                self.ended.err += line if error else ""
                if STAGE.match(line):
                    self.stage(line.strip())
                if self._log:
                    with self._log.open("a", encoding="utf-8") as file:
                        file.write(line)
            if self._pattern and self._pattern.search(line):
                self.seen.set()

    def stage(self, line: str) -> None:
        """Note what was spent up to a line."""
        if self.meter:
            self.ended.stages.append((time.monotonic() - self._began, self.meter.seconds(), line))

    def finish(self) -> None:
        """Wait for the ends of the outputs."""
        for thread in self._threads:
            thread.join(10)


def watch(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    left: tuple[int, int],
    seconds: float,
    until: str = "",
    log: Path | None = None,
    meter: Meter | None = None,
) -> Ended:
    """Run `argv`, whose process group is ended at a line that `until` matches; its lines also go to the file `log`.

    A `meter` counts the CPU-seconds up to each stage. `left` is a pipe to whose other end it writes what it left running. AssertionError when it had to be killed.
    """
    began = time.monotonic()
    process = subprocess.Popen(
        meter.command(argv) if meter else argv,
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
    reader = _Reader(process, until, log, meter)
    ended = reader.ended
    try:
        _wait(process, reader, began + seconds)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        ended.code = process.wait()
        reader.finish()
        reader.stage("end")
        ended.seconds = time.monotonic() - began
        with os.fdopen(left[0], encoding="utf-8", errors="replace") as pipe:
            ended.left = pipe.read().splitlines()
    assert not ended.late, ended.shown()
    return ended


def _wait(process: subprocess.Popen[str], reader: _Reader, end: float) -> None:
    ended = reader.ended
    while process.poll() is None:
        if reader.meter:
            reader.meter.seconds()  # often enough that little of a cluster's last seconds is lost when it is removed
        if reader.seen.is_set() and not ended.stopped:
            ended.stopped, end = True, time.monotonic() + END_SECONDS
            os.killpg(process.pid, signal.SIGTERM)
        if time.monotonic() > end:
            ended.late = (
                f"(killed: {END_SECONDS:.0f} s after SIGTERM)" if ended.stopped else "(killed: it took too long)"
            )
            return
        time.sleep(0.05)
