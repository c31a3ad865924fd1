"""The checkout as after a fresh clone: a clone of HEAD with uncommitted changes, but without ignored files."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from embedded_cluster.base import paths


def clone(target: Path, owner: int) -> None:
    """Make `target`, owned by uid `owner`."""
    _git("clone", "--quiet", "--no-hardlinks", str(paths.REPO), str(target))
    _git("-C", str(target), "remote", "remove", "origin")  # its URL is a folder on this machine
    for name in {
        *_names("diff", "--name-only", "--no-renames", "HEAD"),
        *_names("ls-files", "--others", "--exclude-standard"),
    }:
        source, copy = paths.REPO / name, target / name
        copy.unlink(missing_ok=True)
        if source.is_symlink() or source.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy, follow_symlinks=False)
    if owner != os.getuid():
        for path in [target, *target.rglob("*")]:
            os.chown(path, owner, owner, follow_symlinks=False)


def _names(*argv: str) -> list[str]:
    return [name for name in _git("-C", str(paths.REPO), *argv, "-z").split("\0") if name]


def _git(*argv: str) -> str:
    # a commit hook that runs the tests sets GIT_DIR, which would override -C
    env = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    return subprocess.run(["git", *argv], env=env, capture_output=True, text=True, check=True).stdout
