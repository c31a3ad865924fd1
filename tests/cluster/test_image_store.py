"""The image store without containerd; with it, it is in every test of tests/e2e."""

from contextlib import nullcontext
from pathlib import Path

import pytest
from embedded_cluster.base.say import UserError
from embedded_cluster.containers import image_store


def test_what_a_killed_import_left_is_removed_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[Path]] = []

    def announce(*_: object) -> None:
        seen.append(sorted(tmp_path.glob("import-*")))

    for name, stand_in in {"folder": lambda: tmp_path, "lock": nullcontext, "containerd": nullcontext}.items():
        monkeypatch.setattr(image_store, name, stand_in)
    monkeypatch.setattr(image_store, "announce", announce)
    (tmp_path / image_store.ARCHIVE.format("4711-1")).write_bytes(bytes(10240))
    image_store.add([image_store.Source(tmp_path, {"digest": "sha256:a"}, ("one:1",))])
    assert seen == [[]] and image_store.refs() == {"one:1": {"digest": "sha256:a", "recipe": ""}}


def test_why_containerd_ended_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A damaged store, no overlay, a full disk: its own end names its log, which no later error may hide."""

    def refused(*_: object, **__: object) -> str:
        raise UserError("ctr: no answer")

    monkeypatch.setattr(image_store, "folder", lambda: tmp_path)
    monkeypatch.setattr(image_store.rootfs, "base", lambda: tmp_path)
    monkeypatch.setattr(image_store.rootfs, "command", lambda *_: ["sh", "-c", "exit 3"])
    monkeypatch.setattr(image_store.rootfs, "run", refused)
    with (
        pytest.raises(UserError, match=r"containerd exited with 3; its log is .*containerd\.log"),
        image_store.containerd(),
    ):
        pass
