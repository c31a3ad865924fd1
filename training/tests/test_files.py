"""Files are whole or not there."""

import os
from pathlib import Path

import pytest
from trainlab import files
from trainlab.errors import UserError


def test_write_json_replaces_and_leaves_no_scrap(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b.json"
    files.write_json(path, {"x": 1})
    files.write_json(path, {"x": 2})
    assert files.read_json(path) == {"x": 2} and list(path.parent.iterdir()) == [path]
    with pytest.raises(TypeError):
        files.write_json(path, object())
    assert files.read_json(path) == {"x": 2} and list(path.parent.iterdir()) == [path]


def test_read_json_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(UserError, match=r"x.json: cannot be read as JSON"):
        files.read_json(tmp_path / "x.json")


def test_whole_folder_keeps_the_old_one_when_the_block_fails(tmp_path: Path) -> None:
    target = tmp_path / "model"
    with files.atomic_folder(target) as work:
        (work / "a").write_text("1")
        (work / "a").chmod(0o600)
    assert (target / "a").stat().st_mode & 0o777 == 0o644
    with pytest.raises(RuntimeError), files.atomic_folder(target) as work:
        (work / "a").write_text("2")
        raise RuntimeError
    assert (target / "a").read_text() == "1" and list(tmp_path.iterdir()) == [target]


def test_a_folder_is_on_the_volume_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that is lost afterwards would leave empty files below a name that means complete."""
    synced: list[tuple[str, bool]] = []
    real, target = os.fsync, tmp_path / "model"

    def fsync(number: int) -> None:
        synced.append((Path(f"/proc/self/fd/{number}").readlink().name, target.exists()))
        real(number)

    monkeypatch.setattr(os, "fsync", fsync)
    with files.atomic_folder(target) as work:
        (work / "a").write_text("1")
    assert ("a", False) in synced and synced[-1] == (tmp_path.name, True)


def test_what_a_kill_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    for name in (".model.ab12_xyz", ".model.part", ".model.lock", "model", ".model.5-0.part", ".other.ab12_xyz"):
        (tmp_path / name).mkdir()
    files.remove_leftovers(tmp_path, "model")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [".model.part", ".model.lock", "model", ".model.5-0.part", ".other.ab12_xyz"]
    )
    files.remove_leftovers(tmp_path)
    assert not (tmp_path / ".other.ab12_xyz").exists() and (tmp_path / ".model.part").exists()


def test_folder_digest_covers_names_and_contents(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    first = files.folder_sha256(tmp_path)
    (tmp_path / "a").rename(tmp_path / "b")
    assert files.folder_sha256(tmp_path) != first
