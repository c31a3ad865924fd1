"""The inputs of a build of the trainer image: the same bytes, and so the same tag, for the same files."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import re
import tarfile
from pathlib import Path

from ansible.errors import AnsibleActionFail

LEFT_OUT = {"__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache"}
DIGITS = 12
ARCHIVE = "context.tar.gz"
CONFIG_MAP_BYTES = 1 << 20
"""Source: the API server's limit for all data of a ConfigMap (MaxSecretSize of k8s.io/api/core/v1)."""


def files_of(root: Path, paths: list[str]) -> list[Path]:
    """Return all files below these paths of `root`, sorted; AnsibleActionFail names a path that does not exist."""
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


def inlined(containerfile: str) -> str:
    """Return a Containerfile that takes what it copies out of an archive, the one file of an inline source.

    ADD unpacks a local archive: the image of the first FROM gets it in a stage of its own, from which each COPY of the
    build context then copies. AnsibleActionFail for one without a FROM.
    """
    before, mark, after = containerfile.partition("\nFROM ")
    if not mark:
        raise AnsibleActionFail("the Containerfile has no FROM; it cannot be built from an inline source")
    base = after.split(maxsplit=1)[0]
    stage = f"\nFROM {base} AS context\nUSER 0\nADD {ARCHIVE} /context/\n"
    copied = re.sub(r"(?m)^COPY (?!--)(.+) (\S+)$", _from_context, after)
    return f"{before}{stage}{mark}{copied}"


def _from_context(copy: re.Match[str]) -> str:
    sources = " ".join(f"/context/{source}" for source in copy[1].split())
    return f"COPY --from=context {sources} {copy[2]}"


def carried(name: str, archive: bytes) -> dict[str, str]:
    """Return the archive as the binaryData of ConfigMap `name`; AnsibleActionFail if one cannot hold it."""
    text = base64.b64encode(archive).decode()
    if len(text) > CONFIG_MAP_BYTES:
        raise AnsibleActionFail(
            f"the sources take {len(text) / 1024:.0f} KiB, a ConfigMap ({name}) holds {CONFIG_MAP_BYTES // 1024}; set trainlab_image_source "
            "to checkout or git"
        )
    return {ARCHIVE: text}


def tag(*parts: bytes) -> str:
    """Return the tag of an image built from these parts."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(hashlib.sha256(part).digest())
    return whole.hexdigest()[:DIGITS]
