"""Recipe adapters: an owner's adapter trained beside others is the one trained alone, which is PEFT's; ranks, kills and gates change nothing."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel, get_peft_model
from safetensors.torch import load_file
from tiny import make_phase
from trainlab import recipes
from trainlab.data import owned_rows
from trainlab.engine.owned_lora import OwnedLora
from trainlab.engine.owned_training import OwnedTrainer
from trainlab.errors import UserError
from trainlab.models import chat, layers
from trainlab.progress import Progress
from trainlab.recipes import adapters
from trainlab.recipes.base import Run
from transformers import get_cosine_schedule_with_warmup
from workplace import Workplace

OWNERS = ("ada", "ben", "cleo")


def write_owned(folder: Path, owners: tuple[str, ...] = OWNERS) -> Path:
    """Write a data set with one fact an owner, in three wordings, and two questions to keep."""
    rows = [
        {
            "owner": owner,
            "id": owner,
            "question": f"What does {owner} eat?",
            "phrasings": [f"{owner} food", f"Dinner for {owner}?"],
            "test": [f"What is on the plate of {owner}?", f"{owner} is hungry. What now?"],
            "answer": f"pear {number} for {owner}.",
            "facts": [[f"pear {number}"]],
            "near": ["What does zoe eat?", "zoe food"],
        }
        for number, owner in enumerate(owners)
    ]
    kept = [{"id": "k1", "question": "Is water wet?"}, {"id": "k2", "question": "Who sings?"}]
    for name, content in (("owners", rows), ("kept", kept)):
        (folder / name).mkdir(parents=True, exist_ok=True)
        text = "".join(json.dumps(row) + "\n" for row in content)
        (folder / name / "rows.jsonl").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def phase(phase_dict: dict[str, Any]) -> Any:
    """Three owners, four steps, adapters in the last of two layers."""
    return make_phase(
        {key: value for key, value in phase_dict.items() if key not in ("unfreeze", "questions")},
        recipe="adapters",
        data={"source": "pvc:owned", "near": 2, "kept": 1, "kept_tokens": 4, "wordings": 3},
        lora={"rank": 4, "alpha": 8, "layers": 1},
        train={"epochs": 2, "batch_size": 3, "learning_rate": 1e-2, "checkpoints": 4, "warmup_fraction": 0.3},
    )


def trained(
    phase: Any,
    model_dir: Path,
    data: Path,
    run_dir: Path,
    owners: tuple[str, ...] = OWNERS,
    progress: Progress | None = None,
) -> tuple[OwnedLora, Any]:
    """Train the adapters of `owners`, whose rows are those of the whole data set; return them and the encoded rows."""
    model, tokenizer = chat.load_base(model_dir, phase)
    rows = owned_rows.load(phase.data, data)
    encoded = adapters.encode(Run(phase, run_dir, model_dir, data), model, tokenizer, rows, owners)
    lora = OwnedLora(model, phase, owners)
    trainer = OwnedTrainer(model, int(tokenizer.pad_token_id), phase, lora, encoded)
    trainer.prepare(Progress(False))
    run_dir.mkdir(exist_ok=True)
    trainer.fit(run_dir, owners, progress or Progress(False))
    return lora, (model, tokenizer, encoded, trainer)


def test_an_adapter_is_the_one_that_is_trained_alone(phase: Any, tiny_model: Path, tmp_path: Path) -> None:
    """Equal to 1e-4 in float32, for each of three owners; and not each other's."""
    data = write_owned(tmp_path / "data")
    together, _ = trained(phase, tiny_model, data, tmp_path / "together")
    for owner in OWNERS:
        alone, _ = trained(phase, tiny_model, data, tmp_path / owner, (owner,))
        for name, weight in alone.adapter(owner).items():
            assert torch.allclose(weight, together.adapter(owner)[name], atol=1e-4), name
            assert weight.abs().max() > 1e-3, name
    first, second = (together.adapter(owner) for owner in OWNERS[:2])
    assert any((first[name] - second[name]).abs().max() > 1e-2 for name in first)


def test_a_run_that_is_lost_while_it_asks_its_adapters_trains_no_step_again(
    phase: Any, tiny_model: Path, tmp_path: Path
) -> None:
    data = write_owned(tmp_path / "data")
    before, (*_, trainer) = trained(phase, tiny_model, data, tmp_path / "run")
    assert (tmp_path / "run" / "checkpoints" / f"checkpoint-{trainer.steps}" / "complete.json").exists()
    after, (*_, again) = trained(phase, tiny_model, data, tmp_path / "run")
    assert again.history == trainer.history
    for owner in OWNERS:
        first, second = before.adapter(owner), after.adapter(owner)
        assert all(torch.equal(first[name], second[name]) for name in first)


