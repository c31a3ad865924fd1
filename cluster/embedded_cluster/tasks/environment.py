"""The environment of every command of the embedded cluster and of all that it starts; called first by commands.py."""

from __future__ import annotations

import os
from pathlib import Path

from embedded_cluster.base import paths
from embedded_cluster.nodes import proxies

SYSTEM = ("/usr/local/sbin", "/usr/sbin", "/sbin")
"""Where chroot, ldconfig and others are; root's PATH by cron or by Debian's `su` has none of them."""


def prepare() -> None:
    """Set what may be missing or harmful: umask, HOME, PATH, NO_PROXY; changes `os.environ` and creates nothing."""
    os.umask(0o022)  # pods of other users read what is built here; secrets are written with a mode of their own
    if "HOME" not in os.environ:
        os.environ["HOME"] = _home()
    searched = [*os.environ.get("PATH", os.defpath).split(os.pathsep), *SYSTEM]
    os.environ["PATH"] = os.pathsep.join(dict.fromkeys(searched))
    os.environ.update(proxies.environment(os.environ))


def _home() -> str:
    try:
        return str(Path.home())
    except RuntimeError:  # a uid without an entry in passwd, as containers have; programs write into their HOME
        return str(paths.CACHE)
