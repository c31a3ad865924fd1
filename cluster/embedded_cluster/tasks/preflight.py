"""What a machine needs to host the cluster: tried, not guessed; everything missing at once, with its remedy.

Called by the command `check`, which callers run first: on exit 3 they go on without Kubernetes and say so.
"""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from embedded_cluster.base import paths, patience, system
from embedded_cluster.base.say import UserError
from embedded_cluster.builds import pyenv

MACHINE_GIB = 16.0
"""Memory of the machine, of which the kernel shows up to a GiB less: nodes share it equally, and each runs two pods of survival."""
MEMORY_GIB = 12.0
MEMORY_OF_ONE_GIB = 8.0  # one node, nothing to build: 12 are for two parallel builds, or four pods on two nodes
# GiB by part, needed until that is made: a first run took at most 31.4 GiB. The rest is volumes, logs and headroom.
DISK_GIB = {"programs": 9.0, "Python packages": 9.0, "images": 17.0, "the cluster itself": 5.0}
CANNOT_HOST = 3
# command -> Debian package
TOOLS = {
    "mmdebstrap": "mmdebstrap",
    "ip": "iproute2",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "setsid": "util-linux",
    "mount": "mount",
    "bash": "bash",
    "cp": "coreutils",
}
TRY_SECONDS = 20
RIGHTS = "run as root on the machine itself; in a container, start it with --privileged and --cgroupns=host"

Check = Callable[[], list[str]]


def cannot_start() -> str:
    """Why no command can work here at all; empty when one can."""
    if os.geteuid() != 0:
        return f"the cluster needs root, and this is uid {os.geteuid()}: use sudo, or log in as root"
    return ""


def elsewhere(repository: str) -> str:
    """How the trainer image gets into `repository` where we cannot build it; begins with a semicolon, empty without one."""
    if not repository:
        return ""
    # a Debian with the Python of our own base
    build = "podman build -f images/trainer/Containerfile --build-arg BASE=docker.io/library/python:3.11-bookworm"
    return (
        f"; or build it in the checkout with podman or docker, `{build} -t {repository} .` and `podman push --digestfile "
        f"digest {repository}`, and name {repository}@DIGEST in site.images.trainer instead of trainlab_image_push"
    )


def _try(what: str, script: str) -> list[str]:
    """Run a script in fresh namespaces, as a node would; on failure, return a problem with its last line of output."""
    flags = [
        "--fork",
        "--kill-child",
        "--pid",
        "--mount",
        "--net",
        "--uts",
        "--ipc",
        "--cgroup",
        "--propagation",
        "private",
    ]
    try:
        done = subprocess.run(
            ["unshare", *flags, "bash", "-euc", script],
            capture_output=True,
            text=True,
            timeout=patience.seconds(TRY_SECONDS),
            check=False,
        )
    except subprocess.TimeoutExpired:
        return [f"{what}: no answer after {patience.seconds(TRY_SECONDS):.0f} s; {patience.hint()}"]
    except OSError as error:
        return [f"{what}: {error}; {RIGHTS}"]
    if done.returncode == 0:
        return []
    last = (done.stderr or done.stdout).strip().splitlines()[-1:] or [f"exit {done.returncode}"]
    return [f"{what}: {last[0]}; {RIGHTS}"]


def _tools() -> list[str]:
    missing = sorted({package for tool, package in TOOLS.items() if shutil.which(tool) is None})
    result = [f"missing tools: {system.install(missing)}"] if missing else []
    try:
        pyenv.require_ensurepip()
    except UserError as error:
        result.append(str(error))
    return result


def _namespaces() -> list[str]:
    """Namespaces, overlay file systems and virtual networks, each tried."""
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return []  # _tools reports it
    problems = _try("namespaces cannot be created", "mount -t proc proc /proc && hostname trainlab-check")
    if problems:
        return problems
    existing = next(path for path in (paths.HOME, *paths.HOME.parents) if path.exists())  # a check creates nothing
    with tempfile.TemporaryDirectory(prefix="trainlab-check-", dir=existing) as folder:
        problems += _try(
            f"overlay file systems cannot be mounted below {paths.HOME}",
            f"cd '{folder}' && mkdir l u w m && mount -t overlay -o lowerdir=l,upperdir=u,workdir=w none m && umount m",
        )
    problems += _try(
        "bridges and veth links cannot be created",
        "ip link add br0 type bridge && ip link add v0 type veth peer name v1 && ip link set v0 master br0 up",
    )
    nft = _nft()
    if nft:
        script = (
            f"{nft} -f - <<< 'table ip t {{ chain c {{ type nat hook postrouting priority srcnat; masquerade; }}; }}'"
        )
        problems += _try("nftables rules cannot be set (kernel modules nf_tables, nft_masq, nf_nat)", script)
    return problems


def _nft() -> str:
    """The nft command: the root folder's if that exists already, else the host's, else none (then not tried)."""
    for root in sorted(paths.CACHE.glob("rootfs-*")):
        if (root / "usr/sbin/nft").exists():
            return f"chroot '{root}' nft"
    return shutil.which("nft") or ""