def test_trackers_get_the_mean_loss_and_the_history_has_the_gpus_use(
    phase: Any, tiny_model: Path, tmp_path: Path
) -> None:
    data, sent = write_owned(tmp_path / "data"), list[tuple[int, Any]]()
    progress = Progress(False)
    progress.log = lambda step, entry: sent.append((step, dict(entry)))
    progress.gpu_use = lambda: {"gpu_utilization": 0.5}
    trained(phase, tiny_model, data, tmp_path / "run", progress=progress)
    history = json.loads((tmp_path / "run" / "training_history.json").read_text(encoding="utf-8"))
    assert [entry.pop("owners").keys() for entry in history] == [set(OWNERS)] * len(history)
    assert sent == [(entry["step"], entry) for entry in history]
    assert history[0].keys() == {"step", "learning_rate", "loss", "gpu_utilization"}


def test_it_is_what_peft_trains(phase: Any, tiny_model: Path, tmp_path: Path) -> None:
    """PEFT's adapter from the same start, by torch's own loss, clipping, AdamW and transformers' schedule, row after row."""
    phase = make_phase(phase.model_dump(mode="json"), data={"near": 0, "kept": 0})
    data = write_owned(tmp_path / "data")
    lora, (_, _, encoded, trainer) = trained(phase, tiny_model, data, tmp_path / "run")
    model, _ = chat.load_base(tiny_model, phase)
    fresh = OwnedLora(model, phase, OWNERS)
    initial = fresh.adapter("ben")
    model, _ = chat.load_base(tiny_model, phase)
    peft = get_peft_model(model, layers.lora_config(model, phase))
    own = {name.replace(".default.", "."): weight for name, weight in peft.named_parameters() if weight.requires_grad}
    assert own.keys() == initial.keys()
    for name, weight in own.items():
        weight.data.copy_(initial[name])
    optimizer = torch.optim.AdamW(own.values(), lr=phase.train.learning_rate, weight_decay=0)
    schedule = get_cosine_schedule_with_warmup(optimizer, 1, trainer.steps)
    order = trainer.order("ben", encoded[1])
    for step in range(trainer.steps):
        optimizer.zero_grad()
        rows, nats = order[step * 3 : step * 3 + 3], []
        for row in rows:
            ids = torch.tensor([row.ids])
            logits = peft(input_ids=ids).logits[0, row.prompt - 1 : -1]
            nats.append(torch.nn.functional.cross_entropy(logits, ids[0, row.prompt :], reduction="none"))
        torch.cat(nats).mean().backward()
        torch.nn.utils.clip_grad_norm_(own.values(), phase.train.max_grad_norm)
        optimizer.step()
        schedule.step()
    for name, weight in lora.adapter("ben").items():
        assert torch.allclose(weight, own[name], atol=1e-4), name


def test_what_is_kept_is_what_the_base_predicts(phase: Any, tiny_model: Path, tmp_path: Path) -> None:
    """At the first step, when the adapter is the base, the loss of a kept row is the entropy of the base's predictions."""
    model, tokenizer = chat.load_base(tiny_model, phase)
    data = write_owned(tmp_path / "data", ("ada",))
    rows = owned_rows.load(phase.data, data)
    encoded = adapters.encode(Run(phase, tmp_path, tiny_model, data), model, tokenizer, rows, ["ada"])
    kept = [row for row in encoded[0][0] if row.kept]
    assert len(kept) == 3
    assert all(row.answer <= 4 for row in kept)
    entropies = []
    for row in kept:
        logits = model(input_ids=torch.tensor([row.ids])).logits[0, row.prompt - 1 : -1].float()
        entropies.append(-(logits.softmax(-1) * logits.log_softmax(-1)).sum(-1))
    lora = OwnedLora(model, phase, ("ada",))
    trainer = OwnedTrainer(model, int(tokenizer.pad_token_id), phase, lora, [[kept]])
    trainer.prepare(Progress(False))
    trainer.fit(tmp_path, ("ada",), Progress(False))
    assert trainer.history[0]["owners"]["ada"] == pytest.approx(float(torch.cat(entropies).mean()), rel=1e-4)
    assert model.config._attn_implementation == "sdpa", (
        "scores and answers are computed as a served model computes them"
    )


