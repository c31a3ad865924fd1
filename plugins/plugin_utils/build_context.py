"""What a build of the trainer image is made of: the same bytes, and so the same tag, for the same files."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from pathlib import Path

from ansible.errors import AnsibleActionFail

LEFT_OUT = {"__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache"}
DIGITS = 12


def files_of(root: Path, paths: list[str]) -> list[Path]:
    """Return all files below these paths of `root`, sorted; AnsibleActionFail names a path that is not there."""
    found: list[Path] = []
    for name in paths:
        path = root / name
        if not path.exists():
            raise AnsibleActionFail(
                f"{path}: no such file; the image is built from a checkout or the installed collection"
            )
        found += [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
    return sorted(each for each in found if not LEFT_OUT & set(each.relative_to(root).parts))


def packed(root: Path, paths: list[str]) -> bytes:
    """Return a tar.gz of these paths, independent of times, owners and umask."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for file in files_of(root, paths):
            entry = tarfile.TarInfo(str(file.relative_to(root)))
            entry.size, entry.mode = file.stat().st_size, 0o755 if file.stat().st_mode & 0o100 else 0o644
            with file.open("rb") as stream:
                archive.addfile(entry, stream)
    return gzip.compress(raw.getvalue(), mtime=0)


def tag(*parts: bytes) -> str:
    """Return the tag of an image that is made of these parts."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(hashlib.sha256(part).digest())
    return whole.hexdigest()[:DIGITS]
