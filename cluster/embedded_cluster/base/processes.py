"""Commands that run in parallel with prefixed output, and one in the foreground; called by demo.py and alone.py."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence

from embedded_cluster.base import children, say

POLL_SECONDS = 0.2
DRAIN_SECONDS = 10.0  # a limit, so that an ending command ends


class Child:
    """A command that runs in parallel with others; its lines are printed at once, prefixed with the child's name."""

    def __init__(self, name: str, argv: Sequence[str]) -> None:
        """Start it, in a process group of its own: forwarding Ctrl-C is up to this process."""
        self.name, self.seconds, self.last = name, 0.0, ""
        self._began = time.monotonic()
        self._process = subprocess.Popen(
            argv,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            process_group=0,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.startswith("changed="):
                say.line(f"{self.name:<9} {line.rstrip()}")
            self.last = line.rstrip() or self.last
        self.seconds = time.monotonic() - self._began

    def running(self) -> bool:
        """Whether it is still running."""
        return self._reader.is_alive() or self._process.poll() is None

    def wait(self) -> int:
        """Wait for its end and return the exit code."""
        self._reader.join()
        return self._process.wait()

    def drain(self) -> None:
        """Wait, once it was killed, until its last line is printed: Python aborts when it ends while a thread is printing."""
        self._reader.join(DRAIN_SECONDS)


def together(commands: Mapping[str, Sequence[str]], remedy: str) -> list[Child]:
    """Run these commands, by the name that prefixes their lines, in parallel and return them ended.

    The first that fails ends the others; raises say.UserError with its last line and what to do then.
    """
    started: list[Child] = []
    try:
        for name, argv in commands.items():
            started.append(Child(name, argv))
        unfinished = list(started)
        while unfinished:
            for child in [child for child in unfinished if not child.running()]:
                unfinished.remove(child)
                if child.wait():
                    raise say.UserError(f"{child.name}: {child.last.removeprefix('error: ')}; {remedy}")
            time.sleep(POLL_SECONDS)
    except BaseException:
        children.end_all()
        for child in started:
            child.drain()
        raise
    return started


def run(argv: Sequence[str], env: Mapping[str, str] | None = None) -> int:
    """Run a command in the foreground, with this process's output; return the exit code."""
    sys.stdout.flush()
    process = subprocess.Popen(argv, env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL, process_group=0)
    return process.wait()
