"""The cluster that exists, running or stopped: what it was made with, what it holds, and that nothing of it is lost silently.

Called by cluster.py. A cluster exists once its state file does, which `up` writes when the API server runs.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from embedded_cluster.base import identity, paths, running, say
from embedded_cluster.builds import modules
from embedded_cluster.nodes import layout

WORD = "RECREATE"
"""The variable with which a user gives up what a cluster holds."""
VERSIONED = ("kubernetes", "etcd", "coredns")
CONFIGURATION = "configuration of the nodes"
VOLUMES = ("share/rwx/*_*_*", "nodes/*/root/var/lib/local-path/*_*_*")
"""Folders of volumes in the cluster's folder, as the provisioner names them: VOLUME_NAMESPACE_CLAIM."""
MAX_NAMED = 8
DEFAULT_NODES = 2


def exists() -> bool:
    """Whether there is a cluster, running or stopped, that somebody may have put something into."""
    return running.state_file().exists()


def count() -> int:
    """The number of nodes of the existing cluster, or of a new one."""
    return int((running.state().get("made_with") or {}).get("NODES") or DEFAULT_NODES) if exists() else DEFAULT_NODES


def made_with(count: int) -> dict[str, str]:
    """What `up` makes a cluster of `count` nodes with and cannot change later: setting -> value, as a user names them."""
    return {
        "NODES": str(count),
        **{variable: str(network) for network, variable in identity.VARIABLES.items()},
        **{name: modules.version(name) for name in VERSIONED},
        CONFIGURATION: layout.digest(count),
    }


def differences(count: int) -> list[str]:
    """What keeps the existing cluster from being one of `count` nodes as `up` makes it now; empty when nothing does."""
    was, now = running.state().get("made_with"), made_with(count)
    if not was:
        return [
            f"{running.state_file()} does not say what it was made with: it is damaged, or of an earlier version of trainlab"
        ]
    changed = [name for name in now if was.get(name) != now[name]]
    if changed == [CONFIGURATION]:
        return [f"the {CONFIGURATION} is another one in this version of trainlab"]
    # the configuration has most of the others in it
    named = [name for name in changed if name != CONFIGURATION]
    return [f"it was made with {name}={was.get(name, '')}, asked is {name}={now[name]}" for name in named]


def volumes() -> list[str]:
    """Every volume on the disk: namespace/claim, its size in MiB or GiB, and the number of runs in it."""
    return sorted(_described(folder) for folder in _folders())


def _folders() -> Iterator[Path]:
    for pattern in VOLUMES:
        yield from (folder for folder in paths.CLUSTER.glob(pattern) if folder.is_dir())


def _described(folder: Path) -> str:
    __, namespace, claim = folder.name.split("_", 2)
    done = subprocess.run(["du", "-sxm", str(folder)], capture_output=True, text=True, check=False)
    size = int(done.stdout.split()[0]) if done.stdout else 0
    runs = len(list(folder.glob("*/manifest.json")))
    text = f"{size} MiB" if size < 1024 else f"{size / 1024:.1f} GiB"
    return f"{namespace}/{claim} ({text}{f', {runs} runs' if runs > 1 else ', 1 run' if runs else ''})"


def _recreate_asked() -> bool:
    """Whether RECREATE=1 is set; raises say.UserError for any other value but 0 and nothing."""
    value = os.environ.get(WORD) or "0"
    if value not in ("0", "1"):
        raise say.UserError(
            f"{WORD}={value}: give 1 to remove a cluster that cannot be kept, with what it holds, or unset it"
        )
    return value == "1"


def require(count: int, recreate: bool = False) -> bool:
    """Whether the existing cluster, if there is one, can be kept as one of `count` nodes.

    Raises say.UserError where it cannot and neither `recreate` nor RECREATE=1 gives it up: with what differs, what would be
    lost, and the remedies.
    """
    recreate = _recreate_asked() or recreate
    if not exists():
        return False
    if not (different := differences(count)):
        return True
    if recreate:
        say.info(f"the cluster in {paths.CLUSTER} is made anew, as {WORD} asks: {'; '.join(different)}")
        return False
    held = volumes()
    more = f" and {len(held) - MAX_NAMED} more" * (len(held) > MAX_NAMED)
    lost = f"these volumes: {', '.join(held[:MAX_NAMED])}{more}" if held else "no volumes, but all objects in it"
    down = "make demo-down" if identity.NAME == identity.DEFAULT else f"TRAINLAB_CLUSTER={identity.NAME} make demo-down"
    raise say.UserError(
        f"the cluster in {paths.CLUSTER} cannot be kept: {'; '.join(different)}. A new one would lose {lost}. To keep it, use "
        f"the settings and the version of trainlab that it was made with. To lose it: {WORD}=1 with make demo or make cluster, "
        f"`up --recreate`, or {down}. Nothing was changed"
    )
