"""`make demo-down`: stops the demo-alone server and removes the embedded cluster, the caches only on request."""

from __future__ import annotations

import os

from embedded_cluster import alone, home, others, paths, say


def run(cache: bool) -> bool:
    """Remove all that is running, with `cache` also what was built or downloaded; returns whether there was any."""
    if cache and (users := others.at_work()):
        raise say.UserError(
            f"{paths.CACHE} is used by {', '.join(users)}: take that down first (TRAINLAB_CLUSTER={users[0]} make demo-down)"
            ", or keep the cache"
        )
    changed = alone.end_server()
    if changed:
        say.info("demo-alone server stopped")
    if os.geteuid() == 0:
        from embedded_cluster import cluster

        changed = cluster.down() or changed
    if not cache:
        say.line(f"caches stay in {paths.CACHE}; make demo-down CACHE=1 removes them")
        return changed
    link = paths.REPO / ".venv"
    if link.is_symlink() and link.resolve().is_relative_to(paths.CACHE.resolve()):
        link.unlink()
    return home.remove() or changed
