"""Stages on a random model: parents and gates, what trains, and that resuming, packing and precomputing change nothing."""

import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tiny import make_phase, write_data, write_text
from trainlab import chat, data, files, recipes, run
from trainlab.config import Phase
from trainlab.errors import UserError
from trainlab.plan import models as table
from trainlab.progress import Progress
from trainlab.recipes import cpt, dpo, sft
from trainlab.recipes import pretrain as pretraining
from trainlab.staged import gate, init, pairs, parents, speed, stored
from trainlab.staged.block import Lesson
from trainlab.text import corpus, pack

SOURCES = Path(__file__).resolve().parents[1] / "src"
TRAIN = {"epochs": 1, "batch_size": 4, "learning_rate": 0.01, "checkpoints": 2, "validation_fraction": 0.1}
PRETRAIN = {
    "recipe": "pretrain",
    "unfreeze": {},
    "model": {"source": "init:llama-2.4M", "dtype": "float32", "max_length": 32},
    "data": {"source": "pvc:text.jsonl", "train_rows": 40},
    "gate": {"metric": "perplexity"},
    "stage": {"name": "pretrain"},
    "questions": ["the water"],
}
SFT = {
    "recipe": "sft",
    "unfreeze": {},
    "model": {"source": "parent:llama-2.4M", "dtype": "float32", "max_length": 128},
    "stage": {"name": "sft", "parent": "pretrain"},
}
DPO = {
    **SFT,
    "recipe": "dpo",
    "stage": {"name": "dpo", "parent": "sft", "pairs": "broken_off"},
    "gate": {"metric": "preference_margin"},
}


def phase_of(base: dict[str, Any], kind: dict[str, Any], **blocks: Any) -> Phase:
    return make_phase({**base, **kind}, train={**TRAIN, **blocks.pop("train", {})}, **blocks)


def weights(run_dir: Path) -> dict[str, torch.Tensor]:
    return load_file(run_dir / "best_model" / "model.safetensors")


def assert_same(one: Path, other: Path) -> None:
    first, second = weights(one), weights(other)
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert torch.allclose(tensor, second[name], atol=1e-6), name


@pytest.mark.parametrize(
    ("kind", "blocks", "text"),
    [
        (PRETRAIN, {"stage": {"name": ""}}, "recipe: pretrain without stage.name; set stage.name: pretrain"),
        (PRETRAIN, {"recipe": "cpt"}, "recipe: cpt in stage pretrain; set pretrain"),
        (PRETRAIN, {"stage": {"parent": "sft"}}, "stage.parent: stage pretrain has none; remove it"),
        (PRETRAIN, {"model": {"source": "pvc:tiny"}}, "pvc:tiny in stage pretrain; set init:llama-SIZE"),
        (SFT, {"stage": {"parent": ""}}, "stage.parent: missing in stage sft; set pretrain"),
        (SFT, {"stage": {"parent": "dpo"}}, "stage.parent: dpo does not come before sft"),
        (SFT, {"model": {"source": "init:llama-2.4M"}}, "with stage.parent pretrain; set parent:llama-SIZE"),
        (SFT, {"stage": {"name": "lora"}}, "lora.rank: 0 in stage lora"),
        (SFT, {"lora": {"rank": 4}}, "lora.rank: 4 in stage sft"),
        (SFT, {"gate": {"metric": "preference_margin"}}, "preference_margin belongs to stage dpo"),
        (DPO, {"gate": {"metric": "answer_loss"}}, "gate.metric: answer_loss in stage dpo"),
        (PRETRAIN, {"stage": {"curriculum": [{"length": 24, "share": 1}]}}, "length 24 does not divide"),
        (PRETRAIN, {"stage": {"curriculum": [{"length": 8, "share": 0.5}]}}, "shares add up to 0.5; make it 1"),
        (
            PRETRAIN,
            {"stage": {"curriculum": [{"length": 32, "share": 0.5}, {"length": 8, "share": 0.5}]}},
            "lengths fall; put the short ones first",
        ),
    ],
)
def test_what_does_not_fit_together_is_refused(
    phase_dict: dict[str, Any], kind: dict[str, Any], blocks: dict[str, Any], text: str
) -> None:
    with pytest.raises(ValueError, match=text.replace(".", r"\.").replace("(", r"\(")):
        phase_of(phase_dict, kind, **blocks)


def write_run(out: Path, name: str, stage: str, ended: str | None = "2026-11-21", **gate_keys: Any) -> Path:
    """Write what a finished run of a stage leaves."""
    folder = out / name
    source = "init:llama-2.4M" if stage == "pretrain" else "parent:llama-2.4M"
    files.write_json(folder / "phase.json", {"phase": {"model": {"source": source}, "stage": {"name": stage}}})
    files.write_json(folder / "manifest.json", {"ended": ended})
    files.write_json(folder / "gate.json", {"stage": stage, "promoted": True, "verdict": "better", **gate_keys})
    files.write_json(folder / "best_model" / "config.json", {"made by": name})
    return folder


def test_the_newest_finished_parent_is_taken_by_hard_links(phase_dict: dict[str, Any], tmp_path: Path) -> None:
    phase, out = phase_of(phase_dict, SFT), tmp_path / "runs"
    write_run(out, "new", "pretrain", ended="2026-11-22")
    write_run(out, "old", "pretrain", ended="2026-11-20")
    write_run(out, "running", "pretrain", ended=None)
    write_run(out, "other", "sft", ended="2026-11-30")
    run_dir = out / "mine"
    folder = parents.adopt(phase, out, run_dir)
    assert folder == parents.model_dir(phase, tmp_path, run_dir) == run_dir / "parent_model"
    assert (folder / "config.json").samefile(out / "new" / "best_model" / "config.json")
    note = files.read_json(folder / "source.json")
    digest = files.folder_sha256(out / "new" / "best_model")
    assert note["sha256"] == note["parent"]["sha256"] == digest
    assert (note["parent"]["run"], note["parent"]["stage"]) == ("new", "pretrain")
    shutil.rmtree(out / "new")  # a restart needs the parent no more
    assert parents.adopt(phase, out, run_dir) == folder


def test_a_parent_that_cannot_be_one_is_refused_before_anything_starts(
    phase_dict: dict[str, Any], tmp_path: Path
) -> None:
    out = tmp_path / "runs"
    phase = phase_of(phase_dict, SFT)
    with pytest.raises(UserError, match=r"no finished run of stage pretrain with model llama-2.4M in .*runs"):
        parents.adopt(phase, out, out / "mine")
    failed = [{"passed": False, "reason": "min_gain failed: 0.1."}, {"passed": True, "reason": "well"}]
    write_run(out, "bad", "pretrain", promoted=False, checks=failed)
    with pytest.raises(UserError, match=r"did not promote it: min_gain failed: 0.1. Train it again, or record why"):
        parents.adopt(phase, out, out / "mine")
    named = phase_of(phase_dict, SFT, stage={"parent_run": "odd"})
    with pytest.raises(UserError, match=r"phase.stage.parent_run is odd: no run"):
        parents.adopt(named, out, out / "mine")
    write_run(out, "odd", "pretrain", stage="pretrain_to_sft")
    with pytest.raises(UserError, match=r"gate.json: stage is 'pretrain_to_sft': unknown; known stages: pretrain, sft"):
        parents.adopt(named, out, out / "mine")
    write_run(out, "odd", "sft")
    with pytest.raises(UserError, match=r"a run of stage sft, phase.stage.parent is pretrain"):
        parents.adopt(named, out, out / "mine")
    write_run(out, "odd", "pretrain")
    large = phase_of(phase_dict, SFT, stage={"parent_run": "odd"}, model={"source": "parent:llama-139M"})
    with pytest.raises(UserError, match=r"its model is llama-2.4M, phase.model.source is parent:llama-139M"):
        parents.adopt(large, out, out / "mine")
    (out / "odd" / "gate.json").write_text('{"stage": "pre', encoding="utf-8")
    with pytest.raises(UserError, match=r"gate.json: cannot be read as JSON"):
        parents.adopt(named, out, out / "mine")
    assert not (out / "mine").exists()


def test_counts_are_those_of_the_weights() -> None:
    for name, expected in (("llama-2.4M", 2_410_176), ("llama-139M", 139_322_112), ("llama-7.39B", 7_391_678_464)):
        arch = table.find(name)
        assert arch is not None and arch.parameters == expected


def decision(low: float, **more: Any) -> dict[str, Any]:
    gain = {"low": low, "mean": low, "high": low, "before": 5.0, "after": 4.0, "pairs": 3, "verdict": "better"}
    return {"gain": gain, "reasons": ["Measured."], "thresholds": {"min_gain": 0.0}, "verdict": "better", **more}


def run_with_scores(folder: Path, parent: Any = None) -> Path:
    for name in gate.SCORES:
        files.write_json(folder / name, {"items": []})
    files.write_json(folder / "manifest.json", {"parent": parent, "ended": "now"})
    return folder


def test_the_gate_flips_at_its_bounds_and_says_so_to_programs(phase_dict: dict[str, Any], tmp_path: Path) -> None:
    run_dir = run_with_scores(tmp_path / "run", {"run": "before"})
    phase = phase_of(phase_dict, PRETRAIN, stage={"max_perplexity": 50.0}, gate={"min_gain": 1.0})
    for low, perplexity, failed in ((1.01, 50.0, []), (1.0, 50.0, ["min_gain"]), (2.0, 50.1, ["max_perplexity"])):
        found = gate.complete(decision(low), {"perplexity": perplexity}, phase, run_dir)
        assert [one["check"] for one in found["checks"] if not one["passed"]] == failed
        assert found["promoted"] is not bool(failed)
        assert (found["stage"], found["parent"], found["override"]) == ("pretrain", {"run": "before"}, None)
    assert found["checks"][1]["threshold"] == 50.0 and found["checks"][1]["value"] == 50.1
    assert "must be <= 50" in found["reasons"][-1]
    child = phase_of(phase_dict, DPO, stage={"max_answer_loss_rise": 0.1, "min_preference_accuracy": 0.6})
    for rise, share, failed in ((0.1, 0.61, []), (0.11, 0.61, ["max_answer_loss_rise"])):
        own = decision(0.5, preference_accuracy=share, answer_loss={"mean": -rise})
        found = gate.complete(own, {}, child, run_dir)
        assert [one["check"] for one in found["checks"] if not one["passed"]] == failed
        assert {one["relative_to"] for one in found["checks"]} == {"sft"}
    plain = phase_of(phase_dict, {})
    assert gate.complete({"promoted": True}, {}, plain, run_dir) == {"promoted": True}


def test_an_override_is_recorded_and_ends_with_the_scores(phase_dict: dict[str, Any], tmp_path: Path) -> None:
    run_dir = run_with_scores(tmp_path / "run")
    phase = phase_of(phase_dict, PRETRAIN, gate={"min_gain": 1.0})
    note = gate.Override.of(True, "Ada", "a rehearsal")
    found = gate.complete(decision(0.5), {}, phase, run_dir, note)
    assert found["promoted"] and found["override"]["who"] == "Ada" and found["override"]["when"]
    assert found["reasons"][0].startswith("Overridden by Ada on ") and not found["checks"][0]["passed"]
    files.write_json(run_dir / "gate.json", found)
    assert gate.complete(decision(0.5), {}, phase, run_dir)["promoted"]
    files.write_json(run_dir / gate.SCORES[1], {"items": [1]})  # scored again
    assert not gate.complete(decision(0.5), {}, phase, run_dir)["promoted"]
    with pytest.raises(UserError, match="there is nothing to override"):
        gate.complete(decision(1.5), {}, phase, run_dir, note)
    with pytest.raises(UserError, match="is no stage; only a stage's gate can be overridden"):
        gate.complete({}, {}, phase_of(phase_dict, {}), run_dir, note)
    for words, text in (((True, "Ada", " "), "--why is missing"), ((False, "Ada", "x"), "belong to --override")):
        with pytest.raises(UserError, match=text):
            gate.Override.of(*words)


def write_blocks(folder: Path, count: int = 30, length: int = 32, **changes: Any) -> Path:
    """Write prepared blocks in two shards: block i holds the token i throughout."""
    folder.mkdir(parents=True, exist_ok=True)
    shards = []
    for name, ids in (("blocks-00000.bin", range(7)), ("blocks-00001.bin", range(7, count))):
        (folder / name).write_bytes(np.array([[i] * length for i in ids], dtype="<u2").tobytes())
        shards.append({"file": name, "blocks": len(ids), "sha256": files.sha256(folder / name)})
    sizes = {"block_length": length, "blocks": count, "tokens": count * length, "vocab_size": 100, "eos": 2}
    files.write_json(folder / "index.json", {"dtype": "uint16", **sizes, "shards": shards, "documents": 4, **changes})
    return folder


class Tokenizer:
    """As much of a tokenizer as the reader of blocks asks for."""

    eos_token_id = 2


def test_prepared_blocks_are_read_where_they_lie(phase_dict: dict[str, Any], tmp_path: Path) -> None:
    phase = phase_of(phase_dict, PRETRAIN, data={"heldout_rows": 4, "train_rows": None})
    blocks = stored.load(write_blocks(tmp_path / "a"), phase, Tokenizer(), 4096)
    assert [block[0] for block in blocks.train.blocks] == list(range(21))
    assert blocks.train.blocks[7] == [7] * 32 and len(blocks.train) == 21
    assert [block[0] for block in blocks.validation.blocks] == [22, 23, 24]
    assert [block[0] for block in blocks.heldout.blocks] == [26, 27, 28, 29]
    for changes, text in (
        ({"dtype": "int8"}, r"index.json: dtype is 'int8': must be uint16 or uint32"),
        ({"blocks": "many"}, r"blocks is 'many': must be a whole number"),
        ({"block_length": 64}, r"blocks have 64 tokens, phase.model.max_length is 32; set 64"),
        ({"blocks": 31}, r"the shards do not hold 31 blocks"),
        ({"eos": 3}, r"eos is 3, the tokenizer's is 2"),
        ({"vocab_size": 5000}, r"vocab_size is 5000, the model has 4096; take a larger model"),
    ):
        with pytest.raises(UserError, match=text):
            stored.load(write_blocks(tmp_path / "b", **changes), phase, Tokenizer(), 4096)
    with pytest.raises(UserError, match=r"30 blocks are too few for 29 held out"):
        stored.load(tmp_path / "a", phase_of(phase_dict, PRETRAIN, data={"heldout_rows": 29}), Tokenizer(), 4096)
    shard = tmp_path / "a" / "blocks-00001.bin"
    whole = shard.read_bytes()
    shard.write_bytes(b"\xff" + whole[1:])
    with pytest.raises(UserError, match=r"its digest is not the one of index\.json"):
        stored.check(tmp_path / "a", phase)
    shard.write_bytes(whole[:-5])
    with pytest.raises(UserError, match=r"blocks-00001.bin: has 1467 of 1472 bytes"):
        stored.check(tmp_path / "a", phase)


def test_the_drawn_model_has_the_counted_size_and_a_tokenizer_that_can_chat(
    phase_dict: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_text(tmp_path / "text.jsonl")
    phase = phase_of(phase_dict, PRETRAIN)
    folder = recipes.of(phase).fetch(tmp_path, None)
    assert "drew 2,410,176 parameters" in capsys.readouterr().err
    assert recipes.of(phase).fetch(tmp_path, None) == folder and not capsys.readouterr().err
    other = recipes.of(phase_of(phase_dict, PRETRAIN, seed=7)).fetch(tmp_path, None)
    states = [load_file(path / "model.safetensors") for path in (folder, other)]
    assert not torch.equal(states[0]["model.embed_tokens.weight"], states[1]["model.embed_tokens.weight"])
    model, tokenizer = chat.load_base(folder, phase_of(phase_dict, SFT))  # a later stage needs a chat template
    assert model.config.tie_word_embeddings and tokenizer.pad_token_id != tokenizer.eos_token_id
    text = "with é and 水: as it was"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    with pytest.raises(UserError, match=r"llama-1.1B: no such size; known: llama-7.39b"):
        init.architecture(phase_of(phase_dict, PRETRAIN, model={"source": "init:llama-1.1B"}))


LESSONS = [{"length": 8, "share": 0.5}, {"length": 32, "share": 0.5}]


def make_text_job(base: dict[str, Any], folder: Path, tiny_model: Path, name: str, **blocks: Any) -> cpt.TextJob:
    phase = phase_of(base, PRETRAIN, **blocks)
    model, tokenizer = chat.load_base(tiny_model, phase)
    path = write_text(folder / "text.jsonl")
    parts = pack.pack_corpus(tokenizer, corpus.load(phase, path), 32, phase.data.train_rows, None)
    return cpt.TextJob(phase, folder / name, model, tokenizer, [], Progress(False), parts)


def test_the_curriculum_cuts_blocks_and_counts_what_it_predicts(
    phase_dict: dict[str, Any], tmp_path: Path, tiny_model: Path
) -> None:
    lessons = tuple(Lesson.model_validate(one) for one in LESSONS)
    assert [pretraining.length_at(lessons, step, 10) for step in (0, 4, 5, 9)] == [8, 8, 32, 32]
    job = make_text_job(phase_dict, tmp_path, tiny_model, "run", stage={"curriculum": LESSONS})
    seen: list[tuple[int, ...]] = []
    job.model.model.register_forward_pre_hook(
        lambda _module, _args, named: seen.append(tuple(named["input_ids"].shape)) if job.model.training else None,
        with_kwargs=True,
    )
    torch.manual_seed(0)
    first = torch.tensor(job.blocks.train.blocks).view(-1, 8)
    with torch.no_grad():
        expected = float(job.model(input_ids=first, labels=first).loss)  # of random blocks: all alike
    summary = recipes.train(job)
    assert seen[:5] == [(16, 8)] * 5 and seen[5:10] == [(4, 32)] * 5
    history = files.read_json(job.run_dir / "training_history.json")
    assert history[0]["loss"] == pytest.approx(expected, rel=0.1)
    assert [one["length"] for one in summary["curriculum"]] == [8, 32] and summary["recipe"] == "pretrain"
    assert not any("_orig_mod" in name for name in weights(job.run_dir))


def test_resumed_pretraining_is_uninterrupted_pretraining(
    phase_dict: dict[str, Any], tmp_path: Path, tiny_model: Path
) -> None:
    for name in ("whole", "broken"):
        recipes.train(make_text_job(phase_dict, tmp_path, tiny_model, name, stage={"curriculum": LESSONS}))
    last = tmp_path / "broken" / "checkpoints" / "checkpoint-10" / "model.safetensors"
    last.write_bytes(last.read_bytes()[:100])  # as a kill leaves it
    shutil.rmtree(tmp_path / "broken" / "best_model")
    again = recipes.train(make_text_job(phase_dict, tmp_path, tiny_model, "broken", stage={"curriculum": LESSONS}))
    assert again["resumed_from_step"] == 5 and again["steps"] == 10
    assert_same(tmp_path / "whole", tmp_path / "broken")


def test_compiled_layers_keep_the_names_of_all_weights(
    phase_dict: dict[str, Any], tmp_path: Path, tiny_model: Path
) -> None:
    job = make_text_job(phase_dict, tmp_path, tiny_model, "run")
    names = set(job.model.state_dict())
    ids = torch.tensor(job.blocks.train.blocks[:2])
    with torch.no_grad():
        before = job.model(input_ids=ids).logits
        speed.compile_layers(job.model, backend="eager")
        assert torch.allclose(job.model(input_ids=ids).logits, before, atol=1e-5)
    assert all(layer._compiled_call_impl is not None for layer in job.model.model.layers)
    assert set(job.model.state_dict()) == names
    recipes.train(job)
    assert not any("_orig_mod" in name for name in weights(job.run_dir))
    checkpoint = tmp_path / "run" / "checkpoints" / "checkpoint-10" / "model.safetensors"
    assert not any("_orig_mod" in name for name in load_file(checkpoint))


def test_wishes_that_need_gpus_are_refused_without(phase_dict: dict[str, Any], tiny_model: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    for key, lack in (("shard", "several GPUs"), ("compile", "a GPU")):
        phase = phase_of(phase_dict, PRETRAIN, stage={key: True})
        with pytest.raises(UserError, match=rf"phase.stage.{key} is true: needs {lack}"):
            speed.prepare(None, phase, lambda _: None)
    said: list[str] = []
    speed.prepare(None, phase_of(phase_dict, PRETRAIN, stage={"fp8": "auto"}), said.append)
    assert said == ["fp8: off: no GPU"]


def make_job(
    base: dict[str, Any], kind: dict[str, Any], folder: Path, tiny_model: Path, name: str, **blocks: Any
) -> Any:
    phase = phase_of(base, kind, **blocks)
    model, tokenizer = chat.load_base(tiny_model, phase)
    path = write_data(folder / "data")
    rows = pairs.load(phase, path)[0] if phase.recipe == "dpo" else data.load_train(phase.data, path)
    return recipes.Job(phase, folder / name, model, tokenizer, rows, Progress(False))


def test_a_stage_trains_all_weights_and_packed_rows_do_not_see_each_other(
    phase_dict: dict[str, Any], tmp_path: Path, tiny_model: Path
) -> None:
    job = make_job(phase_dict, SFT, tmp_path, tiny_model, "run", train={"packing": True})
    rows = job.rows[:3]
    folder = tmp_path / "run" / "checkpoints"
    job.model.requires_grad_(True)
    trainer = sft.build(job, rows, [], folder)
    batch = next(iter(trainer.get_train_dataloader()))
    assert batch["input_ids"].shape[0] == 1 and int((batch["position_ids"] == 0).sum()) == 3
    with torch.no_grad():
        packed = job.model(input_ids=batch["input_ids"], position_ids=batch["position_ids"], use_cache=False).logits[0]
        starts = [*(batch["position_ids"][0] == 0).nonzero().flatten().tolist(), batch["input_ids"].shape[1]]
        for first, last in itertools.pairwise(starts):
            alone = job.model(input_ids=batch["input_ids"][:, first:last], use_cache=False).logits[0]
            assert torch.allclose(packed[first:last], alone, atol=1e-4)
    job = make_job(phase_dict, SFT, tmp_path, tiny_model, "all")
    summary = recipes.train(job)
    old, new = load_file(tiny_model / "model.safetensors"), weights(job.run_dir)
    assert summary["parameters"]["share"] == 1 and old.keys() == new.keys()
    assert all(not torch.equal(tensor, old[name]) for name, tensor in new.items())


def test_precomputed_reference_gives_the_loss_of_a_reference_model(
    phase_dict: dict[str, Any], tmp_path: Path, tiny_model: Path
) -> None:
    losses = []
    for name, precompute in (("once", True), ("online", False)):
        job = make_job(phase_dict, DPO, tmp_path, tiny_model, name)
        trainer = dpo.build(job, job.rows[:8], job.rows[8:10], tmp_path / name / "checkpoints", precompute)
        assert (trainer.ref_model is None) is precompute
        torch.manual_seed(1)
        with torch.no_grad():  # a policy that has left its reference: at the start every loss is log 2
            for parameter in trainer.model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.02)
        batch = trainer.data_collator([trainer.train_dataset[i] for i in range(4)])
        losses.append(float(trainer.compute_loss(trainer.model, batch)))
    assert losses[0] == pytest.approx(losses[1], abs=1e-5) and abs(losses[0] - 0.6931) > 1e-3


def test_dpo_learns_to_end_what_it_began_and_resumes(
    phase_dict: dict[str, Any], tmp_path: Path, tiny_model: Path
) -> None:
    blocks = {"train": {"learning_rate": 1e-3, "epochs": 2}}
    job = make_job(phase_dict, DPO, tmp_path, tiny_model, "whole", **blocks)
    recipe = recipes.of(job.phase)
    heldout = pairs.load(job.phase, tmp_path / "data")[1]
    before = recipe._scores(job.model.eval(), job.tokenizer, heldout)
    summary = recipes.train(job)
    model, tokenizer = chat.load_tuned(job.run_dir, job.phase)
    verdict = recipe.decide(before, recipe._scores(model, tokenizer, heldout))
    assert verdict["verdict"] == "better" and verdict["preference_accuracy"] > 0.5, verdict["reasons"]
    assert recipe.decide(before, before)["preference_accuracy"] == 0 and summary["beta"] == 0.1
    recipes.train(make_job(phase_dict, DPO, tmp_path, tiny_model, "broken", **blocks))
    checkpoints = sorted((tmp_path / "broken" / "checkpoints").iterdir(), key=lambda p: int(p.name.split("-")[-1]))
    shutil.rmtree(checkpoints[-1])
    shutil.rmtree(tmp_path / "broken" / "best_model")
    again = recipes.train(make_job(phase_dict, DPO, tmp_path, tiny_model, "broken", **blocks))
    assert 0 < again["resumed_from_step"] < again["steps"] == summary["steps"]
    assert_same(tmp_path / "whole", tmp_path / "broken")


def test_pairs_are_given_or_broken_off_and_equal_ones_are_refused(phase_dict: dict[str, Any], tmp_path: Path) -> None:
    phase = phase_of(phase_dict, DPO, stage={"pairs": "given"})
    row = {"id": "a", "question": "Safe?", "chosen": "Yes, boil it.", "rejected": "No."}
    for side in ("train", "heldout"):
        (tmp_path / side).mkdir()
        (tmp_path / side / "water.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    train, _ = pairs.load(phase, tmp_path)
    assert (train[0]["answer"], train[0]["rejected"], train[0]["topic"]) == ("Yes, boil it.", "No.", "water")
    equal = {**row, "id": "b", "rejected": " Yes,  boil it. "}
    with (tmp_path / "train" / "water.jsonl").open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(equal) + "\n")
    with pytest.raises(UserError, match=r"water.jsonl:2: chosen and rejected are equal: 'Yes, boil it.'"):
        pairs.load(phase, tmp_path)
    assert pairs.broken_off("x", "Boil the water, then let it cool.") == "Boil the water"
    with pytest.raises(UserError, match="row x: its answer is one word"):
        pairs.broken_off("x", "Never.")


def test_all_stages_one_after_the_other(phase_dict: dict[str, Any], tmp_path: Path) -> None:
    models, out = tmp_path / "models", tmp_path / "runs"
    write_text(models / "text.jsonl")
    write_data(models / "qa")
    questions = {"data": {"source": "pvc:qa", "system_prompt": "Be brief."}}
    lora = {**SFT, "stage": {"name": "lora", "parent": "dpo"}, "lora": {"rank": 4}}
    small = {"learning_rate": 1e-3, "checkpoints": 1}
    stages = {
        "pretrain": phase_of(phase_dict, PRETRAIN, stage={"curriculum": LESSONS}, train=small),
        "sft": phase_of(phase_dict, SFT, **questions, train=small, gate={"max_fact_recall_drop": 1.0}),
        "dpo": phase_of(phase_dict, DPO, **questions, train={**small, "learning_rate": 2e-4}),
        "lora": phase_of(phase_dict, lora, **questions, train=small, gate={"max_fact_recall_drop": 1.0}),
    }
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PET_", "TRAINLAB_", "TORCHELASTIC"))}
    env = {**clean, "PYTHONPATH": str(SOURCES), "OMP_NUM_THREADS": "1"}

    def call(*args: str) -> str:
        command = [sys.executable, "-m", "trainlab.cli", *args]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    for name, phase in stages.items():
        file = tmp_path / f"{name}.json"
        file.write_text(json.dumps({"phase": phase.model_dump(mode="json")}), encoding="utf-8")
        call("fetch", str(file), "--models", str(models))
        call("run", str(file), "--models", str(models), "--out", str(out), "--run", name)
        verdict = files.read_json(out / name / "gate.json")
        assert verdict["stage"] == name and verdict["checks"] and run.finished(out / name)
        if not verdict["promoted"]:  # a handful of steps: what the gate says is not the subject here
            kept = files.read_json(out / name / "gate.json")
            call("gate", str(out / name), "--override", "--dry-run", "--who", "test", "--why", "few steps")
            assert files.read_json(out / name / "gate.json") == kept
            call("gate", str(out / name), "--override", "--who", "test", "--why", "few steps")
            assert files.read_json(out / name / "gate.json")["override"]["who"] == "test"
    record = files.read_json(out / "lora" / "manifest.json")
    assert record["parent"]["run"] == "dpo" and record["model"]["sha256"] == record["parent"]["sha256"]
    assert files.read_json(out / "pretrain" / "manifest.json")["parent"] is None
    assert (out / "lora" / "lora_adapter" / "adapter_model.safetensors").exists()
    assert "pre-training from random weights" in (out / "pretrain" / "report.html").read_text(encoding="utf-8")
    assert run.evaluate_again(out / "dpo", models, None) == 0
