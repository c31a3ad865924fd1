"""`make demo-down`: ends the server of demo-alone and the embedded cluster; the caches stay unless they are asked for."""

from __future__ import annotations

import os

import alone
import home
import paths
import say


def run(cache: bool) -> bool:
    """Remove everything that runs, with `cache` also what was built or downloaded; returns whether anything was there."""
    changed = alone.end_server()
    if changed:
        say.info("server of demo-alone ended")
    if os.geteuid() == 0:
        import cluster

        changed = cluster.down() or changed
    if not cache:
        say.line(f"caches stay in {paths.CACHE}; make demo-down CACHE=1 removes them")
        return changed
    link = paths.REPO / ".venv"
    if link.is_symlink() and link.resolve().is_relative_to(paths.CACHE.resolve()):
        link.unlink()
    return home.remove() or changed
