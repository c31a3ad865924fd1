"""`make demo-down`: stops the demo-alone server and removes the embedded cluster, the caches only on request."""

from __future__ import annotations

import os

from embedded_cluster.base import cgroups, home, locks, others, paths, patience, say
from embedded_cluster.nodes import host
from embedded_cluster.tasks import alone


def run(cache: bool) -> bool:
    """Remove all that is running, with `cache` also what was built, downloaded or trained by demo-alone.

    Returns whether there was any; raises say.UserError, and has removed nothing, when the cache is in use.
    """
    if cache:
        _require_unused()
    changed = alone.end_server()
    if changed:
        say.info("demo-alone server stopped")
    if alone.end_jobs():
        changed = True
        say.info("training of the room stopped")
    runs = cgroups.exists()
    if os.geteuid() == 0:
        from embedded_cluster.nodes import cluster

        changed = cluster.down() or changed
    if not cache:
        stays = [
            f"caches stay in {paths.CACHE}",
            *(f"models and runs of demo-alone in {folder}" for folder in home.folders("alone")),
        ]
        say.line(f"{', '.join(stays)}; make demo-down CACHE=1 removes them")
        _require_root(runs)
        return changed
    link = paths.REPO / ".venv"
    if link.is_symlink() and link.resolve().is_relative_to(paths.CACHE.resolve()):
        link.unlink()
    changed = home.remove() or changed
    _require_root(runs)
    return changed


def _require_root(runs: bool) -> None:
    if runs and os.geteuid() != 0:
        raise say.UserError("a cluster that root started runs here, and still does: sudo make demo-down removes it")


def _require_unused() -> None:
    served = [
        others.name_of(folder) for folder in home.folders("alone") if folder != alone.FOLDER and alone.server(folder)
    ]
    if users := sorted({*others.at_work(), *served}):
        raise say.UserError(
            f"{paths.CACHE} is used by {', '.join(users)}: take that down first (TRAINLAB_CLUSTER={users[0]} make demo-down)"
            ", or keep the cache"
        )
    in_cache = sorted(paths.CACHE.glob("*.lock")) if home.ours(paths.CACHE) else []
    for file in [*home.lock_files(), *in_cache]:
        with locks.waiting(file, f"another command uses {paths.CACHE}", seconds=patience.seconds(host.LOCK_SECONDS)):
            pass