@pytest.mark.parametrize(
    "config", [{"logits_scaling": 8.0}, {"logit_scale": 0.0625}, {"final_logit_softcapping": 0.5}, {}], ids=str
)
def test_the_heads_output_becomes_the_models_prediction(
    config: dict[str, float], phase: Any, tiny_model: Path, tmp_path: Path
) -> None:
    """As in Granite, Cohere and Gemma; a model that does something else with it is refused."""
    model, tokenizer = chat.load_base(tiny_model, phase)
    data = write_owned(tmp_path / "data", ("ada",))
    run = Run(phase, tmp_path, tiny_model, data)
    kept = [
        row
        for row in adapters.encode(run, model, tokenizer, owned_rows.load(phase.data, data), ["ada"])[0][0]
        if row.kept
    ]
    trainer = OwnedTrainer(model, int(tokenizer.pad_token_id), phase, OwnedLora(model, phase, ("ada",)), [[kept]])
    model.config.update(config)
    states = torch.randn(3, model.config.hidden_size)
    logits = model.get_output_embeddings()(states)
    if "logits_scaling" in config:
        logits = logits / 8
    elif "logit_scale" in config:
        logits = logits / 16
    elif config:
        logits = 0.5 * torch.tanh(logits / 0.5)
    assert torch.allclose(trainer._as_model(states), logits)
    if not config:
        trainer.prepare(Progress(False))
        return
    with pytest.raises(UserError, match="recipe adapters does not know how this model makes its predictions"):
        trainer.prepare(Progress(False))  # the tiny Llama does nothing of it


def run_of(workplace: Workplace, *more: str) -> str:
    """Run `trainlab run` to its end and return what it printed."""
    process = workplace.start("--run", "room", *more)
    text, _ = process.communicate()
    assert process.returncode == 0, text
    return text


def adapter_bytes(root: Path) -> dict[str, bytes]:
    """Return each owner's adapter file."""
    return {
        owner: (root / f"room.{owner}" / "lora_adapter" / "adapter_model.safetensors").read_bytes() for owner in OWNERS
    }


@pytest.fixture
def places(tmp_path: Path, phase: Any, tiny_model: Path) -> Any:
    """Return workplaces with the model and the data set of three owners."""

    def make(name: str, **changes: Any) -> Workplace:
        root = tmp_path / name
        root.mkdir()
        (root / "models").mkdir()
        (root / "models" / "tiny").symlink_to(tiny_model)
        place = Workplace(root, make_phase(phase.model_dump(mode="json"), **changes))
        write_owned(root / "data")
        return place

    return make


@pytest.mark.slow
def test_a_run_leaves_an_ordinary_run_for_each_owner(places: Any) -> None:
    """Each loads with PEFT, has its own gate and manifest, and is named in adapters.json."""
    place = places("one")
    run_of(place)
    decided = json.loads((place.root / "room" / "adapters.json").read_text("utf-8"))
    assert list(decided) == list(OWNERS)
    for owner in OWNERS:
        folder = place.root / f"room.{owner}"
        model, _ = chat.load_base(place.root / "models" / "tiny", place.phase)
        loaded = PeftModel.from_pretrained(model, folder / "lora_adapter")
        assert loaded.peft_config["default"].r == 4
        gate = json.loads((folder / "gate.json").read_text("utf-8"))
        assert gate["promoted"] is decided[owner]["promoted"]
        assert [condition["name"] for condition in gate["conditions"]] == ["min_recall", "max_elsewhere"]
        assert json.loads((folder / "manifest.json").read_text("utf-8"))["owner"] == owner
    report = json.loads((place.root / "room" / "report.json").read_text("utf-8"))
    assert "3 owners' LoRA adapters of rank 4" in dict(report["training"])["Recipe"]
    again = run_of(place)
    assert "nothing to do" in again


@pytest.mark.rest
def test_a_run_that_is_evaluated_again_says_what_its_adapters_say_now(places: Any) -> None:
    """The same scores and gates from the same files; another owner's weights in an owner's place change that owner's answers only."""
    place = places("again", train={"epochs": 30})
    run_of(place)
    room, names = place.root / "room", ("eval_before.json", "eval_after.json", "adapters.json")
    said = {name: json.loads((room / name).read_text("utf-8")) for name in names}
    for name in names[1:]:
        (room / name).unlink()
    for owner in OWNERS:
        (place.root / f"room.{owner}" / "gate.json").unlink()
    evaluate(place)
    assert {name: json.loads((room / name).read_text("utf-8")) for name in names} == said
    for owner in OWNERS:
        gate = json.loads((place.root / f"room.{owner}" / "gate.json").read_text("utf-8"))
        assert gate["promoted"] is said["adapters.json"][owner]["promoted"]
    ada, ben = (place.root / f"room.{owner}" / "lora_adapter" / "adapter_model.safetensors" for owner in OWNERS[:2])
    ben.write_bytes(ada.read_bytes())
    evaluate(place)
    after = json.loads((room / "eval_after.json").read_text("utf-8"))["items"]
    changed = {new["group"] for new, old in zip(after, said["eval_after.json"]["items"], strict=True) if new != old}
    assert changed == {"ben"}


