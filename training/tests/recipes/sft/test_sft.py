"""The sft recipe on a random model: what is trained, what counts, and that resuming and ranks change nothing."""

import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from safetensors.torch import load_file
from trained import assert_same, weights
from trainlab import files
from trainlab.engine import checkpoints
from trainlab.engine import trainer as trainers
from trainlab.engine.trainer import TrainingJob
from trainlab.errors import UserError
from trainlab.models import chat
from trainlab.models.layers import unfreeze
from trainlab.progress import Progress
from trainlab.recipes import sft
from trainlab.serve import inference_engine
from transformers import AutoConfig, AutoModelForCausalLM
from trl import SFTTrainer

Make = Callable[..., TrainingJob]
TRAIN = {"epochs": 2, "batch_size": 4, "learning_rate": 0.01, "checkpoints": 2, "validation_fraction": 0.2}


@pytest.fixture
def make_job(tmp_path: Path, tiny_model: Path, phase_dict: dict[str, Any]) -> Make:
    """Return a function that makes a job in tmp_path/<name> with changed blocks of the phase."""
    return tiny.sft_jobs(phase_dict, tiny_model, tmp_path, train=TRAIN)


def test_only_the_last_layers_and_an_untied_head_change(make_job: Make, tiny_model: Path) -> None:
    job = make_job()
    summary = sft.fit(job)
    before, after = load_file(tiny_model / "model.safetensors"), weights(job.run_dir)
    changed = {name for name, tensor in after.items() if not torch.equal(tensor, before.get(name, torch.zeros(1)))}
    assert changed == {name for name in after if ".layers.1." in name} | {"lm_head.weight"}
    assert not torch.equal(after["lm_head.weight"], after["model.embed_tokens.weight"])
    assert summary["parameters"]["trainable"] == sum(after[name].numel() for name in changed)
    # 12 questions, 20 % of them (2) validate; 20 rows in batches of 4, twice
    assert (summary["rows"], summary["validation_rows"], summary["steps"]) == (20, 4, 10)
    assert summary["effective_batch"] == 4 and summary["last_loss"] < summary["first_loss"]
    history = files.read_json(job.run_dir / "training_history.json")
    assert [h["step"] for h in history if "loss" in h] == list(range(1, 11))
    assert [h["step"] for h in history if "eval_loss" in h] == [5, 10]
    assert list((job.run_dir / "tensorboard").iterdir())
    model, _ = chat.load_tuned(job.run_dir, job.phase)
    assert not model.config.tie_word_embeddings and torch.equal(model.lm_head.weight, after["lm_head.weight"])


def test_a_tied_head_stays_tied_through_training_and_loading(make_job: Make) -> None:
    job = make_job(unfreeze={"layers": 1, "tie_word_embeddings": True})
    sft.fit(job)
    model, _ = chat.load_tuned(job.run_dir, job.phase)
    assert model.config.tie_word_embeddings and model.lm_head.weight is model.model.embed_tokens.weight
    assert "lm_head.weight" not in weights(job.run_dir)


def test_resumed_is_uninterrupted(make_job: Make, tmp_path: Path) -> None:
    sft.fit(make_job("whole"))
    first = make_job("broken")
    sft.fit(first)
    shutil.rmtree(first.run_dir / "best_model")
    summary = sft.fit(make_job("broken"))
    assert summary["resumed_from_step"] == 5 and summary["steps"] == 10
    assert_same(tmp_path / "whole", tmp_path / "broken")


def test_a_truncated_checkpoint_is_not_resumed_from(make_job: Make, capsys: pytest.CaptureFixture[str]) -> None:
    sft.fit(make_job(train={"checkpoints": 4}))
    job = make_job(train={"checkpoints": 4})
    last = job.run_dir / "checkpoints" / "checkpoint-9" / "model.safetensors"
    last.write_bytes(last.read_bytes()[:100])
    job.progress = Progress(True)
    assert sft.fit(job)["resumed_from_step"] == 6
    assert "checkpoint-9 is skipped: model.safetensors has 100 of" in capsys.readouterr().out


