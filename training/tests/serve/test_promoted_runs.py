"""Adapters of other runs on the volume: asked by the run's name while the server runs, each as it answers alone, or refused."""

import json
import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest
import torch
from chat_servers import running
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from slow import but_the_first
from tiny import phase_from
from trainlab.config import Phase
from trainlab.serve import client as our_client
from trainlab.serve import inference_engine
from trainlab.serve.generation import Options, Row
from transformers import AutoModelForCausalLM

OTHERS = [f"demo-{number:08x}" for number in range(40)]
LATE, KEPT, RANK = "demo-late", 41, 4
QUESTION: list[Any] = [{"role": "user", "content": "Is the water safe?"}]
PROMOTED = {"promoted": True, "reasons": ["The gain is real."]}
WEIGHTS, CONFIG = "lora_adapter/adapter_model.safetensors", "lora_adapter/adapter_config.json"


def loaded(engine: Any) -> list[str]:
    """Return the other runs whose adapters are in memory, the one asked longest ago first."""
    return list(engine._others._loaded)


def written(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def adapted(values: dict[str, Any], prompt: str = "Be brief.") -> Phase:
    data = {**values["data"], "system_prompt": prompt}
    own = {**values, "data": data, "lora": {"rank": RANK}, "serve": {**values["serve"], "max_adapters": KEPT}}
    return phase_from({key: value for key, value in own.items() if key != "unfreeze"})


@pytest.fixture(scope="module")
def made(tiny_model: Path, phase_dict: dict[str, Any]) -> Callable[..., Path]:
    """Write a run with an adapter of its own: drawn by a seed, with the gate's decision last."""
    settings = LoraConfig(r=RANK, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM", init_lora_weights=False)
    model: Any = get_peft_model(AutoModelForCausalLM.from_pretrained(tiny_model), settings)
    shapes = {key.replace(".default", ""): value.shape for key, value in model.named_parameters() if "lora_" in key}

    def make(folder: Path, seed: int, gate: dict[str, Any] | None = PROMOTED, prompt: str = "Be brief.") -> Path:
        draw = torch.Generator().manual_seed(seed)
        tensors = {key: torch.randn(shape, generator=draw) for key, shape in shapes.items()}
        settings.save_pretrained(folder / "lora_adapter")
        save_file(tensors, folder / WEIGHTS)
        written(folder / "phase.json", {"phase": adapted(phase_dict, prompt).model_dump(mode="json")})
        written(folder / "manifest.json", {"model": {"source": "pvc:tiny", "sha256": "ab" * 32}})
        if gate:
            written(folder / "gate.json", gate)
        return folder

    return make


@pytest.fixture(scope="module")
def runs(made: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for seed, name in enumerate(("demo-own", *OTHERS)):
        made(folder / name, seed)
    return folder


@pytest.fixture(scope="module")
def engine(runs: Path, tiny_model: Path, phase_dict: dict[str, Any]) -> inference_engine.Engine:
    return inference_engine.load(adapted(phase_dict), tiny_model.parent, runs / "demo-own")


@pytest.fixture(scope="module")
def url(engine: inference_engine.Engine, runs: Path, phase_dict: dict[str, Any]) -> Iterator[str]:
    with running(adapted(phase_dict), runs / "demo-own", engine) as address:
        yield address


@pytest.fixture(scope="module")
def client(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)


def ask(client: openai.OpenAI, model: str, tokens: int = 12) -> str:
    reply = client.chat.completions.create(model=model, messages=QUESTION, max_tokens=tokens)
    return str(reply.choices[0].message.content)


def alone(run: Path, tiny_model: Path) -> str:
    """What the server of this run alone answers as tuned."""
    phase = phase_from(json.loads((run / "phase.json").read_text())["phase"])
    server = inference_engine.load(phase, tiny_model.parent, run)
    said: list[str] = []
    row = Row(
        server.chat_ids("tuned", QUESTION),
        Options(12),
        said.append,
        lambda _: None,
        threading.Event(),
    )
    server.generate("tuned", [row])
    return "".join(said)


@pytest.mark.slow
def test_a_run_that_is_promoted_now_is_answered_now(
    client: openai.OpenAI,
    engine: inference_engine.Engine,
    made: Callable[..., Path],
    runs: Path,
    tiny_model: Path,
    url: str,
) -> None:
    before = {name: ask(client, name) for name in ("base", "tuned", *OTHERS)}
    assert len(set(before.values())) == len(before) and loaded(engine) == OTHERS
    late = made(runs / LATE, 99, gate=None, prompt="Be late.")
    over, answered = threading.Event(), []

    def visit(names: tuple[str, ...]) -> None:
        while not over.is_set():
            for name in names:
                assert ask(client, name) == before[name]
                answered.append(time.monotonic())

    visitors = [threading.Thread(target=visit, args=(names,)) for names in (("base",), ("tuned", *OTHERS[:5]))]
    for visitor in visitors:
        visitor.start()
    try:
        with pytest.raises(openai.ConflictError, match=f"run {LATE}: its gate has not decided yet"):
            ask(client, LATE)
        written(late / "gate.json", PROMOTED)
        began = time.monotonic()
        said = ask(client, LATE)
        ended = time.monotonic()
    finally:
        over.set()
        for visitor in visitors:
            visitor.join(20)
    assert ended - began < 10
    assert [when for when in answered if began < when < ended], "others were answered meanwhile"
    assert said == alone(late, tiny_model) and said not in before.values()
    assert LATE in loaded(engine)
    listed = {model.id: model for model in client.models.list()}
    assert list(listed) == ["base", "tuned", *sorted([*OTHERS, LATE, "demo-own"])]
    assert listed[LATE].parent == "base"
    assert our_client.models(url) == ["base", "tuned"], "who asks all does not load forty adapters"


def edited(run: Path, name: str, **changes: Any) -> None:
    written(run / name, json.loads((run / name).read_text()) | changes)


def cut(run: Path) -> None:
    path = run / WEIGHTS
    path.write_bytes(path.read_bytes()[:-100])


def stranger(run: Path) -> None:
    save_file({**load_file(run / WEIGHTS), "base_model.model.lm_head.weight": torch.zeros(2, 2)}, run / WEIGHTS)


def partial(run: Path) -> None:
    tensors = load_file(run / WEIGHTS)
    tensors.pop(min(tensors))
    save_file(tensors, run / WEIGHTS)


def narrow(run: Path) -> None:
    save_file({key: value[:, :2].clone() for key, value in load_file(run / WEIGHTS).items()}, run / WEIGHTS)


def pickled(run: Path) -> None:
    (run / WEIGHTS).rename(run / "lora_adapter" / "adapter_model.bin")


def linked(run: Path) -> None:
    away = shutil.move(run / "lora_adapter", run.parent.parent / f"away-{time.monotonic_ns()}")
    (run / "lora_adapter").symlink_to(away)


def circle(run: Path) -> None:
    (run / "gate.json").unlink()
    (run / "gate.json").symlink_to(run / "gate.json")


REFUSED: dict[str, tuple[Callable[[Path], Any], int, str]] = {
    "base": (
        lambda run: edited(run, "manifest.json", model={"source": "pvc:tiny", "sha256": "cd" * 32}),
        422,
        r"its base is pvc:tiny \(sha256 cdcdcdcdcdcd\), this server's pvc:tiny \(sha256 abababababab\); ask a server of",
    ),
    "rank": (
        lambda run: edited(run, CONFIG, r=16),
        422,
        "its adapter is of rank 16, this server takes at most 8; serve a run",
    ),
    "dora": (
        lambda run: edited(run, CONFIG, use_dora=True),
        422,
        "use_dora is True; this server takes plain LoRA; train",
    ),
    "cut": (cut, 422, "adapter_model.safetensors is half written or no safetensors file .*; train the run again"),
    "stranger": (stranger, 422, "has a tensor that this base's adapters lack, base_model.model.lm_head.weight; train"),
    "partial": (
        partial,
        422,
        "lacks 1 tensors, such as base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight",
    ),
    "shape": (narrow, 422, r"is of shape \(4, 2\), this base needs \(4, 32\); train the run again"),
    "pickle": (pickled, 422, "adapter_model.bin is not read, as a pickle can run code; train it again, or convert"),
    "link": (linked, 422, "adapter_config.json is a link to somewhere else; copy the run itself"),
    "whole": (lambda run: edited(run, "phase.json", phase={"recipe": "cpt"}), 422, "phase"),
    "gate": (
        lambda run: written(run / "gate.json", {"promoted": False, "reasons": ["The gain is not real."]}),
        409,
        "its gate did not promote it: The gain is not real; train it again, or ask another run",
    ),
    "odd-gate": (lambda run: written(run / "gate.json", {"promoted": "yes"}), 422, "has no promoted: true or false"),
    "no-reasons": (
        lambda run: written(run / "gate.json", {"promoted": False, "reasons": None}),
        422,
        "gate.json: has no list of reasons; regenerate it with",
    ),
    "deep-gate": (lambda run: (run / "gate.json").write_text("[" * 100_000), 422, "cannot be read"),
    "round-link": (circle, 422, "it cannot be read .*; ask one that GET"),
    "modules": (
        lambda run: edited(run, CONFIG, target_modules=5),
        422,
        "target_modules is 5, no list of names of layers",
    ),
    "no-modules": (
        lambda run: edited(run, CONFIG, target_modules=None),
        422,
        "target_modules is None, no list of names",
    ),
    "pattern": (lambda run: edited(run, CONFIG, target_modules="(a+)+$"), 422, "no list of names of layers; train"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_does_not_fit_is_refused_by_its_name(
    kind: str, client: openai.OpenAI, made: Callable[..., Path], runs: Path, engine: inference_engine.Engine
) -> None:
    spoil, status, words = REFUSED[kind]
    run = made(runs / f"bad-{kind}", 7)
    assert run.name in engine.others()
    spoil(run)
    try:
        with pytest.raises(openai.APIStatusError, match=words) as refused:
            ask(client, run.name)
        assert refused.value.status_code == status and f"run {run.name}: " in refused.value.message
        assert run.name not in [model.id for model in client.models.list()] and run.name not in loaded(engine)
    finally:
        shutil.rmtree(run)


@pytest.mark.parametrize(
    "name", ["../runs/demo-own", "/etc", "..", "demo-own/../demo-own", "Demo", "", "linked", "nothing", "x" * 999]
)
def test_a_name_is_one_folder_of_the_volume(name: str, client: openai.OpenAI, runs: Path) -> None:
    if name == "linked":
        (runs / name).symlink_to(runs / "demo-own")
    with pytest.raises(openai.APIStatusError) as refused:
        ask(client, name)
    if name == "linked":
        (runs / name).unlink()
        assert "is a link to somewhere else" in refused.value.message
    else:
        assert refused.value.status_code == 404 and "what GET /v1/models lists" in refused.value.message
        assert len(refused.value.message) < 400


def test_the_adapter_asked_longest_ago_makes_room(
    made: Callable[..., Path], tiny_model: Path, phase_dict: dict[str, Any], tmp_path: Path
) -> None:
    for seed, name in enumerate(("own", "a", "b", "c")):
        made(tmp_path / name, seed)
    phase = adapted(phase_dict)
    small = phase.model_copy(update={"serve": phase.serve.model_copy(update={"max_adapters": 2})})
    engine = inference_engine.load(small, tiny_model.parent, tmp_path / "own")

    def said(name: str) -> str:
        pieces: list[str] = []
        engine.admit(name)
        prompt = engine.chat_ids(name, QUESTION)
        engine.generate(name, [Row(prompt, Options(12), pieces.append, lambda _: None, threading.Event())])
        return "".join(pieces)

    first = {name: said(name) for name in ("a", "b", "a", "c")}
    assert loaded(engine) == ["a", "c"] and len(set(first.values())) == 3
    assert said("b") == first["b"] and loaded(engine) == ["c", "b"]
    made(tmp_path / "b", 50)  # trained again
    assert said("b") == alone(tmp_path / "b", tiny_model) != first["b"] and loaded(engine) == ["c", "b"]
    edited(tmp_path / "b", "gate.json", promoted=False)
    with pytest.raises(Exception, match="its gate did not promote it"):
        said("b")
    off = phase.model_copy(update={"serve": phase.serve.model_copy(update={"max_adapters": 0})})
    with pytest.raises(Exception, match="model 'a' does not exist; this server has base, tuned"):
        inference_engine.load(off, tiny_model.parent, tmp_path / "own").admit("a")


@pytest.mark.slow
@pytest.mark.parametrize("answers", but_the_first([60, 1000]))
def test_answers_are_each_ones_own_while_adapters_load_and_go(
    answers: int, runs: Path, tiny_model: Path, phase_dict: dict[str, Any]
) -> None:
    """A room that asks at once, with room for eight of its forty adapters: each answer is the one that the run gives alone."""
    phase = adapted(phase_dict)
    small = phase.model_copy(update={"serve": phase.serve.model_copy(update={"max_adapters": 8})})
    own = {name: alone(runs / name, tiny_model) for name in OTHERS}
    assert len(set(own.values())) > len(own) // 2, "adapters that answer alike show nothing"
    engine = inference_engine.load(small, tiny_model.parent, runs / "demo-own")
    chance = random.Random(0)
    asked = [chance.choice(OTHERS) for _ in range(answers)]
    with running(small, runs / "demo-own", engine) as address:
        # more retries than places in the line: a full one answers 429
        room = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=20)
        with ThreadPoolExecutor(16) as phones:
            told = list(phones.map(lambda name: ask(room, name), asked))
    wrong = [name for name, text in zip(asked, told, strict=True) if text != own[name]]
    assert not wrong
    assert len(loaded(engine)) == 8
    assert next(engine._others._numbers) > answers / 10, "adapters came and went"
