"""The other clusters of this TRAINLAB_HOME, which use the same caches: what they need stays. Called before removals."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from embedded_cluster import identity, locks, paths


def folders() -> dict[str, Path]:
    """Name -> folder of every other cluster that was brought up and not taken down."""
    found = {path.name.removeprefix("cluster").removeprefix("-"): path for path in paths.HOME.glob("cluster*")}
    return {name or identity.DEFAULT: path for name, path in found.items() if path != paths.CLUSTER and path.is_dir()}


def at_work() -> list[str]:
    """Names of the other clusters that exist or that a command is working on."""
    busy = [path for path in paths.HOME.glob("lock*") if path != paths.LOCK and locks.held(path)]
    names = {path.name.removeprefix("lock").removeprefix("-") or identity.DEFAULT for path in busy}
    return sorted(names | set(folders()))


def images() -> set[str]:
    """References of the images that other clusters' nodes were given."""
    found: set[str] = set()
    for folder in folders().values():
        for file in folder.glob("nodes/*/images.json"):
            with contextlib.suppress(OSError, ValueError):  # that cluster is going down
                found |= set(json.loads(file.read_text()))
    return found
