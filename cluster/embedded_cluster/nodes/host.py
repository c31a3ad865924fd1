"""What the cluster touches on the host: one veth link, two routes, its cgroups, its folder; creates and removes them.

Called by cluster.py and preflight.py.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

from embedded_cluster.base import cgroups, home, identity, locks, paths, patience, programs, running, say
from embedded_cluster.nodes import kernel, layout

LOCK_SECONDS = 10.0


def lock() -> contextlib.AbstractContextManager[None]:
    """Let one command at a time change the cluster; after 10 s raises a say.UserError that names the holder.

    The wait is needed: a child of a killed command may hold the lock for a moment longer.
    """
    return locks.waiting(paths.LOCK, "another up or down is running", seconds=patience.seconds(LOCK_SECONDS))


def subnet_conflicts() -> list[str]:
    """What takes addresses away from the cluster, or loses its own to it, each with its remedy."""
    routes = json.loads(programs.run("ip", "-4", "-json", "route", "show", "table", "all"))
    try:
        resolvers = re.findall(
            r"^nameserver\s+(\S+)", Path("/etc/resolv.conf").read_text(errors="replace"), re.MULTILINE
        )
    except OSError:
        resolvers = []
    return conflicts(routes) + cut_off(routes, resolvers, os.environ.get("SSH_CONNECTION", ""))


def cut_off(routes: list[dict[str, Any]], resolvers: list[str], ssh: str = "") -> list[str]:
    """Addresses of the host's surroundings inside the cluster's networks, which a wider route leads to until the cluster is up.

    `resolvers` are those of resolv.conf, `ssh` is $SSH_CONNECTION, whose first word is the client.
    """
    near = {route["gateway"]: "gateway" for route in routes if "gateway" in route and route.get("dev") != identity.LINK}
    near |= dict.fromkeys(resolvers, "name server") | dict.fromkeys(ssh.split()[:1], "ssh client")
    return [
        f"the {what} {address} of this machine is inside the cluster's subnet {network}: "
        f"set {identity.VARIABLES[network]} to a network that is free here"
        for address, what in near.items()
        for network in (identity.NODES, identity.SERVICES)
        if _is_in(address, network)
    ]


def _is_in(address: str, network: ipaddress.IPv4Network) -> bool:
    try:
        return ipaddress.ip_address(address) in network
    except ValueError:  # sshd says UNKNOWN where it does not listen on a network
        return False


def conflicts(routes: list[dict[str, Any]]) -> list[str]:
    """Routes, other than our link's, to one of the cluster's networks or to a part of it.

    A wider one, such as a VPN's 10.0.0.0/8, is no conflict: the kernel takes the longest prefix, which is ours.
    """
    messages: dict[tuple[str, str], str] = {}
    for route in routes:
        if route["dst"] == "default" or route.get("dev") == identity.LINK:
            continue
        theirs = ipaddress.IPv4Network(route["dst"], strict=False)
        device = route.get("dev", "-")
        for ours, variable in identity.VARIABLES.items():
            if theirs.subnet_of(ours):
                text = f"the host's route {theirs} (dev {device}) is inside the cluster's subnet {ours}: set {variable} to "
                messages.setdefault((variable, device), text + "a network that is free here, or remove that route")
    return list(messages.values())


def link_exists() -> bool:
    """Whether the host end of our link is there."""
    return Path("/sys/class/net", identity.LINK).exists()


def connect(outer: int) -> None:
    """Join host and switch by a veth pair; routes vanish with it. Raises say.UserError when others override them."""
    ip("link", "add", identity.LINK, "type", "veth", "peer", "name", "up0", "netns", str(outer))
    programs.run("nsenter", "--target", str(outer), "--net", "ip", "link", "set", "up0", "master", "br0", "up")
    ipv6 = Path(f"/proc/sys/net/ipv6/conf/{identity.LINK}/disable_ipv6")
    if ipv6.exists():
        ipv6.write_text("1")
    ip("addr", "add", f"{layout.NET}.1/24", "dev", identity.LINK)
    ip("link", "set", identity.LINK, "up")
    ip("route", "add", str(identity.SERVICES), "via", layout.address(1), "dev", identity.LINK)
    for network in (identity.NODES, identity.SERVICES):
        # the longest prefix wins within a table only: a VPN's rules may consult its own table before the main one
        device = json.loads(ip("-json", "route", "get", str(network[-2])))[0].get("dev", "-")
        if device != identity.LINK:
            raise say.UserError(
                f"the host routes {network} to {device} and not to {identity.LINK}, by a rule of `ip rule`: set "
                f"{identity.VARIABLES[network]} to a network that is free here, or turn off what added that rule"
            )


def ip(*argv: str) -> str:
    """Run iproute2's `ip` and return its output."""
    return programs.run("ip", *argv)


def owner() -> Path | None:
    """TRAINLAB_HOME of the cluster that is running on this machine, None when there is none."""
    pid = cgroups.init_of("outer", running.OUTER_DEPTH)
    if pid is None:
        return None
    argv = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    return Path(argv[argv.index("outer") + 1]).parent if "outer" in argv else None


def clear() -> bool:
    """End every process of the cluster and remove link, cgroups and folder; returns whether there was anything.

    Works from any state, even after a kill -9 in the middle of `up`. A folder that is not ours stays.
    """
    had = stop() or home.ours(paths.CLUSTER)
    kernel.restore()
    _remove_folder()
    return had


def stop() -> bool:
    """End every process of the cluster and remove link and cgroups, but not what its nodes hold; returns whether any was there.

    Raises say.UserError when another TRAINLAB_HOME's cluster of this name runs.
    """
    theirs = owner()
    if theirs not in (None, paths.HOME):
        raise say.UserError(
            f"the cluster '{identity.NAME}' of TRAINLAB_HOME={theirs} runs on this machine: take that one down first, or set "
            "TRAINLAB_CLUSTER to another name, and the three variables TRAINLAB_*_SUBNET to other networks"
        )
    had = cgroups.exists() or link_exists()
    _kill()
    cgroups.remove()  # before the link: fails where a cluster in another PID namespace, invisible here, has this name
    if link_exists():
        try:
            ip("link", "del", identity.LINK)
        except say.UserError:
            if link_exists():  # else it is already gone: the kernel removes it with its peer's namespace
                raise
    return had


def _kill() -> None:
    end = time.monotonic() + patience.seconds(15.0)
    outer = cgroups.init_of("outer", running.OUTER_DEPTH)
    if outer is not None:
        _signal(outer)  # the kernel ends everything below it
        time.sleep(0.1)
    while left := cgroups.processes():
        for pid in left:
            _signal(pid)
        if time.monotonic() > end:
            raise say.UserError(f"processes of the cluster do not end: {sorted(left)}")
        time.sleep(0.1)


def _signal(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _remove_folder() -> None:
    if not home.ours(paths.CLUSTER):
        return
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    if inside := [at for at in mounts if Path(at).is_relative_to(paths.CLUSTER)]:
        raise say.UserError(f"{inside[0]} is still mounted on the host: unmount it, then try again")
    # first: what a killed removal leaves is no cluster that `up` could keep
    running.state_file().unlink(missing_ok=True)
    home.drop(paths.CLUSTER)
