"""LoRA in the sft recipe on a random model: what trains, what is left behind, and that merging and resuming change nothing."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from peft import PeftModel
from safetensors.torch import load_file
from slow import but_the_first
from trainlab import files
from trainlab.data import chat_rows
from trainlab.engine.trainer import TrainingJob
from trainlab.errors import UserError
from trainlab.evaluation import answer_gate, answer_score
from trainlab.models import chat, layers
from trainlab.recipes import sft
from trainlab.run import results

Make = Callable[..., TrainingJob]
TRAIN = {"epochs": 2, "batch_size": 4, "learning_rate": 0.02, "checkpoints": 2, "validation_fraction": 0.2}
LINEAR = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}


@pytest.fixture
def make_job(tmp_path: Path, tiny_model: Path, phase_dict: dict[str, Any]) -> Make:
    """Return a function that makes a job with adapters of rank 4 in tmp_path/<name>."""
    return tiny.sft_jobs(phase_dict, tiny_model, tmp_path, train=TRAIN, lora={"rank": 4, "alpha": 8})


def adapter(run_dir: Path) -> dict[str, torch.Tensor]:
    return load_file(run_dir / "lora_adapter" / "adapter_model.safetensors")


@pytest.mark.parametrize("cached", [False, True])
def test_activations_that_are_computed_again_change_nothing(
    make_job: Make, cached: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tiny.counted_caches(monkeypatch)
    train, lora = {"cache_frozen_activations": cached}, {"layers": 1} if cached else {}
    kept, again = (
        make_job(str(wish), lora=lora, train={**train, "gradient_checkpointing": wish}) for wish in (False, True)
    )
    for job in (kept, again):
        sft.fit(job)
    assert len(made) == 2 * cached
    first, second = adapter(kept.run_dir), adapter(again.run_dir)
    assert first.keys() == second.keys() and all(torch.allclose(first[name], second[name], atol=1e-6) for name in first)
    assert any(value.abs().max() > 0 for name, value in second.items() if "lora_B" in name), "the gradient flows"


def test_only_adapters_train_and_only_they_are_left(make_job: Make, tiny_model: Path) -> None:
    job = make_job()
    summary = sft.fit(job)
    base = load_file(tiny_model / "model.safetensors")
    kept = {name: value for name, value in job.model.state_dict().items() if "lora_" not in name}
    assert len(kept) >= len(base)
    for name, value in base.items():
        (held,) = [v for k, v in kept.items() if k.replace(".base_layer", "").removeprefix("base_model.model.") == name]
        assert torch.equal(held, value), name
    trained = {name for name, p in job.model.named_parameters() if p.requires_grad}
    assert all("lora_" in name for name in trained) and {name.split(".")[-4] for name in trained} == LINEAR
    saved = adapter(job.run_dir)
    assert summary["parameters"]["trainable"] == sum(tensor.numel() for tensor in saved.values())
    assert all(float(tensor.abs().max()) > 0 for name, tensor in saved.items() if "lora_B" in name)
    assert summary["last_loss"] < summary["first_loss"] and (summary["rows"], summary["steps"]) == (20, 10)
    assert not (job.run_dir / "best_model").exists()
    names = {path.name for path in (job.run_dir / "lora_adapter").iterdir()}
    assert {"adapter_config.json", "adapter_model.safetensors", "tokenizer.json"} <= names and "README.md" not in names


def test_the_config_names_the_source_and_no_folder(make_job: Make) -> None:
    job = make_job(model={"source": f"hf:some/model@{'a' * 40}"})
    sft.fit(job)
    text = (job.run_dir / "lora_adapter" / "adapter_config.json").read_text()
    config = json.loads(text)
    assert (config["base_model_name_or_path"], config["revision"]) == ("some/model", "a" * 40)
    assert config["r"] == 4 and config["lora_alpha"] == 8 and config["inference_mode"] is True
    assert set(config["target_modules"]) == LINEAR and str(job.run_dir.parent.parent) not in text


def test_adapter_is_merged_model(make_job: Make, tiny_model: Path) -> None:
    job = make_job()
    sft.fit(job)
    tuned, tokenizer = chat.load_tuned(job.run_dir, job.phase, tiny_model)
    other, _ = chat.load_base(tiny_model, job.phase)
    merged: Any = PeftModel.from_pretrained(other, job.run_dir / "lora_adapter")
    merged = merged.merge_and_unload()
    base, _ = chat.load_base(tiny_model, job.phase)
    ids = torch.tensor([chat.prompt_ids(tokenizer, job.phase, "fire 1?")])
    with torch.inference_mode():
        one, two, three = (model(input_ids=ids).logits for model in (tuned, merged, base))
    assert torch.allclose(one, two, atol=1e-4) and not torch.allclose(one, three, atol=1e-2)


def test_untrained_adapters_are_the_base_model(make_job: Make, tiny_model: Path) -> None:
    job = make_job()
    before, _ = chat.load_base(tiny_model, job.phase)
    after, _ = layers.add_lora(job.model, job.phase)
    ids = torch.arange(10)[None]
    assert torch.equal(before(input_ids=ids).logits, after.eval()(input_ids=ids).logits)


@pytest.mark.parametrize("dropout", but_the_first([0.3, 0.0]))
def test_resumed_is_uninterrupted(make_job: Make, tmp_path: Path, dropout: float) -> None:
    settings: dict[str, Any] = {"lora": {"dropout": dropout}}
    sft.fit(make_job("whole", **settings))
    first = make_job("broken", **settings)
    sft.fit(first)
    shutil.rmtree(first.run_dir / "lora_adapter")
    summary = sft.fit(make_job("broken", **settings))
    assert summary["resumed_from_step"] == 5 and summary["steps"] == 10
    one, two = adapter(tmp_path / "whole"), adapter(tmp_path / "broken")
    assert one.keys() == two.keys() and max(float((one[k] - two[k]).abs().max()) for k in one) < 1e-6


def test_the_best_checkpoint_is_kept_not_the_last(make_job: Make) -> None:
    job = make_job(train={"epochs": 4, "checkpoints": 4, "keep_checkpoints": 4})
    _, validation = chat_rows.split_by_question(job.rows, job.phase.train.validation_fraction, job.phase.seed)
    ids = {row["id"] for row in validation}
    # What is validated on is the opposite of what is trained on, so more training is worse.
    job.rows = [{**row, "answer": "%&%&%&"} if row["id"] in ids else row for row in job.rows]
    summary = sft.fit(job)
    history = [h for h in files.read_json(job.run_dir / "training_history.json") if "eval_loss" in h]
    assert summary["validation_loss"] == min(h["eval_loss"] for h in history)
    assert summary["best_step"] < summary["steps"] == 20
    best = load_file(job.run_dir / "checkpoints" / f"checkpoint-{summary['best_step']}" / "adapter_model.safetensors")
    for name, tensor in adapter(job.run_dir).items():
        assert torch.equal(tensor, best[name]), name


def test_bfloat16_base_with_float32_adapters(make_job: Make, tiny_model: Path) -> None:
    job = make_job(model={"dtype": "bfloat16"})
    sft.fit(job)
    assert {p.dtype for p in job.model.parameters() if p.requires_grad} == {torch.float32}
    assert {tensor.dtype for tensor in adapter(job.run_dir).values()} == {torch.bfloat16}
    tuned, _ = chat.load_tuned(job.run_dir, job.phase, tiny_model)
    assert {p.dtype for p in tuned.parameters()} == {torch.bfloat16}, "what is scored is what is served"


def test_some_targets_and_a_target_that_is_not_there(make_job: Make) -> None:
    job = make_job(lora={"target_modules": ["q_proj", "v_proj"]})
    sft.fit(job)
    assert {name.split(".")[-3] for name in adapter(job.run_dir)} == {"q_proj", "v_proj"}
    with pytest.raises(UserError, match=r"phase.lora.target_modules: the model has no linear layer 'qkv'; it has "):
        sft.fit(make_job("odd", lora={"target_modules": ["qkv"]}))


def test_adapters_in_the_last_layers_train_alike_on_cached_activations(
    make_job: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tiny.counted_caches(monkeypatch)
    sft.fit(make_job("plain", lora={"layers": 1}))
    sft.fit(make_job("cached", lora={"layers": 1}, train={"cache_frozen_activations": True}))
    assert len(made) == 1
    one, two = adapter(tmp_path / "plain"), adapter(tmp_path / "cached")
    assert {name.split(".layers.")[1].split(".")[0] for name in one} == {"1"}, "of two layers"
    assert one.keys() == two.keys() and max(float((one[k] - two[k]).abs().max()) for k in one) < 1e-4
    with pytest.raises(UserError, match=r"phase\.lora\.layers is 3: the model has 2 layers; set it to at most that"):
        sft.fit(make_job("odd", lora={"layers": 3}))


def test_no_adapter_is_said(make_job: Make, tiny_model: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="lora_adapter: no adapter; has the run finished"):
        chat.load_tuned(tmp_path, make_job().phase, tiny_model)


def test_verses_are_scored_by_loss_and_form_and_gated(make_job: Make, tiny_model: Path, tmp_path: Path) -> None:
    for side in ("train", "heldout"):
        (tmp_path / "verses" / side).mkdir(parents=True)
        rows = [
            {
                "id": f"c-{side}{i}",
                "style": "wry",
                "theme": "t",
                "form": "couplet",
                "instruction": f"Write {i}.",
                "verse": "a\nb",
            }
            for i in range(6)
        ]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / "verses" / side / "couplet.jsonl").write_text(text, encoding="utf-8")
    job = make_job(answer_gate={"metric": "form_adherence"})
    train, heldout = (
        load(job.phase.data, tmp_path / "verses") for load in (chat_rows.load_train, chat_rows.load_heldout)
    )
    assert train[0] == {"id": "c-train0", "topic": "couplet", "question": "Write 0.", "answer": "a\nb"}
    assert [row["form"] for row in heldout] == ["couplet"] * 6 and heldout[0]["facts"] == []
    scores = answer_score.score(job.model, job.tokenizer, job.phase, heldout, say=lambda _: None)
    assert scores["fact_recall"] is None and 0 <= scores["form_adherence"] <= 1 and scores["answer_loss"] > 0
    decision = answer_gate.decide(scores, scores, job.phase)
    assert (decision["verdict"], decision["promoted"], decision["gain"]["pairs"]) == ("no difference", False, 6)


def test_a_run_with_an_adapter_is_finished(tmp_path: Path) -> None:
    for name in ("lora_adapter/adapter_config.json", "eval_after.json", "gate.json", "report.json"):
        files.write_json(tmp_path / name, {})
    assert not results.finished(tmp_path)
    files.write_json(tmp_path / "manifest.json", {"ended": "now"})
    assert results.finished(tmp_path)


def test_packed_rows_do_not_see_each_other_and_lose_nothing(make_job: Make) -> None:
    plain, packed = make_job("plain"), make_job("packed", train={"packing": True, "batch_size": 1})
    losses, batches = [], []
    for job in (plain, packed):
        trainer = sft.build(job, job.rows, [])
        parts = list(trainer.get_train_dataloader())
        logits = [job.model(**{k: v for k, v in part.items() if k != "labels"}).logits[:, :-1] for part in parts]
        labels = torch.cat([part["labels"][:, 1:].reshape(-1) for part in parts])
        flat = torch.cat([logit.reshape(-1, logit.shape[-1]) for logit in logits])
        losses.append(torch.nn.functional.cross_entropy(flat, labels, reduction="sum", ignore_index=-100))
        batches.append((parts, int((labels != -100).sum())))
    assert torch.allclose(losses[0], losses[1], rtol=1e-4), "the same rows have the same losses"
    assert batches[0][1] == batches[1][1] > 0
    (packs, _) = batches[1]
    assert len(packs) < len(plain.rows) / 2 and all(pack["input_ids"].shape[1] <= 512 for pack in packs)
    ids, positions = packs[0]["input_ids"], packs[0]["position_ids"]
    (starts,) = torch.where(positions[0] == 0)
    changed = ids.clone()
    changed[0, : starts[1]] = changed[0, : starts[1]].flip(0)
    before, after = (packed.model(input_ids=one, position_ids=positions).logits for one in (ids, changed))
    assert torch.allclose(before[0, starts[1] :], after[0, starts[1] :], atol=1e-5)
    assert not torch.allclose(before[0, : starts[1]], after[0, : starts[1]], atol=1e-2)


@pytest.mark.slow
def test_a_packed_run_trains_and_resumes(make_job: Make, tmp_path: Path) -> None:
    settings = {"packing": True, "batch_size": 1, "epochs": 6}
    whole = sft.fit(make_job("whole", train=settings))
    assert whole["last_loss"] < whole["first_loss"] and whole["validation_loss"] > 0
    job = make_job("broken", train=settings)
    sft.fit(job)
    shutil.rmtree(job.run_dir / "lora_adapter")
    again = sft.fit(make_job("broken", train=settings))
    assert 0 < again["resumed_from_step"] < again["steps"] == whole["steps"]
    one, two = adapter(tmp_path / "whole"), adapter(tmp_path / "broken")
    assert max(float((one[k] - two[k]).abs().max()) for k in one) < 1e-6
