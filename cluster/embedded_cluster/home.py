"""$TRAINLAB_HOME: creating it, marking it as ours, and removing nothing else; called by commands.py and down.py."""

from __future__ import annotations

import shutil
from pathlib import Path

from embedded_cluster import paths, programs, say

MARK = "CACHEDIR.TAG"
# The first line is that of the Cache Directory Tagging Specification (bford.info/cachedir), which backup programs know.
TAG = "Signature: 8a477f597d28d172789f06886806bc55\n# Made by trainlab, which removes it: make demo-down CACHE=1\n"
OURS = ("alone*", "cache")
"""Folders of $TRAINLAB_HOME whose content can be recreated; the cluster's own folder is removed with the cluster."""


def claim() -> None:
    """Create $TRAINLAB_HOME and its cache, marked as ours; raises say.UserError when one exists and is not ours."""
    for folder in (paths.HOME, paths.CACHE):
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            if folder == paths.CACHE and any(folder.iterdir()) and not _ours(folder):
                raise say.UserError(
                    f"{folder} exists and was not made by trainlab: set TRAINLAB_HOME to another folder, e.g. "
                    f"{paths.HOME / 'trainlab'}; nothing in it was touched"
                ) from None
            if folder == paths.HOME:
                continue
        if not _ours(folder):
            (folder / MARK).write_text(TAG, encoding="ascii")


def _ours(folder: Path) -> bool:
    mark = folder / MARK
    return mark.is_file() and mark.read_text(encoding="ascii", errors="replace") == TAG


def remove() -> bool:
    """Remove what was built or downloaded, and $TRAINLAB_HOME itself when it is ours and then empty.

    Returns whether anything was there. The cluster must be down.
    """
    wanted = [folder for name in OURS for folder in paths.HOME.glob(name)]
    found = [folder for folder in wanted if folder.is_dir() and (folder.name != "cache" or _ours(folder))]
    for folder in found:
        with say.step(f"remove {folder}"):
            programs.remove(str(folder))
    for file in paths.HOME.glob("*lock*"):
        if file.is_file():
            file.unlink()
    if _ours(paths.HOME) and [one.name for one in paths.HOME.iterdir()] == [MARK]:
        shutil.rmtree(paths.HOME)
    return bool(found)
