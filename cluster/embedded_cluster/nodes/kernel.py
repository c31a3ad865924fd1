"""What a cluster changes in the kernel for the whole machine: recorded before, restored when the last cluster is gone.

Called by cluster.py and host.py. Two things: cgroup version 2 delegates controllers from its root only when told to,
and pods behind a bridge reach Services only with br_netfilter, which from then on filters every bridge of the machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from embedded_cluster.base import cgroups, say

# per machine, like the settings it records, not per cluster; and gone after a reboot, as they are
NOTE = Path("/run/trainlab-kernel.json")
BRIDGES = Path("/proc/sys/net/bridge")
MODULE = "br_netfilter"
CALLS = ("bridge-nf-call-iptables", "bridge-nf-call-ip6tables", "bridge-nf-call-arptables")


def prepare() -> None:
    """Record the machine's state, then load br_netfilter if missing; raises say.UserError when that fails."""
    loads = not BRIDGES.exists()
    if not NOTE.exists():  # else another running cluster found the machine in that state
        NOTE.write_text(json.dumps({"loaded": loads, "controllers": _handed_down()}))
    if not loads:
        return
    done = _modprobe(MODULE)
    if not BRIDGES.exists():
        why = (done.stderr.strip() or f"exit {done.returncode}") if done else "no modprobe command (package kmod)"
        raise say.UserError(f"kernel module {MODULE} is not loaded: {why}; load it: modprobe {MODULE}")
    for name in CALLS:  # in the host's own network namespace: each node turns on its own
        with contextlib.suppress(OSError):
            (BRIDGES / name).write_text("0")


def restore() -> None:
    """Restore what `prepare` found, once no other cluster is running, unless something else uses it by now."""
    if cgroups.others():
        return
    try:
        noted: dict[str, Any] = json.loads(NOTE.read_text())
    except (FileNotFoundError, ValueError):
        return
    for folder, before in noted["controllers"].items():
        for name in sorted(set(_handed_down().get(folder, ())) - set(before)):
            with contextlib.suppress(OSError):  # busy: a group below uses it
                (Path(folder) / "cgroup.subtree_control").write_text(f"-{name}")
    if noted["loaded"] and not _in_use():
        _modprobe("--remove", MODULE)
    NOTE.unlink()


def _modprobe(*arguments: str) -> subprocess.CompletedProcess[str] | None:
    """Run modprobe, which PATH may lack; None where the machine has none."""
    command = shutil.which("modprobe", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    return subprocess.run([command, *arguments], capture_output=True, text=True, check=False) if command else None


def _handed_down() -> dict[str, list[str]]:
    """The root folder of cgroup version 2 and the controllers that it delegates; empty with version 1."""
    roots = [hierarchy.at for hierarchy in cgroups.hierarchies() if hierarchy.version == 2]
    return {str(root): (root / "cgroup.subtree_control").read_text().split() for root in roots}


def _in_use() -> bool:
    """Whether something may rely on br_netfilter: enabled on the host, or maybe in another network namespace."""
    for name in CALLS:
        with contextlib.suppress(OSError):
            if (BRIDGES / name).read_text().strip() != "0":
                return True
    own = Path("/proc/self/ns/net").stat().st_ino
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if process.name.isdigit() and (process / "ns" / "net").stat().st_ino != own:
                return True
    return False
