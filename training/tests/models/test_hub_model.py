"""Models from a hub: a token and a license gate, a redirect, a mirror, and what goes wrong on the way, by the real client."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from checkout import SOURCES
from hub_server import Hub, serving
from huggingface_hub import constants, file_download
from trainlab import files
from trainlab.errors import UserError
from trainlab.models import fetch

REVISION = "1" * 40
SOURCE = f"hf:own/model@{REVISION}"
WEIGHTS = bytes(range(256)) * 40
CARD = "---\nlicense: gemma\n---\n# A model\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A hub's folder with one model."""
    folder = tmp_path / "hub" / "own" / "model"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"model_type": "llama"}', encoding="utf-8")
    (folder / "README.md").write_text(CARD, encoding="utf-8")
    (folder / "model.safetensors").write_bytes(WEIGHTS)
    (folder / "pytorch_model.bin").write_bytes(b"the same weights, to be executed")
    return tmp_path / "hub"


def point_to(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the client of this process, which has read HF_ENDPOINT already, ask `hub`."""
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    template = f"{hub.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(file_download, "time", SimpleNamespace(sleep=lambda seconds: None))  # it waits between attempts


@pytest.fixture
def hub(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with serving(root) as found:
        point_to(found, monkeypatch)
        yield found


def refused(models: Path, source: str = SOURCE) -> str:
    """Return the one sentence with which a fetch ends; nothing of a model is there then."""
    with pytest.raises(UserError) as caught:
        fetch.fetch(source, models)
    sentence = str(caught.value)
    assert "\n" not in sentence and sentence.startswith(f"phase.model.source is {source}: ")
    assert not fetch.model_dir(source, models).exists()
    return sentence


def test_a_model_is_whole_and_nothing_but_the_model(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.token = "hf_right"
    monkeypatch.setenv("HF_TOKEN", "hf_right")
    target = fetch.fetch(SOURCE, tmp_path / "models")
    record = files.read_json(target / "source.json")
    assert [one["name"] for one in record["files"]] == ["README.md", "config.json", "model.safetensors"]
    assert record["license"] == "gemma" and (target / "model.safetensors").read_bytes() == WEIGHTS
    assert sorted(one.name for one in target.iterdir()) == [*(one["name"] for one in record["files"]), "source.json"]
    assert any("/storage/own/model/model.safetensors" in one for one in hub.seen)
    assert hub.given == []  # the token stays with the hub
    asked = len(hub.seen)
    assert fetch.fetch(SOURCE, tmp_path / "models") == target and len(hub.seen) == asked
    again = fetch.fetch(SOURCE, tmp_path / "others")
    assert files.read_json(again / "source.json")["sha256"] == record["sha256"]  # or a resumed run would be refused


def test_a_gate_names_its_license_and_the_token(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.token = "hf_right"
    without = refused(tmp_path / "models")
    assert f"without a token (401): accept the license of a gated model at {hub.url}/own/model" in without
    assert "the Secret that site.hfTokenSecret names (without a cluster: HF_TOKEN), or correct the name" in without
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    wrong = refused(tmp_path / "models")
    assert "with the token of HF_TOKEN (401): " in wrong and "hf_wrong" not in wrong
    hub.token = ""
    unknown = refused(tmp_path / "models", f"hf:own/modle@{REVISION}")
    assert "(404): " in unknown and "correct the name" in unknown


def test_a_revision_that_is_not_there(hub: Hub, tmp_path: Path) -> None:
    hub.revisions = {"2" * 40}
    assert "has no such revision; take the commit from" in refused(tmp_path / "models")


def test_a_download_that_is_cut_off_goes_on_where_it_was(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1000)  # it keeps whole chunks, of 10 MB
    hub.cut, hub.cuts = {"model.safetensors": 1000}, 2
    target = fetch.fetch(SOURCE, tmp_path / "models")
    assert (target / "model.safetensors").read_bytes() == WEIGHTS
    asked = [one for one in hub.seen if one.startswith("GET /storage")]
    assert [one.partition("bytes=")[2] for one in asked] == ["", "1000-", "2000-"]


def test_a_download_that_never_ends_is_a_sentence_and_its_whole_files_stay(hub: Hub, tmp_path: Path) -> None:
    hub.cut, hub.cuts = {"model.safetensors": 0}, 1000
    told = refused(tmp_path / "models")
    assert "cannot be fetched: " in told and "a mirror: HF_ENDPOINT" in told
    assert "the next attempt goes on with the files that are missing" in told
    hub.cuts = 0
    hub.seen.clear()
    target = fetch.fetch(SOURCE, tmp_path / "models")
    assert (target / "model.safetensors").read_bytes() == WEIGHTS
    assert [one.split("/")[-1] for one in hub.seen if one.startswith("GET /") and "api" not in one] == [
        "model.safetensors"
    ]
    assert [one.name for one in (tmp_path / "models").iterdir() if one.is_dir()] == [target.name]


def test_content_that_is_not_what_the_hub_lists(hub: Hub, tmp_path: Path) -> None:
    """The client compares sizes alone."""
    hub.broken = {"model.safetensors", "config.json"}
    told = refused(tmp_path / "models")
    assert (
        "config.json, model.safetensors: not the content whose digest the hub lists" in told and "HF_ENDPOINT" in told
    )
    hub.broken = set()
    target = fetch.fetch(SOURCE, tmp_path / "models")  # fetches them anew
    assert (target / "model.safetensors").read_bytes() == WEIGHTS


def test_a_mirror_that_is_another_website(hub: Hub, tmp_path: Path) -> None:
    hub.strange = True
    told = refused(tmp_path / "models")
    assert "a mirror: HF_ENDPOINT, in a release site.env" in told


def test_a_mirror_is_asked_instead_of_the_hub(root: Path, tmp_path: Path, phase_dict: dict[str, Any]) -> None:
    phase = {**phase_dict, "model": {"source": SOURCE, "dtype": "float32"}}
    (tmp_path / "phase.json").write_text(json.dumps({"phase": phase}), encoding="utf-8")
    line = [sys.executable, "-m", "trainlab.cli", "fetch", str(tmp_path / "phase.json")]
    with serving(root, token="hf_right") as mirror:
        more = {"PYTHONPATH": str(SOURCES), "HF_ENDPOINT": mirror.url, "HF_HOME": str(tmp_path / "home")}
        env = {**os.environ, **more, "HF_TOKEN": "hf_right"}
        done = subprocess.run([*line, "--models", str(tmp_path / "models")], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (fetch.model_dir(SOURCE, tmp_path / "models") / "model.safetensors").read_bytes() == WEIGHTS