def test_accumulation_is_a_larger_batch(make_job: Make, tmp_path: Path) -> None:
    plain = sft.fit(make_job("plain"))
    split = sft.fit(make_job("split", train={"batch_size": 2, "gradient_accumulation": 2}))
    assert plain["effective_batch"] == split["effective_batch"] == 4
    assert_same(tmp_path / "plain", tmp_path / "split", tolerance=1e-4)


def test_cached_activations_change_nothing(make_job: Make, tmp_path: Path) -> None:
    sft.fit(make_job("plain"))
    sft.fit(make_job("cached", train={"cache_frozen_activations": True}))
    losses = [
        [h["loss"] for h in files.read_json(tmp_path / name / "training_history.json") if "loss" in h]
        for name in ("plain", "cached")
    ]
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)
    assert_same(tmp_path / "plain", tmp_path / "cached", tolerance=1e-4)


FAMILIES: dict[str, dict[str, Any]] = {
    "granite": {"embedding_multiplier": 12.0, "residual_multiplier": 0.22, "attention_multiplier": 0.125},
    "gemma": {"head_dim": 8},
    "gemma2": {"head_dim": 8, "sliding_window": 16},
    "gemma3_text": {"head_dim": 8, "sliding_window": 16},
    "phi": {"embd_pdrop": 0.0, "resid_pdrop": 0.0},
    "phi3": {},
}
"""What a family does to the embeddings before its first layer, and between layers; as small as the tiny Llama."""


