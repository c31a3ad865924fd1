"""The environment of every command of the embedded cluster and of all that it starts; called first by commands.py."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from embedded_cluster import home, paths, proxies

SMALL = 4 << 30
"""With fewer free bytes in the temporary folder, ours is used instead: pip and Go unpack and link there."""


def prepare() -> None:
    """Set what may be missing or harmful: umask, HOME, TMPDIR, NO_PROXY; changes `os.environ`."""
    os.umask(0o022)  # pods of other users read what is built here; secrets are written with a mode of their own
    os.environ.setdefault("HOME", str(Path.home()))
    os.environ.update(proxies.environment(os.environ))
    try:
        small = shutil.disk_usage(tempfile.gettempdir()).free < SMALL
    except FileNotFoundError:  # no temporary folder is writable
        small = True
    if small and "TMPDIR" not in os.environ:
        home.claim()
        (paths.CACHE / "tmp").mkdir(exist_ok=True)
        os.environ["TMPDIR"] = tempfile.tempdir = str(paths.CACHE / "tmp")
