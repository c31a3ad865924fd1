"""Image layouts: a damaged blob is named, and an image is another one when a file of it is."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from embedded_cluster.base import locks
from embedded_cluster.base.say import UserError
from embedded_cluster.containers import oci


def _blob(layout: Path, content: bytes) -> str:
    digest = hashlib.sha256(content).hexdigest()
    (layout / "blobs" / "sha256").mkdir(parents=True, exist_ok=True)
    (layout / "blobs" / "sha256" / digest).write_bytes(content)
    return f"sha256:{digest}"


def _layout(folder: Path) -> dict[str, Any]:
    parts = {"config": {"digest": _blob(folder, b"{}")}, "layers": [{"digest": _blob(folder, b"a layer")}]}
    return {"digest": _blob(folder, json.dumps(parts).encode())}


@pytest.mark.parametrize("part", ["config", "layer"])
def test_a_blob_with_another_content_is_named(tmp_path: Path, part: str) -> None:
    manifest = _layout(tmp_path)
    oci.verify(tmp_path, manifest)
    blob = tmp_path / "blobs" / "sha256" / hashlib.sha256(b"{}" if part == "config" else b"a layer").hexdigest()
    blob.write_bytes(b"[]" if part == "config" else b"a Layer")
    with pytest.raises(UserError, match=rf"{blob}: the content does not match the digest; write the image again"):
        oci.verify(tmp_path, manifest)


def test_a_file_of_another_size_makes_another_image(tmp_path: Path) -> None:
    """At the same time: a build that is repeated within a second."""
    program = tmp_path / "program"
    program.write_text("one")
    os.utime(program, (1, 1))
    image = oci.Recipe({"/program": program})
    before = image.key()
    assert image.key() == before
    program.write_text("three")
    os.utime(program, (1, 1))
    assert image.key() != before


def test_somebodys_file_with_the_name_of_a_lock_is_no_lock(tmp_path: Path) -> None:
    for text in ("", "notes", "12", "1. buy a lock"):
        (tmp_path / "lock").write_text(text)
        assert not locks.written(tmp_path / "lock"), text
    (tmp_path / "lock").unlink()
    with locks.waiting(tmp_path / "lock", "never"):
        assert locks.written(tmp_path / "lock")
