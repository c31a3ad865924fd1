"""Writes and reads OCI image layouts without any tool: a static binary needs one tar layer and two JSON documents.

Called by images.py (writes the component images) and image_store.py (reads layouts, writes the archives it imports).
Format: github.com/opencontainers/image-spec, image-layout.md; layers are uncompressed tar.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import re
import shutil
import tarfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from embedded_cluster.base import say

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}
CHUNK = 1 << 22
WANTED = re.compile(r"index\.json|oci-layout|blobs/sha256/[0-9a-f]{64}")


@dataclass(frozen=True)
class Recipe:
    """What a small image holds: files and links by their path in the image, and how it starts."""

    files: dict[str, Path]
    links: dict[str, str] = field(default_factory=dict)
    entrypoint: Sequence[str] = ()
    user: str = "65532:65532"

    def key(self) -> str:
        """Changes when the image would: paths, names, sizes and times of the files, links, entry point, user.

        Times in whole seconds: a copy of the cache keeps no more, and a program's name contains its hash.
        """
        files = sorted(self.files.items())
        stats = {at: (file.name, file.stat().st_size, int(file.stat().st_mtime)) for at, file in files}
        text = json.dumps([stats, sorted(self.links.items()), list(self.entrypoint), self.user])
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def architecture() -> str:
    """This machine's architecture in OCI terms."""
    return ARCHITECTURE.get(platform.machine(), platform.machine())


def _folders(names: Iterable[str]) -> list[str]:
    """Every parent folder of these paths, parents first."""
    return sorted({str(p).strip("/") for name in names for p in Path("/" + name).parents} - {""})


def _layer(recipe: Recipe, out: Path) -> None:
    """The one layer of `recipe` as a tar with fixed times and owners, so that equal inputs give equal digests."""
    with tarfile.open(out, "w", format=tarfile.USTAR_FORMAT) as tar:
        for name in sorted({*_folders([*recipe.files, *recipe.links]), "tmp"}):
            info = tarfile.TarInfo(name)
            info.type, info.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            tar.addfile(info)
        for name, file in sorted(recipe.files.items()):
            info = tarfile.TarInfo(name.strip("/"))
            info.size, info.mode = file.stat().st_size, 0o755 if os.access(file, os.X_OK) else 0o644
            with file.open("rb") as data:
                tar.addfile(info, data)
        for name, target in sorted(recipe.links.items()):
            info = tarfile.TarInfo(name.strip("/"))
            info.type, info.linkname = tarfile.SYMTYPE, target
            tar.addfile(info)


def _sha256(path: Path) -> str:
    with path.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


def _document(blobs: Path, content: Any, media: str) -> dict[str, Any]:
    """Store a JSON document as a blob and return its descriptor."""
    data = json.dumps(content, sort_keys=True).encode()
    digest = hashlib.sha256(data).hexdigest()
    (blobs / digest).write_bytes(data)
    return {"mediaType": media, "digest": f"sha256:{digest}", "size": len(data)}