def family_model(folder: Path, tiny_model: Path, family: str) -> Path:
    """Write a random model of a family to `folder`, with the tokenizer of the tiny Llama."""
    shutil.copytree(tiny_model, folder)
    (folder / "model.safetensors").unlink()
    llama = files.read_json(folder / "config.json")
    kept = (
        *("vocab_size", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads"),
        *("max_position_embeddings", "initializer_range", "bos_token_id", "eos_token_id", "pad_token_id"),
    )
    shape = {**{key: llama[key] for key in kept}, "num_hidden_layers": 3, "tie_word_embeddings": True}
    torch.manual_seed(0)
    config = AutoConfig.for_model(family, **shape, **FAMILIES[family])
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return folder


SHARING = {
    **{"head_dim": 8, "global_head_dim": 8, "sliding_window": 16, "num_kv_shared_layers": 1},
    **{"layer_types": ["sliding_attention", "full_attention", "full_attention"]},
    **{"vocab_size_per_layer_input": 300, "hidden_size_per_layer_input": 8},
}
"""A family whose last layer takes keys and values from a layer below it."""


@pytest.mark.parametrize("family", FAMILIES)
def test_cached_activations_change_nothing_in_other_families(
    family: str, make_job: Make, tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, made = family_model(tmp_path / family, tiny_model, family), tiny.counted_caches(monkeypatch)
    losses = []
    for name, cached in (("plain", False), ("cached", True)):
        train = {"epochs": 1, "checkpoints": 1, "validation_fraction": 0, "cache_frozen_activations": cached}
        job = make_job(name, train=train)
        job.model, _ = chat.load_base(folder, job.phase)
        sft.fit(job)
        history = files.read_json(tmp_path / name / "training_history.json")
        losses.append([entry["loss"] for entry in history if "loss" in entry])
    assert losses[0] == pytest.approx(losses[1], abs=1e-4) and len(made) == 1


def test_layers_that_need_those_below_are_refused_with_cached_activations(
    make_job: Make, tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FAMILIES, "gemma4_text", SHARING)
    folder = family_model(tmp_path / "gemma4", tiny_model, "gemma4_text")
    job = make_job(train={"cache_frozen_activations": True})
    job.model, _ = chat.load_base(folder, job.phase)
    with pytest.raises(
        UserError, match=r"^phase.train.cache_frozen_activations is true: .* Gemma4ForCausalLM .*set false$"
    ):
        sft.fit(job)


def test_bfloat16_trains_float32_copies_of_what_is_trained(make_job: Make) -> None:
    job = make_job(model={"dtype": "bfloat16"})
    summary = sft.fit(job)
    assert summary["dtype"] == "bfloat16" and summary["last_loss"] < summary["first_loss"]
    assert {tensor.dtype for tensor in weights(job.run_dir).values()} == {torch.bfloat16}
    assert next(p for p in job.model.parameters() if p.requires_grad).dtype == torch.float32


def test_rows_of_a_pass_of_the_model_are_of_one_length(make_job: Make) -> None:
    """The rows of a step are drawn by the phase's seed; short ones and long ones go through the model apart."""
    steps: dict[int, list[list[int]]] = {}
    for seed in (7, 8):
        job = make_job(f"seed-{seed}", seed=seed, train={"batch_size": 2, "gradient_accumulation": 2})
        trainer = sft.build(job, job.rows, [])
        passes = [list(part["attention_mask"].sum(1)) for part in trainer.get_train_dataloader()]
        order = list(trainer.get_train_dataloader().batch_sampler)
        assert sorted(i for part in order for i in part) == list(range(len(job.rows)))
        steps[seed] = [sorted(order[i] + order[i + 1]) for i in range(0, len(order), 2)]
        for first, second in zip(passes[::2], passes[1::2], strict=True):
            assert min(first) >= max(second) or min(second) >= max(first)
    assert steps[7] != steps[8]


@pytest.mark.parametrize(
    ("able", "wanted"),
    [({"avx512_bf16": True}, torch.bfloat16), ({"amx_bf16": True}, torch.bfloat16), ({"avx2": True}, torch.float32)],
)
def test_auto_is_bfloat16_where_the_processor_multiplies_in_it(
    make_job: Make, monkeypatch: pytest.MonkeyPatch, able: dict[str, bool], wanted: torch.dtype
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: able)
    job = make_job(model={"dtype": "auto"})
    assert job.model.dtype == wanted
    assert sft.fit(job)["dtype"] == str(wanted).removeprefix("torch.")


@pytest.mark.parametrize("lora", [{}, {"rank": 4, "layers": 1}], ids=["weights", "adapter"])
def test_what_computes_what_is_saved_and_what_serves_are_three_settings(
    make_job: Make, tiny_model: Path, lora: dict[str, Any]
) -> None:
    blocks: dict[str, Any] = {"lora": lora} if lora else {}
    job = make_job(model={"dtype": "bfloat16", "saved_dtype": "float32"}, serve={"dtype": "float32"}, **blocks)
    assert sft.fit(job)["dtype"] == "bfloat16"
    (file,) = job.run_dir.glob("*/*model.safetensors")
    trained = [name for name in load_file(file) if ".layers.1." in name]
    assert {load_file(file)[name].dtype for name in trained} == {torch.float32}
    narrowed = load_file(file)[trained[0]].bfloat16().float()
    assert not torch.equal(load_file(file)[trained[0]], narrowed), "saved as float32 after it was rounded"
    scored, _ = chat.load_tuned(job.run_dir, job.phase, tiny_model)
    assert scored.dtype == torch.bfloat16
    engine = inference_engine.load(job.phase, tiny_model.parent, job.run_dir)
    assert {hosted.model.dtype for hosted in engine._hosted.values()} == {torch.float32}


def test_loss_counts_answer_and_eos_only(make_job: Make) -> None:
    job = make_job()
    unfreeze(job.model, job.phase)
    trainer = sft.build(job, job.rows[:4], [])
    batch = next(iter(trainer.get_train_dataloader()))
    for ids, labels in zip(batch["input_ids"], batch["labels"], strict=True):
        text = str(job.tokenizer.decode(ids[labels != -100]))
        assert text.startswith("boil ") and text.endswith("<|im_end|>")
        assert (labels[ids == job.tokenizer.pad_token_id] == -100).all()


@pytest.mark.parametrize(
    ("set_to", "betas"), [({}, (0.9, 0.999)), ({"adam_beta1": 0.8, "adam_beta2": 0.95}, (0.8, 0.95))]
)
def test_adams_betas_are_those_of_the_phase(
    set_to: dict[str, float], betas: tuple[float, float], make_job: Make
) -> None:
    job = make_job(train=set_to)
    unfreeze(job.model, job.phase)
    trainer = sft.build(job, job.rows[:4], [])
    assert {group["betas"] for group in trainer.create_optimizer().param_groups} == {betas}


def test_each_step_says_its_tokens_per_second_from_the_first_step_on(
    make_job: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make_job(train={"cache_frozen_activations": True})
    fill, filled = trainers.cache_activations, []

    def slow(*given: Any) -> Any:
        cache = fill(*given)
        time.sleep(1)
        filled.append(time.monotonic())
        return cache

    monkeypatch.setattr(trainers, "cache_activations", slow)
    lines: list[str] = []
    job.progress.at = lambda numbers: lines.append(numbers.text())  # type: ignore[method-assign]
    summary = sft.fit(job)
    seconds = time.monotonic() - filled[0]
    last = re.fullmatch(r"step 10/10 loss [0-9.]+ (\d+) tokens/s eta 0 s", lines[-1])
    assert last is not None, lines
    assert int(last[1]) + 1 > summary["tokens"] * 9 / 10 / seconds, "the pass that fills the cache is counted"
    assert summary["samples_per_second"] > 40 / summary["seconds"]


def test_the_loss_of_answers_is_trls_loss(make_job: Make) -> None:
    job = make_job("alike", train={"batch_size": 4})
    trainer = sft.build(job, job.rows, [])
    trainer.model.train()
    for batch in trainer.get_train_dataloader():
        found = []
        for loss_of in (type(trainer).compute_loss, SFTTrainer.compute_loss):
            trainer.model.zero_grad()
            loss = loss_of(trainer, trainer.model, dict(batch), False, torch.tensor(100))
            loss.backward()
            grads = [each.grad.clone() for each in trainer.model.parameters() if each.grad is not None]
            found.append((loss.detach(), grads))
        assert torch.allclose(found[0][0], found[1][0], rtol=1e-5)
        assert all(torch.allclose(*pair, rtol=1e-3, atol=1e-6) for pair in zip(found[0][1], found[1][1], strict=True))
        tokens = trainer._metrics["train"]["num_tokens"]
        assert tokens[-1] == trainer._total_train_tokens > 0


def test_a_full_volume_ends_with_a_sentence_and_keeps_the_last_good(
    make_job: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make_job(train={"checkpoints": 3})
    save = job.model.save_pretrained

    def full(folder: str, **kwargs: Any) -> None:
        if str(folder).endswith("checkpoint-8"):
            raise OSError(28, "No space left on device")
        save(folder, **kwargs)

    monkeypatch.setattr(job.model, "save_pretrained", full)
    with pytest.raises(checkpoints.DiskFull, match=r"the volume is full while checkpoint-8 .* is .*checkpoint-4;"):
        sft.fit(job)
    assert checkpoints.last_good(job.run_dir / "checkpoints", print) == job.run_dir / "checkpoints" / "checkpoint-4"


def test_more_layers_than_the_model_has(make_job: Make) -> None:
    with pytest.raises(Exception, match=r"phase.unfreeze.layers is 3: the model has 2 layers"):
        sft.fit(make_job(unfreeze={"layers": 3}))


@pytest.mark.parametrize(("count", "steps"), [(1, [10]), (2, [5, 10]), (3, [4, 8, 10]), (4, [3, 6, 9, 10])])
def test_validations_are_spread_evenly_and_all_but_the_last_are_saved(
    make_job: Make, count: int, steps: list[int]
) -> None:
    job = make_job(train={"checkpoints": count, "keep_checkpoints": 4})
    sft.fit(job)
    assert [checkpoints.step(path) for path in checkpoints.listed(job.run_dir / "checkpoints")] == steps[:-1]
    history = files.read_json(job.run_dir / "training_history.json")
    assert [entry["step"] for entry in history if "eval_loss" in entry] == steps
