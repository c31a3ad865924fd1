"""The cgroups of the cluster, version 1 and 2: `GROUP/outer` and `GROUP/n1` ... below every hierarchy (identity.py).

Every process of the cluster is in one of them, so they are the only list of what `down` has to kill; no pid files.
Called by cluster.py, running.py and preflight.py.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from embedded_cluster.base import identity, patience, say

V1_NEEDED = ("cpu", "cpuacct", "cpuset", "memory", "pids", "devices")
V2_NEEDED = ("cpu", "cpuset", "memory", "pids")
NOT_CONTROLLERS = ("rw", "ro", "xattr", "clone_children", "noprefix", "nsdelegate", "memory_recursiveprot")


@dataclass(frozen=True)
class Hierarchy:
    """A mounted cgroup file system: its folder, version and, for version 1, the mount options that name it."""

    at: Path
    version: int
    options: str = ""


@functools.cache
def hierarchies() -> tuple[Hierarchy, ...]:
    """The host's hierarchies below /sys/fs/cgroup: all of version 1, or the one of version 2. Empty when none."""
    v1: dict[Path, Hierarchy] = {}  # a later mount hides an earlier one at the same place
    v2: dict[Path, Hierarchy] = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, __, right = line.partition(" - ")
        at, (kind, __, options) = Path(left.split()[4]), right.split()[:3]
        if not at.is_relative_to("/sys/fs/cgroup"):
            continue
        if kind == "cgroup2" and at == Path("/sys/fs/cgroup"):
            v2[at] = Hierarchy(at, 2)
        if kind == "cgroup":
            names = [o for o in options.split(",") if o not in NOT_CONTROLLERS and not o.startswith("release_agent")]
            if all(name.startswith("name=") for name in names) and names != ["name=systemd"]:
                continue  # elogind's or OpenRC's: no controllers, and no node mounts it
            v1[at] = Hierarchy(at, 1, ",".join(names))
    return tuple((v2 or v1).values())


def controllers() -> set[str]:
    """The controllers that the host offers at its root."""
    result: set[str] = set()
    for hierarchy in hierarchies():
        result.update(
            hierarchy.options.split(",")
            if hierarchy.version == 1
            else (hierarchy.at / "cgroup.controllers").read_text().split()
        )
    return result


def delegable(hierarchy: Hierarchy) -> set[str]:
    """The controllers that groups at the top of a hierarchy can have: of version 2 none that are not handed down already, where
    the top is another group's child and holds processes."""
    everything, top = controllers(), hierarchy.at
    if hierarchy.version == 1 or not (top / "cgroup.type").exists() or not (top / "cgroup.procs").read_text().strip():
        return everything
    return set((top / "cgroup.subtree_control").read_text().split())


def version() -> int:
    """1 or 2; 0 when no cgroup file system is mounted."""
    return max((hierarchy.version for hierarchy in hierarchies()), default=0)


def make(group: str) -> None:
    """Make `GROUP/<group>` in every hierarchy, ready to take processes."""
    for hierarchy in hierarchies():
        target = hierarchy.at / identity.GROUP / group
        if hierarchy.version == 2:
            _make_v2(hierarchy.at, target, init=group != "outer")
        else:
            target.mkdir(parents=True, exist_ok=True)
            if "cpuset" in hierarchy.options.split(","):
                _inherit_cpuset(hierarchy.at, target)


def _make_v2(root: Path, target: Path, *, init: bool) -> None:
    """A version 2 group delegates its controllers only when told to, and then may hold no processes itself.

    A node's own processes are therefore in its child `init`, next to the kubelet's `kubepods`.
    """
    wanted = " ".join(f"+{name}" for name in (root / "cgroup.controllers").read_text().split() if name != "rdma")
    target.mkdir(parents=True, exist_ok=True)
    for parent in (root, root / identity.GROUP):
        (parent / "cgroup.subtree_control").write_text(wanted)
    if init:
        (target / "init").mkdir(exist_ok=True)


def _inherit_cpuset(root: Path, target: Path) -> None:
    """A new cpuset of version 1 is empty and accepts no process: fill it from its parent, top down."""
    steps = [path for path in reversed([target, *target.parents]) if path.is_relative_to(root) and path != root]
    for step in steps:
        for name in ("cpuset.cpus", "cpuset.mems"):
            if not (step / name).read_text().strip():
                (step / name).write_text((step.parent / name).read_text())


def processes(group: str = "") -> set[int]:
    """Host pids of everything in the cluster's cgroups, or in one group of them."""
    result: set[int] = set()
    for hierarchy in hierarchies():
        for file in _files(hierarchy.at / identity.GROUP / group):
            result.update(_lists(file))
    return result


def others() -> list[str]:
    """Names of the cgroup folders of other clusters running on this machine, under any TRAINLAB_HOME."""
    names = set()
    for hierarchy in hierarchies():
        for top in [hierarchy.at / identity.DEFAULT, *hierarchy.at.glob(f"{identity.DEFAULT}-*")]:
            if top.name != identity.GROUP and any(_lists(file) for file in _files(top)):
                names.add(top.name)
    return sorted(names)


def _files(top: Path) -> Iterator[Path]:
    """The cgroup.procs of a group and of those below it; by os.walk, as Path.rglob ends with an error for one that goes meanwhile."""
    for folder, __, names in os.walk(top):
        if "cgroup.procs" in names:
            yield Path(folder) / "cgroup.procs"


def _lists(file: Path) -> list[int]:
    """Pids in a cgroup.procs; none for a group that is gone or threaded, and none of another PID namespace (0)."""
    try:
        return [int(word) for word in file.read_text().split() if word != "0"]
    except OSError:
        return []


def init_of(group: str, depth: int) -> int | None:
    """Host pid of the process that is pid 1 of a PID namespace `depth` levels down in this group, if it is alive."""
    for pid in sorted(processes(group)):
        with contextlib.suppress(OSError):
            status = Path(f"/proc/{pid}/status").read_text()
            numbers = next(line.split()[1:] for line in status.splitlines() if line.startswith("NSpid"))
            if len(numbers) == depth + 1 and numbers[-1] == "1":
                return pid
    return None


def exists() -> bool:
    """Whether any cgroup of the cluster is left."""
    return any((hierarchy.at / identity.GROUP).exists() for hierarchy in hierarchies())


def remove(seconds: float = 5.0) -> None:
    """Remove the empty groups, deepest first; raises say.UserError when the kernel still keeps one."""
    end = time.monotonic() + patience.seconds(seconds)
    for hierarchy in hierarchies():
        top = hierarchy.at / identity.GROUP
        while top.exists():
            folders = sorted((path for path in top.rglob("*") if path.is_dir()), key=lambda path: -len(path.parts))
            with contextlib.suppress(OSError):
                for path in [*folders, top]:
                    path.rmdir()
            if top.exists():
                if time.monotonic() > end:
                    whose = sorted(processes()) or "of another PID namespace, a container's or the host's"
                    raise say.UserError(
                        f"{top}: cannot be removed, processes in it: {whose}; end them there, or set TRAINLAB_CLUSTER to "
                        "another name"
                    )
                time.sleep(0.1)