def write(recipe: Recipe, layout: Path) -> str:
    """Write the image as an OCI layout into the empty folder `layout`; returns the manifest's digest."""
    blobs = layout / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    part = layout / "layer.part"
    _layer(recipe, part)
    digest, size = _sha256(part), part.stat().st_size
    part.replace(blobs / digest)
    config = {
        "architecture": architecture(),
        "os": "linux",
        "config": {
            "User": recipe.user,
            "Entrypoint": list(recipe.entrypoint),
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": _document(blobs, config, CONFIG),
        "layers": [{"mediaType": LAYER, "digest": f"sha256:{digest}", "size": size}],
    }
    descriptor = _document(blobs, manifest, MANIFEST)
    (layout / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [descriptor]}))
    (layout / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return str(descriptor["digest"])


def manifest_of(layout: Path, ref: str = "") -> dict[str, Any]:
    """The descriptor of the image in a layout: the only one, or the one named `ref`.

    Raises say.UserError when the folder is not a layout or has several images and none of that name.
    """
    try:
        index = json.loads((layout / "index.json").read_text())
    except (OSError, ValueError) as error:
        raise say.UserError(
            f"{layout}: not an OCI image layout ({error}); give a folder or archive in OCI format"
        ) from error
    entries: list[dict[str, Any]] = index.get("manifests", [])
    named = [entry for entry in entries if ref and ref in (entry.get("annotations") or {}).values()]
    if len(named or entries) != 1:
        raise say.UserError(f"{layout}/index.json: {len(entries)} images and not exactly one named '{ref}'")
    return dict((named or entries)[0])


def blobs_of(layout: Path, manifest: dict[str, Any]) -> list[str]:
    """Hex digests of everything one image is made of: manifest, configuration, layers."""
    own = str(manifest["digest"]).removeprefix("sha256:")
    document = json.loads((layout / "blobs" / "sha256" / own).read_text())
    if "layers" not in document:
        raise say.UserError(f"{layout}: {own[:12]} is a multi-platform index; give a layout of one platform")
    parts = [document["config"], *document["layers"]]
    return [own, *dict.fromkeys(str(part["digest"]).removeprefix("sha256:") for part in parts)]


def archive(out: Path, entries: dict[str, dict[str, Any]], blobs: list[Path]) -> None:
    """Write the archive that `ctr images import` reads: an index with one entry per reference, and these blobs."""
    manifests = [{**entry, "annotations": {"io.containerd.image.name": ref}} for ref, entry in sorted(entries.items())]
    documents = {
        "oci-layout": {"imageLayoutVersion": "1.0.0"},
        "index.json": {"schemaVersion": 2, "manifests": manifests},
    }
    with tarfile.open(out, "w", format=tarfile.GNU_FORMAT) as tar:
        for name, content in documents.items():
            data = json.dumps(content).encode()
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        for blob in blobs:
            tar.add(blob, f"blobs/sha256/{blob.name}", recursive=False)


def named(layout: Path) -> dict[str, dict[str, Any]]:
    """Reference -> descriptor of every named image of a layout (`ref.name` or containerd's own annotation)."""
    manifest_index = layout / "index.json"
    if not manifest_index.is_file():
        raise say.UserError(f"{layout}: no index.json; give an OCI image layout (buildah push IMAGE oci:FOLDER:NAME)")
    result: dict[str, dict[str, Any]] = {}
    for entry in json.loads(manifest_index.read_text()).get("manifests", []):
        notes = entry.get("annotations") or {}
        name = notes.get("io.containerd.image.name") or notes.get("org.opencontainers.image.ref.name") or ""
        if "/" in name:
            result[name] = entry
    if not result:
        raise say.UserError(f"{manifest_index}: no image has a full name (HOST/NAME:TAG) in its annotations")
    return result


def verify(layout: Path, manifest: dict[str, Any]) -> None:
    """Compare every blob of the image with its digest; raises say.UserError that names the first bad one."""
    for digest in blobs_of(layout, manifest):
        if _sha256(layout / "blobs" / "sha256" / digest) != digest:
            raise say.UserError(
                f"{layout}/blobs/sha256/{digest}: the content does not match the digest; write the image again"
            )


def extract(archive_file: Path, layout: Path) -> None:
    """Unpack an OCI archive: only its index, marker and blobs, whatever other members it has."""
    (layout / "blobs" / "sha256").mkdir(parents=True)
    with tarfile.open(archive_file) as tar:
        for member in tar:
            name = member.name.removeprefix("./")
            data = tar.extractfile(member) if member.isfile() and WANTED.fullmatch(name) else None
            if data is not None:
                with (layout / name).open("wb") as out:
                    shutil.copyfileobj(data, out, CHUNK)


def keep_only(layout: Path, ref: str) -> None:
    """Drop every image of a layout but the one named `ref`, and the blobs that no image uses any more."""
    manifest = manifest_of(layout, ref)
    part = layout / "index.json.part"
    part.write_text(json.dumps({"schemaVersion": 2, "manifests": [manifest]}))
    part.replace(layout / "index.json")
    used = set(blobs_of(layout, manifest))
    for blob in (layout / "blobs" / "sha256").iterdir():
        if blob.name not in used:
            blob.unlink()


def unpacked(layout: Path, manifest: dict[str, Any], store: Path) -> int:
    """Unpacked bytes of the layers that a content store lacks; a compressed one counts double (estimate)."""
    own = str(manifest["digest"]).removeprefix("sha256:")
    layers: list[dict[str, Any]] = json.loads((layout / "blobs" / "sha256" / own).read_text()).get("layers", [])
    lacking = [layer for layer in layers if not (store / str(layer["digest"]).removeprefix("sha256:")).exists()]
    return sum(int(layer["size"]) * (1 if layer["mediaType"].endswith("tar") else 2) for layer in lacking)
