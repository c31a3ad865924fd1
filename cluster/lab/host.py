"""What the cluster touches on the host: one veth link, two routes, its cgroups, its folder; making and removing them.

Called by cluster.py and preflight.py.
"""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cgroups
import kernel
import layout
import paths
import patience
import running
import say

LOCK_SECONDS = 10.0


@contextlib.contextmanager
def lock() -> Iterator[None]:
    """Let one command at a time change the cluster; raises say.LabError that names the holder after 10 s.

    The wait is needed: a child of a killed command may hold the lock for a moment longer.
    """
    paths.HOME.mkdir(parents=True, exist_ok=True)
    with paths.LOCK.open("a+") as held:
        end = time.monotonic() + patience.seconds(LOCK_SECONDS)
        while True:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    held.seek(0)
                    raise say.LabError(
                        f"another up or down runs (pid {held.read().strip() or 'unknown'}); wait for it or stop it"
                    ) from None
                time.sleep(0.2)
        held.truncate(0)
        held.write(str(os.getpid()))
        held.flush()
        yield


def ip(*argv: str) -> str:
    """Run iproute2's `ip`; raises say.LabError with its message."""
    done = subprocess.run(["ip", *argv], capture_output=True, text=True, check=False)
    if done.returncode:
        raise say.LabError(f"ip {' '.join(argv)}: {done.stderr.strip()}")
    return done.stdout


def subnet_conflicts() -> list[str]:
    """Routes of the host, other than our link's, that overlap the cluster's fixed subnets."""
    routes: list[dict[str, Any]] = json.loads(ip("-4", "-json", "route", "show", "table", "all"))
    found = []
    for route in routes:
        if route.get("dst") == "default" or route.get("dev") == layout.LINK:
            continue
        theirs = ipaddress.ip_network(route["dst"], strict=False)
        found += [
            f"subnet {ours} of the cluster overlaps the host's route {theirs} (dev {route.get('dev', '-')}): "
            "remove that route or network while the cluster is up"
            for ours in layout.SUBNETS
            if theirs.overlaps(ipaddress.ip_network(ours))
        ]
    return found


def link_exists() -> bool:
    """Whether the host end of our link is there."""
    return Path("/sys/class/net", layout.LINK).exists()


def connect(outer: int) -> None:
    """Join host and switch by a veth pair; the routes vanish with the link."""
    ip("link", "add", layout.LINK, "type", "veth", "peer", "name", "up0", "netns", str(outer))
    in_switch = ["nsenter", "--target", str(outer), "--net", "ip", "link", "set", "up0", "master", "br0", "up"]
    subprocess.run(in_switch, check=True)
    ipv6 = Path(f"/proc/sys/net/ipv6/conf/{layout.LINK}/disable_ipv6")
    if ipv6.exists():
        ipv6.write_text("1")
    ip("addr", "add", f"{layout.NET}.1/24", "dev", layout.LINK)
    ip("link", "set", layout.LINK, "up")
    ip("route", "add", f"{layout.SERVICES}.0.0/16", "via", layout.address(1), "dev", layout.LINK)


def owner() -> Path | None:
    """TRAINLAB_HOME of the cluster that runs on this machine, None when there is none."""
    pid = cgroups.init_of("outer", running.OUTER_DEPTH)
    if pid is None:
        return None
    argv = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    return Path(argv[argv.index("outer") + 1]).parent if "outer" in argv else None


def clear() -> bool:
    """End every process of the cluster and remove link, cgroups and folder; returns whether there was anything.

    Works from any state, also after a kill -9 in the middle of `up`.
    """
    home = owner()
    if home not in (None, paths.HOME):
        raise say.LabError(f"the cluster of TRAINLAB_HOME={home} runs on this machine; take that one down first")
    had = cgroups.exists() or link_exists() or paths.CLUSTER.exists()
    _kill()
    if link_exists():
        try:
            ip("link", "del", layout.LINK)
        except say.LabError:
            if link_exists():  # else it went by itself: the kernel removes it with the namespace of its other end
                raise
    cgroups.remove()
    kernel.restore()
    _remove_folder()
    return had


def _kill(seconds: float = 15.0) -> None:
    end = time.monotonic() + patience.seconds(seconds)
    outer = cgroups.init_of("outer", running.OUTER_DEPTH)
    if outer is not None:
        _signal(outer)  # the kernel ends everything below it
        time.sleep(0.1)
    while left := cgroups.processes():
        for pid in left:
            _signal(pid)
        if time.monotonic() > end:
            raise say.LabError(f"processes of the cluster do not end: {sorted(left)}")
        time.sleep(0.1)


def _signal(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _remove_folder() -> None:
    if not paths.CLUSTER.exists():
        return
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    if inside := [at for at in mounts if Path(at).is_relative_to(paths.CLUSTER)]:
        raise say.LabError(f"{inside[0]} is still mounted on the host: umount it, then try again")
    done = subprocess.run(
        ["rm", "-rf", "--one-file-system", str(paths.CLUSTER)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise say.LabError(f"removing {paths.CLUSTER}: {done.stderr.strip()[-500:]}")
