"""What the e2e tests see of the host and how they call the embedded cluster's commands."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parents[2]
HOME = Path(os.environ.get("TRAINLAB_HOME") or "/var/lib/trainlab")
CLUSTER = os.environ.get("E2E_CLUSTER") or "test"
NODES, PODS, SERVICES = (os.environ.get("E2E_NETWORKS") or "10.246.1 10.247 10.242").split()
"""Both variables let a file run beside a run of the others, as `E2E_CLUSTER=more E2E_NETWORKS="10.236.1 10.237 10.238"`."""
ARTIFACTS = REPO / "artifacts" / "e2e"
OF_MAKE = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")
"""What `make test` passes to its children: a make among them would call itself make[1] and print its folder."""
ENVIRONMENT = {key: value for key, value in os.environ.items() if key not in OF_MAKE} | {
    "TRAINLAB_HOME": str(HOME),
    "TRAINLAB_CLUSTER": CLUSTER,
    "TRAINLAB_NODE_SUBNET": f"{NODES}.0/24",
    "TRAINLAB_POD_SUBNET": f"{PODS}.0.0/16",
    "TRAINLAB_SERVICE_SUBNET": f"{SERVICES}.0.0/16",
    "TRAINLAB_ARTIFACTS": str(ARTIFACTS),
}
"""For every command of the tests: a cluster of their own next to the user's, with the same caches."""
FOLDER = HOME / f"cluster-{CLUSTER}"
DEMO_LOCK = HOME / f"demo-{CLUSTER}.lock"
GROUP, LINK, LOCK = f"trainlab-{CLUSTER}", f"tl-{CLUSTER}", HOME / f"lock-{CLUSTER}"
KUBECONFIG = FOLDER / "admin.conf"
CANNOT_HOST = 3
SYSCTLS: tuple[str, ...] = (
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys",
    "vm",
    "net/ipv4/ip_forward",
    "net/ipv4/conf/all",
)
SYSCTLS += ("net/ipv4/conf/default", "net/bridge", "net/netfilter/nf_conntrack_max")
VOLATILE = re.compile(r"expires \d+sec|handle \d+|packets \d+ bytes \d+|stat_refresh|compact_memory|drop_caches")


def command(*argv: str) -> list[str]:
    """The argument list of `cluster/python cluster ARGV`."""
    return [sys.executable, str(REPO / "cluster"), *argv]