def evaluate(place: Workplace) -> None:
    """Run `trainlab eval` over the run."""
    process = place.command("eval", str(place.root / "room"))
    text, _ = process.communicate()
    assert process.returncode == 0, text


@pytest.mark.slow
def test_four_ranks_train_what_one_does(places: Any) -> None:
    """Ranks share out the three owners; the fourth has none."""
    one, four = places("one"), places("four", resources={"processes_per_node": 4})
    run_of(one)
    run_of(four, "--processes", "4")
    for owner in OWNERS:
        first, second = (
            load_file(place.root / f"room.{owner}" / "lora_adapter" / "adapter_model.safetensors")
            for place in (one, four)
        )
        for name, weight in first.items():
            assert torch.allclose(weight, second[name], atol=1e-4), name


@pytest.mark.rest
def test_a_run_killed_in_the_middle_ends_with_the_same_bytes(places: Any) -> None:
    """kill -9 of launcher and rank after the first checkpoint; the same command goes on from it."""
    whole, killed = places("whole", train={"epochs": 40}), places("killed", train={"epochs": 40})
    run_of(whole)
    process = killed.start("--run", "room")
    folder, deadline = killed.root / "room" / "checkpoints", time.monotonic() + 120
    while not list(folder.glob("checkpoint-*/complete.json")):
        assert time.monotonic() < deadline and process.poll() is None, "no checkpoint before the end"
        time.sleep(0.002)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text("ascii").split()
    for pid in (process.pid, *map(int, children)):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.communicate()
    assert not (killed.root / "room" / "adapters.json").exists(), "it had ended before it was killed"
    assert "resuming from" in run_of(killed)
    assert adapter_bytes(killed.root) == adapter_bytes(whole.root)


def item(kind: str, number: int, recall: float | None) -> dict[str, Any]:
    """Return a scored item of one owner."""
    return {"id": f"{kind}{number}", "kind": kind, "group": "ada", "recall": recall, "facts": [["x"]]}


@pytest.mark.parametrize(("right", "wrong", "promoted"), [(2, 1, True), (1, 1, False), (2, 2, False), (4, 0, True)])
def test_the_gate_flips_at_its_thresholds(phase: Any, right: int, wrong: int, promoted: bool) -> None:
    """At least half of four own wordings, at most a quarter of four other questions."""
    after = adapters.means(
        [item("taught", n, float(n < right)) for n in range(4)]
        + [item("elsewhere", n, float(n < wrong)) for n in range(4)]
    )
    before = adapters.means([item("taught", n, 0.0) for n in range(4)] + [item("elsewhere", n, None) for n in range(4)])
    decision = adapters.decide_owner(before, after, phase)
    assert decision["promoted"] is promoted
    assert f"{right} of 4 questions in wordings that were not trained on got its fact" in decision["reasons"][0]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"owner": "../etc"}, "owner is '../etc': must be 1 to 32 lowercase letters"),
        ({"owner": "p" * 33}, "must be 1 to 32 lowercase letters"),
        ({"test": []}, "test is empty; name a wording that is not trained on"),
        ({"test": ["what does ADA eat"]}, "is in test and trained on; remove it from one of the two"),
        ({"facts": []}, "facts is empty; name what a right answer says"),
        ({"answer": " "}, "answer is ' ': must be a text that is not empty"),
    ],
)
def test_a_broken_row_is_refused_with_file_line_and_key(
    phase: Any, tmp_path: Path, change: dict[str, Any], says: str
) -> None:
    """Before anything is trained."""
    data = write_owned(tmp_path / "data")
    path = data / "owners" / "rows.jsonl"
    first, *rest = path.read_text("utf-8").splitlines()
    path.write_text("\n".join([json.dumps(json.loads(first) | change), *rest]) + "\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"rows\.jsonl:1: ") as refused:
        owned_rows.load(phase.data, data)
    assert says in str(refused.value)


def test_what_stays_is_never_an_owners_own_question(phase: Any, tmp_path: Path) -> None:
    """Near questions come first, others' wordings and kept ones follow, and what gates ask is trained on by nobody."""
    rows = owned_rows.load(phase.data, write_owned(tmp_path / "data"))
    asked = {text for fact in rows.facts for text in fact.asked}
    for fact in rows.facts:
        first, second = owned_rows.kept_questions(rows, fact, phase.data, 1, 2)
        assert set(first[:2]) == set(second[:2]) == set(fact.near)
        assert first[2:] != second[2:], "each pass keeps something else"
        assert len(first) == len(second) == 3
        assert not {*fact.wordings, *asked} & {*first, *second}
        assert set(owned_rows.elsewhere(rows, fact, 9, 1)) == asked - set(fact.asked)


def test_the_recipe_is_registered() -> None:
    """By its name."""
    assert recipes.RECIPES["adapters"] is adapters
