"""A node of the embedded cluster that loses its power and gets it back: all its processes but those that make it a namespace."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

from embedded_cluster.base import cgroups, running

GONE_SECONDS, STARTED_SECONDS = 30.0, 120.0


def off(node: str) -> None:
    """Kill everything in a node at once; its first process, which would start the daemons again, stands still until `on`."""
    os.kill(_first(node), signal.SIGSTOP)
    end = time.monotonic() + GONE_SECONDS
    while left := _pids(node):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > end:
            raise TimeoutError(f"node {node}: processes {left} still run {GONE_SECONDS:.0f} s after they were killed")
        time.sleep(0.1)


def on(node: str) -> None:
    """Let the node's first process go on, which starts its daemons again, and wait until containerd answers."""
    os.kill(_first(node), signal.SIGCONT)
    end = time.monotonic() + STARTED_SECONDS
    while subprocess.run(running.enter(node, ["ctr", "version"]), capture_output=True, check=False).returncode:
        if time.monotonic() > end:
            raise TimeoutError(f"node {node}: containerd does not answer {STARTED_SECONDS:.0f} s after its start")
        time.sleep(0.2)


def _first(node: str) -> int:
    pid = running.pid(node)
    if pid is None:
        raise LookupError(f"node {node} does not run")
    return pid


def process(node: str, program: str) -> int:
    """Return the process of a program that runs once in the node; LookupError if it does not."""
    for pid in _pids(node):
        if _argv(pid)[0] == program:
            return pid
    raise LookupError(f"node {node} runs no {program}")


def _argv(pid: int) -> list[str]:
    return _read(Path("/proc") / str(pid) / "cmdline").rstrip("\0").split("\0")


def _pids(node: str) -> list[int]:
    """Processes of the node that do not keep its namespaces; a killed one counts until its parent has seen its end."""
    keep, pid = set(), running.pid(node) or 0
    while pid > 1:
        keep.add(pid)
        pid = _stat(pid)[1]
    return sorted(pid for pid in cgroups.processes(node) - keep if _stat(pid)[0] not in "ZX")


def _stat(pid: int) -> tuple[str, int]:
    """State and parent of a process as the kernel says; state X for one that is gone."""
    text = _read(Path("/proc") / str(pid) / "stat")
    if not text:
        return "X", 0
    state, parent = text.rpartition(")")[2].split()[:2]
    return state, int(parent)


def _read(file: Path) -> str:
    with contextlib.suppress(OSError):
        return file.read_text()
    return ""
