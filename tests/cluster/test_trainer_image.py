"""Which trainer image a command builds for the embedded cluster, and which ones stay; buildah and the node store are left out."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from embedded_cluster.base import paths
from embedded_cluster.builds import pyenv, rootfs
from embedded_cluster.containers import images
from embedded_cluster.tasks import trainer_image


@pytest.mark.parametrize("tracking", [False, True])
def test_the_image_with_trackers_and_the_one_without_stay_both(
    tracking: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Or each playbook that finds the image would build one of them again."""
    built: list[tuple[str, bool]] = []
    kept: list[str] = []

    def build_stage(_target: str, ref: str, **options: Any) -> None:
        built.append((ref, options["tracking"]))

    monkeypatch.setattr(pyenv, "cuda", lambda: False)
    monkeypatch.setattr(rootfs, "folder", lambda *_: tmp_path)
    monkeypatch.setattr(rootfs, "versions", lambda *_: "12")
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
    monkeypatch.setattr(trainer_image, "packages", lambda _gpu: "localhost/trainlab-packages:1")
    monkeypatch.setattr(trainer_image, "build_stage", build_stage)
    monkeypatch.setattr(images, "exclusive_build", contextlib.nullcontext)
    monkeypatch.setattr(images, "has_image", lambda _ref: None)
    monkeypatch.setattr(images, "export", lambda *_: None)
    monkeypatch.setattr(images, "import_oci", lambda *_: True)
    monkeypatch.setattr(images, "forget_older", lambda *refs: kept.extend(refs))
    trainer_image.build(tracking=tracking)
    ref = json.loads(capsys.readouterr().out.splitlines()[-1])["image"]
    assert built == [(ref, tracking)] and ref.endswith("-tracking") == tracking
    plain = ref.removesuffix("-tracking")
    assert {plain, f"{plain}-tracking"} < set(kept)


def test_an_image_that_is_there_is_loaded_from_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The layout is of who built last: another checkout, another variant of the image."""
    loaded: list[str] = []
    monkeypatch.setattr(pyenv, "cuda", lambda: False)
    monkeypatch.setattr(rootfs, "folder", lambda *_: tmp_path)
    monkeypatch.setattr(rootfs, "versions", lambda *_: "12")
    monkeypatch.setattr(images, "exclusive_build", contextlib.nullcontext)
    monkeypatch.setattr(images, "has_image", lambda _ref: "sha256:1")
    monkeypatch.setattr(images, "load_stored", lambda ref: bool(loaded.append(ref)))
    monkeypatch.setattr(images, "import_oci", lambda *_: pytest.fail("reads the layout"))
    trainer_image.build()
    outcome = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert outcome == {"image": loaded[0], "digest": "sha256:1", "changed": False} and len(loaded) == 1


def test_what_a_killed_build_was_writing_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "CACHE", tmp_path)
    (tmp_path / "tmp" / "images" / "storage123").mkdir(parents=True)
    with images.exclusive_build():
        assert not (tmp_path / "tmp" / "images" / "storage123").exists()
