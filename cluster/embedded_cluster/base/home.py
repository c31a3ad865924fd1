"""$TRAINLAB_HOME: creating it, marking what is ours in it, and removing nothing else; called by commands.py and down.py.

It may be any folder, a user's home directory among them, with files and folders of any name.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path

from embedded_cluster.base import identity, locks, paths, programs, say

MARK = "CACHEDIR.TAG"
# The first line is that of the Cache Directory Tagging Specification (bford.info/cachedir), which backup programs know.
TAG = "Signature: 8a477f597d28d172789f06886806bc55\n# Made by trainlab, which removes it: make demo-down CACHE=1\n"
SMALL = 4 << 30
"""With fewer free bytes in the temporary folder, ours is used instead: pip and Go unpack and link there."""


def claim() -> None:
    """Create $TRAINLAB_HOME and its cache, marked as ours, and in that a temporary folder where the machine's is small.

    Raises say.UserError when the cache or the cluster's folder is there and not ours. Changes `os.environ`.
    """
    try:
        paths.HOME.mkdir(parents=True)
    except FileExistsError:
        pass
    else:
        _mark(paths.HOME)
    make(paths.CACHE)
    _require_ours(paths.CLUSTER)
    _temporary()


def make(folder: Path) -> None:
    """Create a folder of $TRAINLAB_HOME, marked as ours; raises say.UserError when it is there with content and not ours."""
    _require_ours(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if not ours(folder):
        _mark(folder)


def ours(folder: Path) -> bool:
    """Whether we made this folder of $TRAINLAB_HOME."""
    mark = folder / MARK
    return mark.is_file() and mark.read_text(encoding="ascii", errors="replace") == TAG


def folders(kind: str) -> list[Path]:
    """Our folders of a kind, `cluster` or `alone`: the default cluster's is named like it, another one's KIND-NAME."""
    return [path for path in sorted(paths.HOME.glob(f"{kind}*")) if _named(kind, path.name) and ours(path)]


def lock_files() -> list[Path]:
    """Our lock files in $TRAINLAB_HOME itself, of all clusters."""
    return [file for file in sorted(paths.HOME.glob("*lock*")) if _is_lock(file.name) and locks.written(file)]


def drop(folder: Path) -> None:
    """Remove a folder of ours, but nothing that is mounted there; the mark goes last: what a killed command leaves is ours."""
    inside = [str(path) for path in folder.iterdir() if path.name != MARK]
    programs.run(*programs.with_us(), "rm", "-rf", "--one-file-system", "--preserve-root=all", "--", *inside)
    (folder / MARK).unlink(missing_ok=True)
    if not folder.is_symlink():  # a user's, to another disk
        folder.rmdir()


def remove() -> bool:
    """Remove what was built or downloaded, and $TRAINLAB_HOME itself when it is ours and then empty.

    Returns whether anything was there. The cluster must be down.
    """
    targets = [*folders("alone"), *([paths.CACHE] if ours(paths.CACHE) else [])]
    for folder in targets:
        with say.step(f"remove {folder}"):
            drop(folder)
    for file in lock_files():
        file.unlink()
    if ours(paths.HOME) and [path.name for path in paths.HOME.iterdir()] == [MARK]:
        shutil.rmtree(paths.HOME)
    return bool(targets)


def _require_ours(folder: Path) -> None:
    if not folder.exists() or ours(folder):
        return
    if folder.is_dir() and all(path.name == MARK for path in folder.iterdir()):  # empty, or another command makes it
        return
    named = "" if folder == paths.CACHE else ", or TRAINLAB_CLUSTER to another name"
    raise say.UserError(
        f"{folder} exists and was not made by trainlab: set TRAINLAB_HOME to another folder, e.g. "
        f"{paths.HOME / 'trainlab'}{named}, or move it away; nothing in it was touched"
    )


def _mark(folder: Path) -> None:
    (folder / MARK).write_text(TAG, encoding="ascii")


def _named(kind: str, name: str) -> bool:
    return re.fullmatch(rf"{kind}(-{identity.SHAPE})?", name) is not None


def _is_lock(name: str) -> bool:
    stem = name.removesuffix(".lock")
    return _named("lock", name) or name == "apt.lock" or (stem != name and _named("(demo|alone)", stem))


def _temporary() -> None:
    try:
        small = shutil.disk_usage(tempfile.gettempdir()).free < SMALL
    except FileNotFoundError:  # no temporary folder is writable
        small = True
    if small and "TMPDIR" not in os.environ:
        (paths.CACHE / "tmp").mkdir(exist_ok=True)
        os.environ["TMPDIR"] = tempfile.tempdir = str(paths.CACHE / "tmp")
