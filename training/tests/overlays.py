"""Other readers of a run's result: packages laid over the environment's, in folders of the cache that are kept."""

import ctypes
import subprocess
from pathlib import Path

import pytest
from embedded_cluster.base import locks, paths
from embedded_cluster.builds import apt, pyenv
from trainlab import files


def folder(lock: Path) -> Path:
    """Return a folder for PYTHONPATH with the packages of a lock file, which the first call downloads with pip.

    Only what the environment lacks or has in other versions belongs in the lock: torch is shared. Of a torch in it without the
    libraries of CUDA, which its lock may leave out, the names are there as in the environment's.
    """
    kept = paths.CACHE / f"{lock.stem}-{files.sha256(lock)[:12]}"
    with locks.waiting(paths.CACHE / f"{lock.stem}.lock", f"another command downloads the packages of {lock.name}"):
        if not kept.exists():
            pip = [pyenv.installer() / "bin" / "pip", "--quiet", "--no-cache-dir", "install"]
            with files.atomic_folder(kept) as made:
                options = ["--no-deps", "--no-compile", "--require-hashes", "--target", made, "-r", lock]
                subprocess.run([*pip, *options], check=True)
                if (made / "torch").exists():
                    pyenv.cpu_only().write_stubs(made / "torch")
    return kept


def library(name: str, debian: str, fedora: str) -> None:
    """Install the Debian package of a shared library that no package of PyPI brings; skip where this process may not."""
    if not _loads(name):
        apt.ensure((debian,))
        if not _loads(name):
            pytest.skip(f"{name} is missing: install {debian} (Debian, Ubuntu) or {fedora} (Fedora, RHEL)")


def _loads(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True
