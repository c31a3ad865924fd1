"""What every command of the embedded cluster, and all that it starts, finds in its environment; called by commands.py before all else."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from embedded_cluster import home, paths, proxies

SMALL = 4 << 30
"""Bytes free in the folder for temporary files below which ours is used: pip and Go unpack and link there."""


def prepare() -> None:
    """Set what may be missing or would hurt: umask, HOME, TMPDIR, NO_PROXY; `os.environ` is changed."""
    os.umask(0o022)  # what is built here is read by pods with other users; secrets are written with a mode of their own
    os.environ.setdefault("HOME", str(Path.home()))
    os.environ.update(proxies.environment(os.environ))
    try:
        small = shutil.disk_usage(tempfile.gettempdir()).free < SMALL
    except FileNotFoundError:  # no folder for temporary files can be written
        small = True
    if small and "TMPDIR" not in os.environ:
        home.claim()
        (paths.CACHE / "tmp").mkdir(exist_ok=True)
        os.environ["TMPDIR"] = tempfile.tempdir = str(paths.CACHE / "tmp")
