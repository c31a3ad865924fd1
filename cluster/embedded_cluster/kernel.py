"""What a cluster changes in the kernel for the whole machine: noted before, put back when the last cluster is gone.

Called by cluster.py and host.py. Two things: version 2 of cgroups hands controllers down from its root only when told so,
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

from embedded_cluster import cgroups, say

# of the machine, as what it tells of, and not of one cluster; and gone, as that is, when the machine starts anew
NOTE = Path("/run/trainlab-kernel.json")
BRIDGES = Path("/proc/sys/net/bridge")
MODULE = "br_netfilter"
CALLS = ("bridge-nf-call-iptables", "bridge-nf-call-ip6tables", "bridge-nf-call-arptables")


def prepare() -> None:
    """Note how the machine is, then load br_netfilter where it lacks; raises say.UserError when that cannot be."""
    loads = not BRIDGES.exists()
    if not NOTE.exists():  # else another cluster that runs found the machine so
        NOTE.write_text(json.dumps({"loaded": loads, "controllers": _handed_down()}))
    if not loads:
        return
    command = shutil.which("modprobe", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    done = subprocess.run([command, MODULE], capture_output=True, text=True, check=False) if command else None
    if not BRIDGES.exists():
        why = (done.stderr.strip() or f"exit {done.returncode}") if done else "no command modprobe (package kmod)"
        raise say.UserError(f"kernel module {MODULE} is not loaded: {why}; load it: modprobe {MODULE}")
    for name in CALLS:  # of the host's own network namespace: each node switches its own on
        with contextlib.suppress(OSError):
            (BRIDGES / name).write_text("0")


def restore() -> None:
    """Put back what `prepare` found, once no other cluster runs, as far as nobody else uses it by now."""
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
        command = shutil.which("modprobe", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
        subprocess.run([command or "modprobe", "--remove", MODULE], capture_output=True, check=False)
    NOTE.unlink()


def _handed_down() -> dict[str, list[str]]:
    """The root folder of cgroup version 2 and what it hands down; empty with version 1."""
    roots = [one.at for one in cgroups.hierarchies() if one.version == 2]
    return {str(root): (root / "cgroup.subtree_control").read_text().split() for root in roots}


def _in_use() -> bool:
    """Whether somebody may rely on br_netfilter: switched on for the host, or in another network namespace."""
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
