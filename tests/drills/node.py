"""A node of the embedded cluster that loses its power and gets it back: all its processes but those that make it a namespace."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from embedded_cluster import cgroups, running

DAEMONS = ("containerd", "kubelet", "kube-proxy")
"""What node.sh starts, in this order."""
GONE_SECONDS, STARTED_SECONDS = 30.0, 120.0


@dataclass(frozen=True)
class Daemon:
    """A program of the node as it ran."""

    argv: list[str]
    groups: list[str]
    log: str

    def start(self, node: str) -> None:
        """Start it in the node, and in its cgroups, as cluster.sh and node.sh did; it ends with the node's first process."""
        join = "".join(f"echo 0 > {shlex.quote(file)}; " for file in self.groups)
        inside = f"exec {shlex.join(self.argv)} >> {shlex.quote(self.log)} 2>&1"
        enter = shlex.join(running.enter(node, ["bash", "-c", inside]))
        subprocess.Popen(
            ["bash", "-ec", f"{join}exec {enter}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


def off(node: str) -> list[Daemon]:
    """Kill everything in a node at once; return what has to be started again."""
    daemons = [_daemon(node, name) for name in DAEMONS]
    end = time.monotonic() + GONE_SECONDS
    while left := _pids(node):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > end:
            raise TimeoutError(f"node {node}: processes {left} still run {GONE_SECONDS:.0f} s after they were killed")
        time.sleep(0.1)
    return daemons


def on(node: str, daemons: list[Daemon]) -> None:
    """Start the node's programs again, each once containerd answers, as node.sh does: a kubelet ends without it."""
    for one in daemons:
        one.start(node)
        end = time.monotonic() + STARTED_SECONDS
        while subprocess.run(running.enter(node, ["ctr", "version"]), capture_output=True, check=False).returncode:
            if time.monotonic() > end:
                raise TimeoutError(f"node {node}: containerd does not answer {STARTED_SECONDS:.0f} s after its start")
            time.sleep(0.2)


def process(node: str, program: str) -> int:
    """Return the process of a program that runs once in the node; LookupError if it does not."""
    for pid in _pids(node):
        if _argv(pid)[0] == program:
            return pid
    raise LookupError(f"node {node} runs no {program}")


def _daemon(node: str, name: str) -> Daemon:
    """Find a program of the node, and how it was started."""
    pid = process(node, name)
    lines = [line.split(":", 2) for line in _read(Path("/proc") / str(pid) / "cgroup").splitlines()]
    groups = [str(one.at / _path(one, lines) / "cgroup.procs") for one in cgroups.hierarchies()]
    return Daemon(_argv(pid), groups, f"/var/log/{name}.log")


def _argv(pid: int) -> list[str]:
    return _read(Path("/proc") / str(pid) / "cmdline").rstrip("\0").split("\0")


def _path(hierarchy: cgroups.Hierarchy, lines: list[list[str]]) -> str:
    """The group of a process in a hierarchy, relative to that; `lines` are those of /proc/PID/cgroup."""
    names = set(hierarchy.options.split(","))
    for _number, controllers, path in lines:
        if names & set(controllers.split(",")) or (hierarchy.version == 2 and not controllers):
            return path.lstrip("/")
    raise LookupError(f"{hierarchy.at} is not in {lines}")


def _pids(node: str) -> list[int]:
    """Processes of the node that do not keep its namespaces; a killed one counts until its parent has seen its end."""
    keep, pid = set(), running.pid(node) or 0
    while pid > 1:
        keep.add(pid)
        pid = _stat(pid)[2]
    found = cgroups.processes(node) - keep
    return sorted(pid for pid in found if _counts(pid, keep))


def _counts(pid: int, keep: set[int]) -> bool:
    """False for one that has ended, and for the second that node.sh sleeps when it has nothing to wait for."""
    program, state, parent = _stat(pid)
    return state not in "ZX" and not (program == "sleep" and parent in keep)


def _stat(pid: int) -> tuple[str, str, int]:
    """Program, state and parent of a process as the kernel says; state X for one that is gone."""
    text = _read(Path("/proc") / str(pid) / "stat")
    if not text:
        return "", "X", 0
    program, _, rest = text.partition("(")[2].rpartition(")")
    state, parent = rest.split()[:2]
    return program, state, int(parent)


def _read(file: Path) -> str:
    with contextlib.suppress(OSError):
        return file.read_text()
    return ""