def cluster(*argv: str, code: int = 0) -> str:
    """Run a command of the embedded cluster to its end and return what it printed; fails unless it exits with `code`."""
    done = subprocess.run(
        command(*argv), env=ENVIRONMENT, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    assert done.returncode == code, f"cluster {' '.join(argv)}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


@functools.cache
def why_not() -> str:
    """Why this machine cannot host the cluster, in the words of `check`; empty when it can."""
    done = subprocess.run(command("check"), env=ENVIRONMENT, capture_output=True, text=True, check=False)
    if done.returncode not in (0, CANNOT_HOST):
        raise RuntimeError(f"check is broken, exit {done.returncode}: no test is skipped for that\n{done.stderr}")
    return done.stdout.strip() if done.returncode else ""


def kubectl(*argv: str, stdin: str | None = None) -> str:
    """Run the embedded cluster's kubectl against the cluster and return its output; fails when it fails."""
    env = {**ENVIRONMENT, "KUBECONFIG": str(KUBECONFIG), "KUBECACHEDIR": str(FOLDER / "kubecache")}
    argv = (str(HOME / "cache" / "bin" / "kubectl"), *argv)
    done = subprocess.run(argv, env=env, input=stdin, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"kubectl {' '.join(argv[1:])}: {done.stderr}"
    return done.stdout


def ready_nodes() -> dict[str, str]:
    """Node name -> pod subnet of every node that is Ready."""
    items: list[dict[str, Any]] = json.loads(kubectl("get", "nodes", "-o", "json"))["items"]
    return {
        item["metadata"]["name"]: item["spec"]["podCIDR"]
        for item in items
        if {"type": "Ready", "status": "True"}.items()
        <= next(one for one in item["status"]["conditions"] if one["type"] == "Ready").items()
    }


def _output(*argv: str) -> list[str]:
    text = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    return sorted(VOLATILE.sub("", line) for line in text.splitlines())


def _tree(folder: Path) -> list[str]:
    """Names and sizes below a folder, nothing when it does not exist."""
    found = []
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            info = path.lstat()
            found.append(f"{path} {info.st_size if path.is_file() else ''}")
    return sorted(found)


def _sysctls() -> list[str]:
    result = []
    for name in SYSCTLS:
        top = Path("/proc/sys") / name
        for file in [top] if top.is_file() else sorted(top.rglob("*")):
            with contextlib.suppress(OSError):
                if file.is_file() and not VOLATILE.search(file.name):
                    result.append(f"{file}={file.read_text().strip()}")
    return result


def group(node: str = "") -> set[int]:
    """Pids of all processes in the cluster, or in one node of it."""
    tops = [Path("/sys/fs/cgroup"), *Path("/sys/fs/cgroup").iterdir()]
    result: set[int] = set()
    for folder, _, _ in (entry for top in tops for entry in os.walk(top / GROUP / node)):
        with contextlib.suppress(OSError):  # a container has just ended
            result.update(map(int, (Path(folder) / "cgroup.procs").read_text().split()))
    return result


def ours(outside: bool = False) -> dict[int, str]:
    """Processes that run in the cluster, work in its folder or have one of its roots; `outside`: not those that run in it.

    A process is asked for its own group: those of a node come and go within a second.
    """
    result = {}
    for path in (path for path in Path("/proc").iterdir() if path.name.isdigit()):
        with contextlib.suppress(OSError):
            argv = (path / "cmdline").read_text().split("\0")
            mine = any(word.startswith(str(FOLDER)) for word in [*argv, str((path / "root").readlink())])
            inside = re.search(rf"/{GROUP}(/|$)", (path / "cgroup").read_text(), re.MULTILINE) is not None
            if (mine and not inside) if outside else (mine or inside):
                result[int(path.name)] = " ".join(argv)
    return result


def power_off() -> None:
    """Kill all processes of the cluster at once, and undo what a boot undoes: its mounts, link, cgroups, kernel's settings."""
    while pids := group():
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    subprocess.run(["ip", "link", "del", LINK], check=False, capture_output=True)
    tops = [Path("/sys/fs/cgroup"), *Path("/sys/fs/cgroup").iterdir()]
    for top in [top / GROUP for top in tops if (top / GROUP).exists()]:
        for folder in sorted([top, *(path for path in top.rglob("*") if path.is_dir())], reverse=True):
            folder.rmdir()
    restore = "from embedded_cluster.nodes import kernel; kernel.restore()"
    subprocess.run([sys.executable, "-c", restore], env=ENVIRONMENT | {"PYTHONPATH": str(REPO / "cluster")}, check=True)
    assert not ours()


def _nft() -> list[str]:
    roots = sorted(HOME.glob("cache/rootfs-*/usr/sbin/nft"))
    program = ["chroot", str(roots[0].parents[2]), "nft"] if roots else [shutil.which("nft") or ""]
    return _output(*program, "list", "ruleset") if program[0] else []


def _kernel() -> list[str]:
    """What the cluster may turn on for the whole machine: filtering on all bridges, controllers of cgroup 2."""
    module, handed_down = Path("/sys/module/br_netfilter"), Path("/sys/fs/cgroup/cgroup.subtree_control")
    return [str(module)] * module.exists() + (handed_down.read_text().split() if handed_down.exists() else [])


def snapshot() -> dict[str, list[str]]:
    """Everything on the host that a cluster could change, each as sorted lines."""
    cgroups = [path for top in Path("/sys/fs/cgroup").iterdir() for path in [top, *top.glob("*/")] if path.is_dir()]
    return {
        "links": [re.sub(r"^\d+: ", "", line) for line in _output("ip", "-o", "link", "show")],
        "addresses": [re.sub(r"^\d+: |valid_lft.*", "", line) for line in _output("ip", "-o", "address", "show")],
        "routes": _output("ip", "route", "show", "table", "all"),
        "rules": _output("ip", "rule", "show"),
        "nft": _nft(),
        "mounts": sorted(line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()),
        "cgroups": sorted(map(str, cgroups)),
        "etc": _tree(Path("/etc")),
        "cni": _tree(Path("/var/lib/cni")) + _tree(Path("/etc/cni")) + _tree(Path("/run/containerd")),
        "kubernetes": _tree(Path("/var/lib/kubelet")) + _tree(Path("/var/lib/etcd")),
        "sysctls": _sysctls(),
        "kernel": _kernel(),
        "processes": list(ours().values()),
    }


def changes(before: dict[str, list[str]], after: dict[str, list[str]]) -> dict[str, list[str]]:
    """What differs, as lines with + and -.

    If no firewall ran before, the kernel loads nf_conntrack by itself for a node's rules, and no program of ours unloads
    it: the one setting that comes with it does not count.
    """
    result = {}
    for key, old in before.items():
        new = after[key]
        if key == "sysctls" and not any("nf_conntrack_max" in line for line in old):
            new = [line for line in new if "nf_conntrack_max" not in line]
        lines = [f"- {line}" for line in old if line not in new] + [f"+ {line}" for line in new if line not in old]
        if lines:
            result[key] = lines
    return result
