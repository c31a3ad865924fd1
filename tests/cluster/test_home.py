"""demo-down CACHE=1 removes what trainlab made, and nothing else, whatever TRAINLAB_HOME is."""

from pathlib import Path

import pytest
from embedded_cluster.base import home, paths
from embedded_cluster.base.say import UserError


@pytest.fixture
def somebody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's home directory with work in it, as TRAINLAB_HOME."""
    monkeypatch.setattr(paths, "HOME", tmp_path)
    monkeypatch.setattr(paths, "CACHE", tmp_path / "cache")
    (tmp_path / "thesis.tex").write_text("years of work")
    (tmp_path / "pictures").mkdir()
    return tmp_path


def test_a_home_directory_keeps_all_that_was_there(somebody: Path) -> None:
    home.claim()
    (somebody / "cache" / "bin").mkdir()
    assert home.remove()
    assert sorted(path.name for path in somebody.iterdir()) == ["pictures", "thesis.tex"]
    assert not home.remove()


def test_a_cache_of_somebody_else_is_refused_and_kept(somebody: Path) -> None:
    (somebody / "cache").mkdir()
    (somebody / "cache" / "theirs").write_text("x")
    with pytest.raises(
        UserError, match="cache exists and was not made by trainlab: set TRAINLAB_HOME to another folder"
    ):
        home.claim()
    home.remove()
    assert (somebody / "cache" / "theirs").read_text() == "x"


def test_a_folder_that_was_made_goes_with_its_last_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "HOME", tmp_path / "deep" / "trainlab")
    monkeypatch.setattr(paths, "CACHE", tmp_path / "deep" / "trainlab" / "cache")
    home.claim()
    home.claim()
    home.remove()
    assert not (tmp_path / "deep" / "trainlab").exists()


def test_a_file_that_a_person_put_there_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "HOME", tmp_path / "trainlab")
    monkeypatch.setattr(paths, "CACHE", tmp_path / "trainlab" / "cache")
    home.claim()
    (tmp_path / "trainlab" / "notes").write_text("x")
    home.remove()
    assert (tmp_path / "trainlab" / "notes").exists() and not (tmp_path / "trainlab" / "cache").exists()
