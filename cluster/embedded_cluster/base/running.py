"""The running cluster: its nodes, entering them, what was loaded into them.

Called by cluster.py, images.py and commands.py. Everything is read from the kernel (cgroups.py) and the state file.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from embedded_cluster.base import cgroups, paths, say

SOCKET = "/run/containerd/containerd.sock"
OUTER_DEPTH, NODE_DEPTH = 1, 2


def state_file() -> Path:
    """The file that `up` writes last and a removal removes first."""
    return paths.CLUSTER / "state.json"


def share() -> Path:
    """The folder that every node sees as /share."""
    return paths.CLUSTER / "share"


def state() -> dict[str, Any]:
    """What the last `up` wrote: nodes, what they were made with, addresses; empty without a cluster."""
    try:
        result: dict[str, Any] = json.loads(state_file().read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return result


def nodes() -> list[str]:
    """Names of the nodes whose first process lives."""
    return [name for name in state().get("nodes", []) if pid(name)]


def pid(node: str) -> int | None:
    """Host pid of the node's first process."""
    return cgroups.init_of(node, NODE_DEPTH)


def root(node: str) -> Path:
    """The node's root folder as the host sees it."""
    return paths.CLUSTER / "nodes" / node / "root"


def enter(node: str, argv: Sequence[str]) -> list[str]:
    """The argument list that runs `argv` in a node; raises say.UserError when that node is not running."""
    number = pid(node)
    if number is None:
        raise say.UserError(f"node '{node}' is not running; running: {', '.join(nodes()) or 'none (start with `up`)'}")
    env = {
        "PATH": "/opt/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root",
        "KUBECONFIG": "/share/admin.conf",
        "CONTAINERD_ADDRESS": SOCKET,
        "CONTAINERD_NAMESPACE": "k8s.io",
        "TERM": os.environ.get("TERM", "dumb"),
    }
    settings = [f"{key}={value}" for key, value in env.items()]
    return ["nsenter", "--target", str(number), "--all", "--", "env", "-i", "--chdir=/", *settings, *argv]


def ctr(node: str, *argv: str, stdin: IO[bytes] | None = None) -> str:
    """Run containerd's `ctr` in a node; a host path below the cluster's share folder is translated."""
    outside = str(share())
    inside = [arg.replace(outside, "/share", 1) if arg.startswith(outside) else arg for arg in argv]
    done = subprocess.run(enter(node, ["ctr", *inside]), stdin=stdin, capture_output=True, text=True, check=False)
    if done.returncode:
        raise say.UserError(f"{node}: ctr {' '.join(argv[:2])} failed:\n{(done.stderr or done.stdout).strip()[-800:]}")
    return done.stdout


def _loaded_file(node: str) -> Path:
    return paths.CLUSTER / "nodes" / node / "images.json"


def loaded(node: str) -> dict[str, str]:
    """Reference -> digest of the images that were loaded into a node."""
    result: dict[str, str] = json.loads(_loaded_file(node).read_text())
    return result


def note_loaded(node: str, refs: dict[str, str]) -> None:
    """Replace the list of images that were loaded into a node."""
    file = _loaded_file(node)
    part = file.with_name(file.name + ".part")
    part.write_text(json.dumps(refs, indent=1, sort_keys=True))
    part.replace(file)