def _cgroups() -> list[str]:
    from embedded_cluster.base import cgroups

    needed = {0: (), 1: cgroups.V1_NEEDED, 2: cgroups.V2_NEEDED}[cgroups.version()]
    if not needed:
        return [f"no cgroup file system at /sys/fs/cgroup; {RIGHTS}"]
    if missing := sorted(set(needed) - cgroups.controllers()):
        return [f"cgroup controllers missing in /sys/fs/cgroup: {', '.join(missing)}; {RIGHTS}"]
    for hierarchy in cgroups.hierarchies():
        if lacking := sorted(set(needed) - cgroups.delegable(hierarchy)):
            return [
                f"{hierarchy.at} holds processes and is not the machine's own, as in a container, so the kernel hands no controllers "
                f"down ({', '.join(lacking)}; cgroups(7), no internal processes); {RIGHTS}"
            ]
        probe = hierarchy.at / f"trainlab-check-{os.getpid()}"
        try:
            probe.mkdir()
            probe.rmdir()
        except OSError as error:
            return [f"{hierarchy.at} is not writable ({error.strerror}); {RIGHTS}"]
    return []


def _subnets() -> list[str]:
    if shutil.which("ip") is None:
        return []
    from embedded_cluster.nodes import host

    return host.subnet_conflicts()


def to_come() -> list[str]:
    """The parts of DISK_GIB that are not in the cache yet."""
    from embedded_cluster.builds import build, rootfs
    from embedded_cluster.containers import image_store
    from embedded_cluster.nodes import cluster, kept, operators

    names = (*cluster.NEEDED, "helm", *operators.BASIC)
    programs = all(build.binary(name).exists() for name in names)
    images = rootfs.folder("rootfs", rootfs.PACKAGES).exists() and any(
        ref.startswith("localhost/trainlab-trainer:") for ref in image_store.refs()
    )
    packages = any(paths.CACHE.glob("venv-*/bin/python"))
    cached = {
        "programs": programs,
        "Python packages": packages,
        "images": images,
        "the cluster itself": kept.exists(),
    }
    return [part for part in DISK_GIB if not cached.get(part)]


def _resources(nodes: int) -> list[str]:
    problems = []
    from embedded_cluster.base import cgroups

    missing = to_come()
    builds = {"programs", "images"} & set(missing)
    needed = MEMORY_OF_ONE_GIB if nodes == 1 and not builds else MEMORY_GIB
    memory, total = _gib(system.memory_available()), _gib(system.memory_total())
    if nodes > 1 and total < MACHINE_GIB - 1:
        problems.append(
            f"memory of this machine: {total:.1f} GiB, {nodes} nodes need {MACHINE_GIB:.0f} GiB: add memory, or set NODES=1"
        )
    if memory < needed and not cgroups.exists():
        problems.append(
            f"memory available: {memory:.1f} GiB, needed {needed:.0f} GiB: stop other programs or add memory"
        )
    existing = next(path for path in [paths.HOME, *paths.HOME.parents] if path.exists())
    free, disk_total = _gib(shutil.disk_usage(existing).free), sum(DISK_GIB.values())
    needed = sum(DISK_GIB[part] for part in missing)
    # a partly made part counts as missing, so what the cache holds counts as well
    if free < needed and free + _used(paths.HOME) < disk_total:
        problems.append(
            f"disk at {existing}: {free:.1f} GiB free, needed {needed:.0f} GiB for {', '.join(missing)}: "
            "free some, or set TRAINLAB_HOME to a folder on a larger disk"
        )
    return problems


def _gib(size: int) -> float:
    """GiB rounded down, so that what is too little never reads as enough."""
    return math.floor(10 * size / 2**30) / 10


def _used(folder: Path) -> float:
    """GiB that a folder takes; hard links count once."""
    done = subprocess.run(["du", "-sx", "--block-size=1M", str(folder)], capture_output=True, text=True, check=False)
    return int(done.stdout.split()[0]) / 1024 if done.stdout else 0.0


def problems(nodes: int) -> list[str]:
    """Everything that keeps this machine from hosting a cluster of `nodes` nodes, each with its remedy."""
    if blocked := cannot_start():
        return [blocked]
    from embedded_cluster.nodes import layout

    result = [] if 1 <= nodes <= layout.MAX_NODES else [f"--nodes {nodes}: give 1 to {layout.MAX_NODES}"]
    checks: list[Check] = [_tools, _cgroups, _namespaces, _subnets, lambda: _resources(nodes)]
    for check in checks:
        result += check()
    return result


def report(nodes: int) -> int:
    """Print the result and return the exit code, 0 or 3."""
    missing = problems(nodes)
    if missing:
        sys.stdout.write(f"this machine cannot host the cluster: {len(missing)} thing(s) missing\n")
        sys.stdout.writelines(f"  - {problem}\n" for problem in missing)
    else:
        sys.stdout.write(f"this machine can host the cluster with {nodes} node(s)\n")
    sys.stdout.write("changed=false\n")
    return CANNOT_HOST if missing else 0
