"""A run volume that can be full: a small file system over the claim's folder, mounted in the nodes alone, with which it goes."""

from __future__ import annotations

import contextlib
import errno
import subprocess
from collections.abc import Iterator
from pathlib import Path

from embedded_cluster.base import paths, running

SIZE = 256 * 2**20
"""Bytes; a run of the drills has 80 MB at most, with three checkpoints."""
BALLAST = "ballast"


def seen(node: str = "n1") -> Path:
    """The folder of the cluster's shared volumes as a node sees it; the host does not see what is mounted there."""
    return Path("/proc") / str(running.pid(node)) / "root/share/rwx"


@contextlib.contextmanager
def small(claim: str) -> Iterator[Path]:
    """Give a claim's folder a file system of SIZE bytes while no pod uses it; it is empty, and gone afterwards."""
    folder = next(seen().glob(f"*_{claim}"))
    file, inside = paths.CLUSTER / "small.img", f"/share/rwx/{folder.name}"
    file.unlink(missing_ok=True)  # of a killed run, whose mount may still use it
    with file.open("wb") as image:
        image.truncate(SIZE)
    _run("mkfs.ext4", "-q", "-F", "-m", "0", str(file))
    device = _run("losetup", "--find", "--show", str(file)).strip()
    nodes = running.nodes()
    try:
        try:
            for node in nodes:
                _run(*running.enter(node, ["mount", device, inside]))
        finally:
            _run("losetup", "--detach", device)  # with its last mount, also where nobody unmounts it
        folder.chmod(0o777)
        yield folder
    finally:
        for node in nodes:
            subprocess.run(running.enter(node, ["umount", inside]), check=False, capture_output=True)
        file.unlink()


def fill(folder: Path) -> int:
    """Leave no byte of the volume free; return how many there were."""
    size, piece = 0, bytes(2**16)
    with (folder / BALLAST).open("ab", buffering=0) as ballast:
        while piece:
            try:
                size += ballast.write(piece)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                piece = piece[: len(piece) // 2]
    return size


def free(folder: Path) -> None:
    """Make room again."""
    (folder / BALLAST).unlink()


def _run(*argv: str) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout
