"""Stages without training: who may be a parent, what a gate says, which data is refused."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkout import VALUES
from numpy.typing import NDArray
from stages import DPO, PRETRAIN, SFT, phase_of
from trainlab import files, recipes
from trainlab.config import Phase
from trainlab.config.loading import load_values
from trainlab.config.methods import STAGES
from trainlab.errors import UserError
from trainlab.models import architectures as table
from trainlab.models import parents
from trainlab.plan.source import plan_of
from trainlab.recipes import dpo, prepared_blocks, pretrain
from trainlab.report import words
from trainlab.run import results
from transformers import AutoModelForCausalLM, LlamaConfig


def write_run(out: Path, name: str, kind: str, ended: str | None = "2026-11-21", **gate_keys: Any) -> Path:
    """Write what a finished run of a stage leaves."""
    folder = out / name
    source = "init:llama-2.4M" if kind == "pretrain" else "parent:llama-2.4M"
    files.write_json(folder / "phase.json", {"phase": {"model": {"source": source}, "stage": {"name": kind}}})
    files.write_json(folder / "manifest.json", {"ended": ended})
    files.write_json(folder / "gate.json", {"stage": kind, "promoted": True, "verdict": "better", **gate_keys})
    files.write_json(folder / "best_model" / "config.json", {"made by": name})
    return folder


def test_the_newest_finished_parent_is_taken_by_hard_links(
    phase_dict: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    phase, out = phase_of(phase_dict, SFT), tmp_path / "runs"
    write_run(out, "new", "pretrain", ended="2026-11-22")
    write_run(out, "old", "pretrain", ended="2026-11-20")
    write_run(out, "running", "pretrain", ended=None)
    write_run(out, "other", "sft", ended="2026-11-30")
    alone = write_run(out, "alone", "sft", ended="2026-11-30")  # a run of a phase without stages, beside them
    files.write_json(alone / "phase.json", {"phase": phase_of(phase_dict, {"recipe": "sft"}).model_dump(mode="json")})
    run_dir = out / "mine"
    folder = parents.adopt(phase, out, run_dir)
    assert folder == parents.model_dir(phase, tmp_path, run_dir) == run_dir / "parent_model"
    assert (folder / "config.json").samefile(out / "new" / "best_model" / "config.json")
    note = files.read_json(folder / "source.json")
    digest = files.folder_sha256(out / "new" / "best_model")
    assert note["sha256"] == note["parent"]["sha256"] == digest
    assert (note["parent"]["run"], note["parent"]["stage"]) == ("new", "pretrain")
    assert not capsys.readouterr().err
    write_run(out, "later", "pretrain", ended="2026-11-23")
    assert parents.adopt(phase, out, run_dir) == folder
    assert "mine continues from run new, as it started; run later of stage pretrain is newer" in capsys.readouterr().err
    for gone in ("new", "later"):  # a restart needs the parent no more
        shutil.rmtree(out / gone)
    assert parents.adopt(phase, out, run_dir) == folder


def test_a_parent_that_cannot_be_one_is_refused_before_anything_starts(
    phase_dict: dict[str, Any], tmp_path: Path
) -> None:
    out = tmp_path / "runs"
    phase = phase_of(phase_dict, SFT)
    with pytest.raises(UserError, match=r"no finished run of stage pretrain with model llama-2.4M in .*runs"):
        parents.adopt(phase, out, out / "mine")
    conditions = [{"passed": False, "reason": "min_gain failed: 0.1."}, {"passed": True, "reason": "well"}]
    write_run(out, "bad", "pretrain", promoted=False, conditions=conditions)
    with pytest.raises(UserError, match=r"did not promote it: min_gain failed: 0.1. Train it again, or record why"):
        parents.adopt(phase, out, out / "mine")
    named = phase_of(phase_dict, SFT, stage={"parent_run": "odd"})
    with pytest.raises(UserError, match=r"phase.stage.parent_run is odd: no run"):
        parents.adopt(named, out, out / "mine")
    write_run(out, "odd", "pretrain", stage="pretrain_to_sft")
    with pytest.raises(UserError, match=r"gate.json: stage is 'pretrain_to_sft': unknown; known stages: pretrain, sft"):
        parents.adopt(named, out, out / "mine")
    write_run(out, "odd", "sft")
    with pytest.raises(UserError, match=r"a run of stage sft, but phase.stage.parent is pretrain"):
        parents.adopt(named, out, out / "mine")
    write_run(out, "odd", "pretrain")
    large = phase_of(phase_dict, SFT, stage={"parent_run": "odd"}, model={"source": "parent:llama-139M"})
    with pytest.raises(UserError, match=r"its model is llama-2.4M, phase.model.source is parent:llama-139M"):
        parents.adopt(large, out, out / "mine")
    long = phase_of(phase_dict, SFT, stage={"parent_run": "odd"}, model={"max_length": 1024})
    with pytest.raises(UserError, match=r"phase.model.max_length is 1024: llama-2.4M has 512 positions; lower it"):
        parents.adopt(long, out, out / "mine")
    (out / "odd" / "gate.json").write_text('{"stage": "pre', encoding="utf-8")
    with pytest.raises(UserError, match=r"gate.json: cannot be read as JSON"):
        parents.adopt(named, out, out / "mine")
    assert not (out / "mine").exists()


def test_counts_are_those_of_the_weights() -> None:
    for name, expected in (("llama-2.4M", 2_410_176), ("llama-139M", 139_322_112), ("llama-7.39B", 7_391_678_464)):
        arch = table.find(name)
        assert arch is table.TABLE[name] and arch.parameters == expected


def test_a_size_that_is_written_out_is_that_of_the_table() -> None:
    """And the weights drawn of it are as many as counted; transformers is asked, without memory for them."""
    named = table.find("init:llama-2.4M")
    for source in ("init:llama-", "parent:llama-"):
        arch = table.find(f"{source}hidden192-layers4-heads6-kv3-mlp512-vocab4096-context512-tied")
        assert arch and named and replace(arch, name=named.name) == named
    other = table.find("init:llama-hidden64-layers2-heads4-kv2-mlp160-vocab512-context256")
    assert other and not other.tied
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(LlamaConfig(**other.config))
    assert sum(each.numel() for each in model.parameters()) == other.parameters


def test_a_stage_of_a_size_that_is_written_out_is_planned(phase_dict: dict[str, Any]) -> None:
    source = "init:llama-hidden64-layers2-heads4-kv2-mlp160-vocab512-context256"
    phase = phase_of(phase_dict, PRETRAIN, model={"source": source})
    assert plan_of(phase).parameters == table.of_phase(phase).parameters


def items(count: int = 10, **keys: Any) -> dict[str, Any]:
    """An evaluation of `count` rows: a key's value belongs to every row, a list's to one row each."""
    return {
        "items": [
            {"id": f"r{i}", **{key: value[i] if isinstance(value, list) else value for key, value in keys.items()}}
            for i in range(count)
        ]
    }


def preferences(right: int, loss: float, count: int = 10) -> dict[str, Any]:
    """Pairs of which the first `right` moved far in the right direction and the others a little in the wrong one."""
    return items(count, chosen_logp=[1.0] * right + [-0.001] * (count - right), rejected_logp=0.0, loss=loss)


UNMOVED = items(10, chosen_logp=0.0, rejected_logp=0.0, loss=2.0)
LOSS = {"before": items(loss=3.0), "after": items(loss=2.5)}


def decided(phase: Phase, run_dir: Path, before: dict[str, Any], after: dict[str, Any], **more: Any) -> dict[str, Any]:
    """What gate.json says, by the recipe's own gate."""
    for name, scores in zip(results.SCORES, (before, after), strict=True):
        files.write_json(run_dir / name, scores)
    return results.decide(phase, run_dir, before, after, **more)


def failed(gate: dict[str, Any]) -> list[str]:
    return [condition["name"] for condition in gate["conditions"] if not condition["passed"]]


def test_the_gate_flips_at_its_bounds_and_says_so_to_programs(phase_dict: dict[str, Any], tmp_path: Path) -> None:
    files.write_json(tmp_path / "manifest.json", {"parent": {"run": "before"}, "ended": "now"})
    phase = phase_of(phase_dict, PRETRAIN, stage={"max_perplexity": 50.0}, gate={"min_gain": 1.0})
    for before, after, expected in ((4.75, 3.5, []), (4.5, 3.5, ["min_gain"]), (6.0, 4.0, ["max_perplexity"])):
        gate = decided(phase, tmp_path, items(loss=before), items(loss=after))
        assert failed(gate) == expected and gate["promoted"] is not bool(expected)
        assert (gate["stage"], gate["parent"], gate["override"]) == ("pretrain", {"run": "before"}, None)
    assert gate["conditions"][1]["bound"] == 50.0 and gate["conditions"][1]["value"] == pytest.approx(54.598, abs=1e-3)
    assert gate["thresholds"]["max_perplexity"] == 50.0
    assert gate["reasons"][-1].endswith("is 54.6, but phase.stage.max_perplexity asks for at most 50.")
    child = phase_of(phase_dict, DPO, stage={"max_answer_loss_rise": 0.1, "min_preference_accuracy": 0.6})
    for right, loss, expected in (
        (7, 2.1, []),
        (7, 2.11, ["max_answer_loss_rise"]),
        (6, 2.1, ["min_preference_accuracy"]),
    ):
        assert failed(decided(child, tmp_path, UNMOVED, preferences(right, loss))) == expected
    plain = phase_of(phase_dict, {})
    assert "stage" not in decided(plain, tmp_path, **LOSS)


def test_a_stage_promotes_nothing_that_its_recipe_refuses(phase_dict: dict[str, Any], tmp_path: Path) -> None:
    """A lower loss beside a taught recall that did not move: the stage's own conditions would let it through."""
    rule = {"metric": "answer_loss", "max_fact_recall_drop": 1.0}
    phase = phase_of(phase_dict, SFT, data={"taught": "test"}, gate=rule)
    before = items(12, loss=3.0, recall=0.1, kind="taught")
    for recall, expected in ((0.1, ["min_taught_recall_gain"]), (0.9, [])):
        after = items(12, loss=2.0, recall=recall, kind="taught")
        gate = decided(phase, tmp_path, before, after)
        assert failed(gate) == expected and gate["promoted"] is not bool(expected)
    worse = decided(
        phase_of(phase_dict, SFT, data={"taught": "test"}, gate=rule | {"metric": "taught_recall"}),
        tmp_path,
        before,
        items(12, loss=3.1, recall=0.9, kind="taught"),
    )
    assert failed(worse) == ["max_sure_answer_loss_rise"] and not worse["promoted"]


@pytest.mark.parametrize("name", STAGES)
def test_every_stage_decides_as_its_recipe(name: str, tmp_path: Path) -> None:
    """Whatever the scores: nothing but an override comes between the recipe's conditions and `promoted`."""
    phase, rng, outcomes = load_values([VALUES / f"staged-{name}.yaml"]).phase, np.random.default_rng(0), set()
    keys = {"loss": 6.0, "recall": 0.4, "adherence": 0.4, "chosen_logp": -40.0, "rejected_logp": -40.0}
    before = items(12, **keys)
    for _ in range(60):
        change = {key: rng.normal(0, 0.2) for key in keys} | {"loss": rng.choice([-5.5, -0.5, 0.3])}
        change["chosen_logp"] = rng.choice([-3.0, 3.0])
        after = items(12, **{key: list(keys[key] + change[key] + rng.normal(0, 0.1, 12)) for key in keys})
        gate, own = decided(phase, tmp_path, before, after), recipes.get_recipe(phase).decide(before, after, phase)
        assert gate["promoted"] == own["promoted"] == all(condition["passed"] for condition in gate["conditions"])
        outcomes.add(gate["promoted"])
    assert outcomes == {True, False}


def test_a_stage_tells_of_those_before_it(phase_dict: dict[str, Any], tmp_path: Path) -> None:
    """Its gate, and so its report, has a row for each ancestor, also after their directories are gone."""
    earlier = {"stage": "pretrain", "run": "first", "tokens": 1000, "promoted": True, "overridden": True, "answers": []}
    earlier |= {"loss": {"before": 7.0, "after": 2.0}, "verdict": "better"}
    write_run(tmp_path, "first", "pretrain", stages=[earlier])
    phase, run_dir = phase_of(phase_dict, SFT), tmp_path / "second"
    parents.adopt(phase, tmp_path, run_dir)
    shutil.rmtree(tmp_path / "first")
    files.write_json(run_dir / "training_summary.json", {"tokens": 2000})
    files.write_json(run_dir / "demo_outputs" / "after.json", [{"question": "Why?", "text": "Because."}])
    gate = decided(phase, run_dir, **LOSS)
    assert [row["stage"] for row in gate["stages"]] == ["pretrain", "sft"] and gate["stages"][0] == earlier
    assert gate["stages"][1]["tokens"] == 2000 and gate["stages"][1]["loss"] == {"before": 3.0, "after": 2.5}
    (run_dir / "training_summary.json").unlink()
    for name in results.SCORES:
        (run_dir / name).unlink()
    files.write_json(run_dir / "phase.json", {"phase": phase.model_dump(mode="json")})
    files.write_json(run_dir / "gate.json", gate)
    page = results.write_report(run_dir).read_text(encoding="utf-8")
    assert "The stages so far" in page and "After sft: Why?" in page and "Because." in page
    assert "1,096.63" in page and "7.39" in page, "perplexities of losses 7 and 2"


def test_an_override_is_recorded_and_ends_with_the_scores(phase_dict: dict[str, Any], tmp_path: Path) -> None:
    phase = phase_of(phase_dict, PRETRAIN, gate={"min_gain": 1.0})
    note = results.Override.of(True, "Ada", "a rehearsal")
    gate = decided(phase, tmp_path, **LOSS, override=note)
    assert gate["promoted"] and gate["override"]["who"] == "Ada" and gate["override"]["when"]
    assert words.verdict(gate).endswith("did not promote it; Ada overrode the gate: a rehearsal.")
    assert gate["reasons"][0].startswith("Overridden by Ada on ") and failed(gate) == ["min_gain"]
    files.write_json(tmp_path / "gate.json", gate)
    assert decided(phase, tmp_path, **LOSS)["promoted"]
    assert not decided(phase, tmp_path, LOSS["before"], items(loss=2.6))["promoted"], "scored again"
    with pytest.raises(UserError, match="there is nothing to override"):
        decided(phase, tmp_path, LOSS["before"], items(loss=1.5), override=note)
    with pytest.raises(UserError, match="is not a stage; only a stage's gate can be overridden"):
        decided(phase_of(phase_dict, {}), tmp_path, **LOSS, override=note)
    for given, text in (((True, "Ada", " "), "--why is missing"), ((False, "Ada", "x"), "belong to --override")):
        with pytest.raises(UserError, match=text):
            results.Override.of(*given)


EOS = 99


def tokens_of(lengths: Sequence[int]) -> NDArray[np.int64]:
    """Return the documents: i has `lengths[i]` tokens, each the number i, but for the last, which is EOS."""
    row = np.repeat(np.arange(len(lengths)), lengths)
    row[np.cumsum(lengths) - 1] = EOS
    return row


def write_blocks(folder: Path, lengths: Sequence[int] = (32,) * 30, length: int = 32, **changes: Any) -> Path:
    """Write prepared blocks of `tokens_of` in two shards; what fills no block is cut."""
    folder.mkdir(parents=True, exist_ok=True)
    row = tokens_of(lengths)
    count = len(row) // length
    shards = []
    for number, (first, last) in enumerate(((0, 7 * length), (7 * length, count * length))):
        file = folder / f"blocks-0000{number}.bin"
        file.write_bytes(row[first:last].astype("<u2").tobytes())
        shards.append({"file": file.name, "blocks": (last - first) // length, "sha256": files.sha256(file)})
    sizes = {"block_length": length, "blocks": count, "tokens": count * length, "vocab_size": 100, "eos": EOS}
    files.write_json(folder / "index.json", {"dtype": "uint16", **sizes, "shards": shards, **changes})
    return folder


class Tokenizer:
    """As much of a tokenizer as the reader of blocks asks for."""

    eos_token_id = EOS


def test_prepared_blocks_are_read_where_they_lie(phase_dict: dict[str, Any], tmp_path: Path) -> None:
    phase = phase_of(phase_dict, PRETRAIN, data={"heldout_rows": 4, "train_rows": None})
    blocks = prepared_blocks.load(write_blocks(tmp_path / "a"), phase, Tokenizer(), 4096)
    parts = [[block[0] for block in part.blocks] for part in (blocks.train, blocks.validation, blocks.heldout)]
    assert list(map(len, parts)) == [23, 3, 4] and set().union(*parts) == set(range(30))
    assert parts[0] == sorted(parts[0]) and blocks.train.blocks[7] == [parts[0][7]] * 31 + [EOS]
    assert blocks.heldout.topics[0] == f"document {parts[2][0] + 1} of a"
    few = phase_of(phase_dict, PRETRAIN, data={"heldout_rows": 4, "train_rows": 5})
    assert [block[0] for block in prepared_blocks.load(tmp_path / "a", few, Tokenizer(), 4096).train.blocks] == [
        parts[0][i * 23 // 5] for i in range(5)
    ]
    for changes, text in (
        ({"dtype": "int8"}, r"index.json: dtype is 'int8': must be uint16 or uint32"),
        ({"blocks": "many"}, r"blocks is 'many': must be a whole number"),
        ({"length": 64}, r"blocks have 64 tokens, phase.model.max_length is 32; set 64"),
        ({"blocks": 31}, r"the shards do not hold 31 blocks"),
        (
            {"shards": [{"file": "x"}]},
            r"shards must each have file, blocks, sha256; remove the folder and prepare",
        ),
        ({"eos": 3}, r"eos is 3, the tokenizer's is 99"),
        ({"vocab_size": 5000}, r"vocab_size is 5000, the model has 4096; use a larger model"),
    ):
        with pytest.raises(UserError, match=text):
            prepared_blocks.load(write_blocks(tmp_path / "b", **changes), phase, Tokenizer(), 4096)
    with pytest.raises(UserError, match=r"30 blocks in 30 documents are too few for 29 held out"):
        prepared_blocks.load(
            tmp_path / "a", phase_of(phase_dict, PRETRAIN, data={"heldout_rows": 29}), Tokenizer(), 4096
        )
    shard = tmp_path / "a" / "blocks-00001.bin"
    whole = shard.read_bytes()
    shard.write_bytes(b"\xff" + whole[1:])
    with pytest.raises(UserError, match=r"blocks-00001.bin: does not match index\.json"):
        prepared_blocks.open_blocks(tmp_path / "a", phase).verify()
    shard.write_bytes(whole[:-5])
    with pytest.raises(UserError, match=r"blocks-00001.bin: 1467 bytes, index.json says 1472"):
        prepared_blocks.open_blocks(tmp_path / "a", phase)


@pytest.mark.parametrize("heldout_rows", [None, 8])
def test_what_is_held_out_is_whole_documents_from_all_files_and_nothing_of_them_is_trained_on(
    phase_dict: dict[str, Any], tmp_path: Path, heldout_rows: int | None
) -> None:
    """A book lies over most blocks; the other documents begin and end anywhere in theirs."""
    lengths = np.random.default_rng(1).integers(3, 70, 90).tolist()
    lengths[40] = 1500
    folder = write_blocks(tmp_path / "a", lengths)
    row = tokens_of(lengths)
    stored = np.bincount(row[: len(row) // 32 * 32], minlength=100)
    data = {"heldout_rows": heldout_rows, "train_rows": None}
    found = []
    for seed in (1, 2):
        phase = phase_of(phase_dict, PRETRAIN, data=data, seed=seed)
        blocks = prepared_blocks.load(folder, phase, Tokenizer(), 4096)
        found.append([np.ravel([*part.blocks]) for part in (blocks.train, blocks.validation, blocks.heldout)])
    train, validation, heldout = found[0]
    assert all((one == other).all() for one, other in zip(*found, strict=True))  # the text decides, not the seed
    assert len(heldout) // 32 == (heldout_rows or round(0.1 * (stored.sum() // 32))) and len(validation) >= 32
    sides = [set(part.tolist()) - {EOS} for part in (train, validation, heldout)]
    assert not sides[0] & sides[1] and not sides[0] & sides[2] and not sides[1] & sides[2]
    assert 40 in sides[0] and min(sides[2]) < 40 < max(sides[2])  # of the first files as of the last
    for part, side in ((validation, sides[1]), (heldout, sides[2])):
        counts, last = np.bincount(part, minlength=100), part[part != EOS][-1]
        assert [counts[i] for i in side if i != last] == [stored[i] for i in side if i != last]
    left = np.array([i not in sides[1] | sides[2] for i in range(90)])
    dropped = np.bincount(train, minlength=100)[:90][left] - stored[:90][left]
    assert -64 < dropped.sum() <= 0 and (np.diff(train[train != EOS]) >= 0).all()


def test_blocks_of_another_tokenizer_are_refused(phase_dict: dict[str, Any], tmp_path: Path) -> None:
    """Retrained in place it keeps its size and its end of text, and everything else means something else."""
    phase = phase_of(phase_dict, PRETRAIN, stage={"tokenizer": "pvc:tokenizer"})
    for folder in ("model", "blocks"):
        (tmp_path / folder).mkdir()
    files.write_json(tmp_path / "blocks" / "report.json", {"plan": {"tokenizer": "new"}})
    for known in ({}, {"tokenizer": None}, {"tokenizer": "new"}):  # folders of before have no note
        files.write_json(tmp_path / "model" / "source.json", known)
        pretrain.check_tokenizer(phase, tmp_path / "model", tmp_path / "blocks")
    files.write_json(tmp_path / "model" / "source.json", {"tokenizer": "old"})
    with pytest.raises(
        UserError, match=r"names another tokenizer .*phase.stage.tokenizer pvc:tokenizer as it was then"
    ):
        pretrain.check_tokenizer(phase, tmp_path / "model", tmp_path / "blocks")


def test_documents_longer_than_what_is_held_out_are_refused(phase_dict: dict[str, Any], tmp_path: Path) -> None:
    phase = phase_of(phase_dict, PRETRAIN, data={"heldout_rows": 2, "train_rows": None})
    with pytest.raises(UserError, match=r"25 blocks in 5 documents are too few for 2 held out and \d+ for validation"):
        prepared_blocks.load(write_blocks(tmp_path / "a", [160] * 5), phase, Tokenizer(), 4096)


def test_pairs_are_given_or_broken_off_and_equal_ones_are_refused(phase_dict: dict[str, Any], tmp_path: Path) -> None:
    phase = phase_of(phase_dict, DPO, stage={"pairs": "given"})
    row = {"id": "a", "question": "Safe?", "chosen": "Yes, boil it.", "rejected": "No."}
    for side in ("train", "heldout"):
        (tmp_path / side).mkdir()
        (tmp_path / side / "water.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    train, _ = dpo.read_rows(phase, tmp_path)
    assert (train[0]["answer"], train[0]["rejected"], train[0]["topic"]) == ("Yes, boil it.", "No.", "water")
    again = {**row, "id": "a-1", "question": "safe?", "rejected": "Yes."}
    with (tmp_path / "train" / "water.jsonl").open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(again) + "\n")
    assert [each["id"] for each in dpo.read_rows(phase, tmp_path)[0]] == ["a", "a"], "one side of the validation"
    equal = {**row, "id": "b", "rejected": " Yes,  boil it. "}
    with (tmp_path / "train" / "water.jsonl").open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(equal) + "\n")
    with pytest.raises(UserError, match=r"water.jsonl:3: chosen and rejected are identical: 'Yes, boil it.'"):
        dpo.read_rows(phase, tmp_path)
    assert dpo.truncated_answers("x", "Boil the water, then let it cool.") == "Boil the water"
    with pytest.raises(UserError, match="row x: its answer is one word"):
        dpo.truncated_answers("x", "Never.")


def test_the_values_of_all_scales_follow_each_other() -> None:
    root = VALUES
    for scale, size in ((None, "7.39B"), ("demo", "139M"), ("local", "2.4M")):
        before = ""
        for name in STAGES:
            file = f"staged-{name}.yaml"
            phase = load_values([root / file, *([root / scale / file] if scale else [])]).phase
            assert (phase.stage.name, phase.parent) == (name, before)
            assert phase.model.source == f"{'parent' if before else 'init'}:llama-{size}"
            before = name
