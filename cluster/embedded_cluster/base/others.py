"""The other clusters of this TRAINLAB_HOME, which use the same caches: what they need stays. Called before removals."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from embedded_cluster.base import home, identity, locks, paths


def name_of(path: Path) -> str:
    """Name of the cluster whose folder or lock file this is: KIND is the default one's, KIND-NAME another one's."""
    return path.name.partition("-")[2] or identity.DEFAULT


def folders() -> dict[str, Path]:
    """Name -> folder of every other cluster that was brought up and not taken down."""
    return {name_of(path): path for path in home.folders("cluster") if path != paths.CLUSTER}


def at_work() -> list[str]:
    """Names of the other clusters that exist or that a command is working on."""
    changing = [path for path in home.lock_files() if path.name.startswith("lock") and path != paths.LOCK]
    return sorted({name_of(path) for path in changing if locks.held(path)} | set(folders()))


def images() -> set[str]:
    """References of the images that other clusters' nodes were given."""
    result: set[str] = set()
    for folder in folders().values():
        for file in folder.glob("nodes/*/images.json"):
            with contextlib.suppress(OSError, ValueError):  # that cluster is going down
                result |= set(json.loads(file.read_text()))
    return result
