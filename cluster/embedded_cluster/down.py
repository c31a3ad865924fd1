"""`make demo-down`: ends the server of demo-alone and the embedded cluster; the caches stay unless they are asked for."""

from __future__ import annotations

import os

from embedded_cluster import alone, home, others, paths, say


def run(cache: bool) -> bool:
    """Remove everything that runs, with `cache` also what was built or downloaded; returns whether anything was there."""
    if cache and (users := others.at_work()):
        raise say.UserError(
            f"{paths.CACHE} is used by {', '.join(users)}: take that down first (TRAINLAB_CLUSTER={users[0]} make demo-down)"
            ", or leave the cache"
        )
    changed = alone.end_server()
    if changed:
        say.info("server of demo-alone ended")
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
