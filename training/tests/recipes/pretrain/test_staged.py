"""Stages on a random model: what trains, and that resuming, packing, compiling and precomputing change nothing."""

import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from safetensors.torch import load_file
from stages import DPO, PRETRAIN, SFT, phase_of
from tiny import train, write_data, write_text
from trained import assert_same, weights
from trainlab import cli, files, recipes
from trainlab.config.methods import CurriculumStep
from trainlab.engine import acceleration
from trainlab.engine.trainer import TrainingJob, length_at
from trainlab.errors import UserError
from trainlab.models import chat, parents
from trainlab.recipes import cpt, dpo, pretrain, sft
from trainlab.recipes.base import Run
from trainlab.run import launch, results, worker


def test_the_drawn_model_has_the_counted_size_and_a_tokenizer_that_can_chat(
    phase_dict: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_text(tmp_path / "text.jsonl")
    phase = phase_of(phase_dict, PRETRAIN)
    folder = pretrain.fetch(phase, tmp_path, None)
    assert "drew 2,410,176 parameters" in capsys.readouterr().err
    assert pretrain.fetch(phase, tmp_path, None) == folder and not capsys.readouterr().err
    other = pretrain.fetch(phase_of(phase_dict, PRETRAIN, seed=7), tmp_path, None)
    states = [load_file(path / "model.safetensors") for path in (folder, other)]
    assert not torch.equal(states[0]["model.embed_tokens.weight"], states[1]["model.embed_tokens.weight"])
    model, tokenizer = chat.load_base(folder, phase_of(phase_dict, SFT))  # a later stage needs a chat template
    assert model.config.tie_word_embeddings and tokenizer.pad_token_id != tokenizer.eos_token_id
    text = "with é and 水: as it was"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    pretrain.check_text(phase, folder, tmp_path / "text.jsonl")
    with (tmp_path / "text.jsonl").open("a", encoding="utf-8") as stream:
        stream.write(json.dumps({"id": 99, "body": "one more document"}) + "\n")
    with pytest.raises(UserError, match=r"text.jsonl is not the text that the tokenizer in .* was trained on; remove"):
        pretrain.check_text(phase, folder, tmp_path / "text.jsonl")


CURRICULUM = [{"length": 8, "share": 0.5}, {"length": 32, "share": 0.5}]


def make_text_job(base: dict[str, Any], folder: Path, tiny_model: Path, name: str, **blocks: Any) -> TrainingJob:
    phase = phase_of(base, PRETRAIN, **blocks)
    return tiny.make_job(phase, tiny_model, write_text(folder / "text.jsonl"), folder / name)


def test_the_curriculum_cuts_blocks_and_counts_what_it_predicts(
    phase_dict: dict[str, Any], tmp_path: Path, tiny_model: Path
) -> None:
    curriculum = tuple(CurriculumStep.model_validate(one) for one in CURRICULUM)
    assert [length_at(curriculum, step, 10) for step in (0, 4, 5, 9)] == [8, 8, 32, 32]
    job = make_text_job(phase_dict, tmp_path, tiny_model, "run", stage={"curriculum": CURRICULUM})
    seen: list[tuple[int, ...]] = []
    job.model.model.register_forward_pre_hook(
        lambda _module, _args, named: seen.append(tuple(named["input_ids"].shape)) if job.model.training else None,
        with_kwargs=True,
    )
    summary = train(job)
    assert seen[:5] == [(16, 8)] * 5 and seen[5:10] == [(4, 32)] * 5
    assert [one["length"] for one in summary["curriculum"]] == [8, 32] and summary["recipe"] == "pretrain"
    assert not any("_orig_mod" in name for name in weights(job.run_dir))


def test_the_loss_of_cut_blocks_is_the_loss_of_short_sequences(
    phase_dict: dict[str, Any], tmp_path: Path, tiny_model: Path
) -> None:
    job = make_text_job(phase_dict, tmp_path, tiny_model, "run")
    ids = torch.tensor(job.rows.train.blocks[:4])
    short = ids.view(-1, 8)
    with torch.no_grad():
        expected = float(job.model(input_ids=short, labels=short).loss)
    trainer = cpt.build(job)
    trainer.curriculum = (CurriculumStep(length=8, share=1),)
    trainer.state.max_steps = 10
    batch, counted = {"input_ids": ids, "labels": ids}, torch.tensor(4 * 31)  # as the Trainer counts whole blocks
    loss = trainer.compute_loss(job.model.train(), batch, num_items_in_batch=counted)
    assert float(loss) == pytest.approx(expected, abs=1e-5)


@pytest.mark.slow
def test_resumed_pretraining_is_uninterrupted_pretraining(
    phase_dict: dict[str, Any], tmp_path: Path, tiny_model: Path
) -> None:
    for name in ("whole", "broken"):
        train(make_text_job(phase_dict, tmp_path, tiny_model, name, stage={"curriculum": CURRICULUM}))
    shutil.rmtree(tmp_path / "broken" / "best_model")
    again = train(make_text_job(phase_dict, tmp_path, tiny_model, "broken", stage={"curriculum": CURRICULUM}))
    assert again["resumed_from_step"] == 5 and again["steps"] == 10
    assert_same(tmp_path / "whole", tmp_path / "broken")


@pytest.mark.rest
def test_compiled_layers_keep_the_names_of_all_weights(
    phase_dict: dict[str, Any], tmp_path: Path, tiny_model: Path
) -> None:
    job = make_text_job(phase_dict, tmp_path, tiny_model, "run")
    names = set(job.model.state_dict())
    ids = torch.tensor(job.rows.train.blocks[:2])
    with torch.no_grad():
        before = job.model(input_ids=ids).logits
        acceleration.compile_layers(job.model, backend="eager")
        assert torch.allclose(job.model(input_ids=ids).logits, before, atol=1e-5)
    assert all(layer._compiled_call_impl is not None for layer in job.model.model.layers)
    assert set(job.model.state_dict()) == names
    train(job)
    assert not any("_orig_mod" in name for name in weights(job.run_dir))
    checkpoint = tmp_path / "run" / "checkpoints" / "checkpoint-5" / "model.safetensors"
    assert not any("_orig_mod" in name for name in load_file(checkpoint))


def test_fp8_multiplies_nearly_as_bfloat16_does_and_keeps_the_names(
    phase_dict: dict[str, Any], tmp_path: Path, tiny_model: Path
) -> None:
    job = make_text_job(phase_dict, tmp_path, tiny_model, "run")
    ids = torch.tensor(job.rows.train.blocks[:2])

    def step() -> tuple[float, torch.Tensor]:
        job.model.zero_grad()
        loss = job.model(input_ids=ids, labels=ids).loss
        loss.backward()
        return float(loss), job.model.model.layers[0].mlp.up_proj.weight.grad.float().flatten()

    job.model.to(torch.bfloat16)
    names, (loss, gradient) = set(job.model.state_dict()), step()
    acceleration.convert(job.model)
    kinds = {name: type(part).__name__ for name, part in job.model.named_modules() if isinstance(part, torch.nn.Linear)}
    assert kinds.pop("lm_head") == "Linear" and set(kinds.values()) == {"Float8Linear"}
    eight, near = step()
    assert eight != loss and abs(eight - loss) < 0.02 * loss
    assert torch.nn.functional.cosine_similarity(gradient, near, dim=0) > 0.95
    train(job)
    assert set(job.model.state_dict()) == names


def test_wishes_that_need_gpus_are_refused_without(phase_dict: dict[str, Any], tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    for key, lack in (("fsdp", "several GPUs"), ("compile", "a GPU")):
        gpus = {"gpus_per_node": 2, "processes_per_node": 2}
        phase = phase_of(phase_dict, PRETRAIN, stage={key: True}, resources=gpus)
        with pytest.raises(UserError, match=rf"phase.stage.{key} is true: needs {lack}"):
            acceleration.prepare(None, phase, tmp_path, lambda _: None)
    said: list[str] = []
    acceleration.prepare(None, phase_of(phase_dict, PRETRAIN, stage={"fp8": "auto"}), tmp_path, said.append)
    assert said == ["fp8: off: no GPU"] and acceleration.chosen_fp8(tmp_path) == {"on": False, "reason": "no GPU"}


def make_job(
    base: dict[str, Any], kind: dict[str, Any], folder: Path, tiny_model: Path, name: str, **blocks: Any
) -> Any:
    return tiny.make_job(phase_of(base, kind, **blocks), tiny_model, write_data(folder / "data"), folder / name)


def test_a_stage_trains_all_weights_and_packed_rows_do_not_see_each_other(
    phase_dict: dict[str, Any], tmp_path: Path, tiny_model: Path
) -> None:
    job = make_job(phase_dict, SFT, tmp_path, tiny_model, "run", train={"packing": True}, model={"max_length": 512})
    rows = job.rows[:3]
    job.model.requires_grad_(True)
    trainer = sft.build(job, rows, [])
    batch = next(iter(trainer.get_train_dataloader()))
    assert batch["input_ids"].shape[0] == 1 and int((batch["position_ids"] == 0).sum()) == 3
    with torch.no_grad():
        packed = job.model(input_ids=batch["input_ids"], position_ids=batch["position_ids"], use_cache=False).logits[0]
        starts = [*(batch["position_ids"][0] == 0).nonzero().flatten().tolist(), batch["input_ids"].shape[1]]
        for first, last in itertools.pairwise(starts):
            alone = job.model(input_ids=batch["input_ids"][:, first:last], use_cache=False).logits[0]
            assert torch.allclose(packed[first:last], alone, atol=1e-4)
    job = make_job(phase_dict, SFT, tmp_path, tiny_model, "all")
    summary = train(job)
    old, new = load_file(tiny_model / "model.safetensors"), weights(job.run_dir)
    assert summary["parameters"]["share"] == 1 and old.keys() == new.keys()
    assert all(not torch.equal(tensor, old[name]) for name, tensor in new.items())


def test_precomputed_reference_gives_the_loss_of_a_reference_model(
    phase_dict: dict[str, Any], tmp_path: Path, tiny_model: Path
) -> None:
    losses = []
    for name, precompute in (("once", True), ("online", False)):
        job = make_job(phase_dict, DPO, tmp_path, tiny_model, name)
        trainer = dpo.build(job, job.rows[:8], job.rows[8:10], precompute)
        assert (trainer.ref_model is None) is precompute
        torch.manual_seed(1)
        with torch.no_grad():  # a policy that has left its reference: at the start every loss is log 2
            for parameter in trainer.model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.02)
        batch = trainer.data_collator([trainer.train_dataset[i] for i in range(4)])
        losses.append(float(trainer.compute_loss(trainer.model, batch)))
    assert losses[0] == pytest.approx(losses[1], abs=1e-5) and abs(losses[0] - 0.6931) > 1e-3


@pytest.mark.slow
def test_dpo_learns_to_end_what_it_began_and_resumes(
    phase_dict: dict[str, Any], tmp_path: Path, tiny_model: Path
) -> None:
    blocks = {"train": {"learning_rate": 3e-3, "epochs": 2}}
    job = make_job(phase_dict, DPO, tmp_path, tiny_model, "whole", **blocks)
    judged = [{**row, "facts": []} for row in job.rows[::2]]  # trained on: a random model carries nothing over
    before = dpo.score(job.model.eval(), job.tokenizer, job.phase, judged)
    summary = train(job)
    model, tokenizer = chat.load_tuned(job.run_dir, job.phase)
    verdict = dpo.decide(before, dpo.score(model, tokenizer, job.phase, judged), job.phase)
    assert verdict["verdict"] == "better" and verdict["preference_accuracy"] > 0.5, verdict["reasons"]
    assert dpo.decide(before, before, job.phase)["preference_accuracy"] == 0 and summary["beta"] == 0.1
    train(make_job(phase_dict, DPO, tmp_path, tiny_model, "broken", **blocks))
    shutil.rmtree(tmp_path / "broken" / "best_model")
    again = train(make_job(phase_dict, DPO, tmp_path, tiny_model, "broken", **blocks))
    assert 0 < again["resumed_from_step"] < again["steps"] == summary["steps"]
    assert_same(tmp_path / "whole", tmp_path / "broken")


@pytest.mark.slow
def test_all_stages_one_after_the_other(
    phase_dict: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models, out = tmp_path / "models", tmp_path / "runs"
    write_text(models / "text.jsonl")
    write_data(models / "qa")
    questions = {"data": {"source": "pvc:qa", "system_prompt": "Be brief."}}
    lora = {**SFT, "stage": {"name": "lora", "parent": "dpo"}, "lora": {"rank": 4}}
    small = {"learning_rate": 1e-3, "checkpoints": 1}
    stages = {
        "pretrain": phase_of(phase_dict, PRETRAIN, stage={"curriculum": CURRICULUM, "fp8": "auto"}, train=small),
        "sft": phase_of(phase_dict, SFT, **questions, train=small, gate={"max_fact_recall_drop": 1.0}),
        "dpo": phase_of(phase_dict, DPO, **questions, train={**small, "learning_rate": 2e-4}),
        "lora": phase_of(phase_dict, lora, **questions, train=small, gate={"max_fact_recall_drop": 1.0}),
    }

    def call(*args: str) -> int:
        with pytest.raises(SystemExit) as ended:
            cli.main([*args])
        return int(ended.value.code or 0)

    for name, phase in stages.items():
        recipe, run_dir = recipes.get_recipe(phase), out / name
        recipe.fetch(phase, models, None)
        model_dir, data_dir = parents.model_dir(phase, models, run_dir), recipe.data_dir(phase, models, None)
        if phase.parent:
            parents.adopt(phase, out, run_dir)
        run = Run(phase, run_dir, model_dir, data_dir)
        launch.preflight(run)
        worker.work(run)  # as each rank does
        verdict = files.read_json(out / name / "gate.json")
        assert verdict["stage"] == name and verdict["conditions"] and results.finished(out / name)
        if not verdict["promoted"]:  # a handful of steps: what the gate says is not the subject here
            kept = files.read_json(out / name / "gate.json")
            assert call("gate", str(run_dir), "--override", "--dry-run", "--who", "test", "--why", "few steps") == 0
            assert files.read_json(out / name / "gate.json") == kept
            assert call("gate", str(run_dir), "--override", "--who", "test", "--why", "few steps") == 0
            assert files.read_json(out / name / "gate.json")["override"]["who"] == "test"
    record = files.read_json(out / "lora" / "manifest.json")
    assert record["parent"]["run"] == "dpo" and record["model"]["sha256"] == record["parent"]["sha256"]
    first = files.read_json(out / "pretrain" / "manifest.json")
    assert first["parent"] is None and first["fp8"] == {"on": False, "reason": "no GPU"} and record["fp8"] is None
    assert (out / "lora" / "lora_adapter" / "adapter_model.safetensors").exists()
    said = (out / "lora" / "report.html").read_text(encoding="utf-8")
    assert "dpo, stage dpo" in said
    assert "pre-training from random weights" in (out / "pretrain" / "report.html").read_text(encoding="utf-8")
    scores = out / "dpo" / "eval_after.json"
    whole = files.read_json(scores)
    scores.write_text(json.dumps(whole | {"items": whole["items"][1:]}), encoding="utf-8")
    capsys.readouterr()
    assert call("gate", str(out / "dpo")) == 2
    assert "score both again with `trainlab eval RUN_DIR --models DIR`" in capsys.readouterr().err
    assert call("eval", str(out / "dpo"), "--models", str(models)) == 0
    assert len(files.read_json(scores)["items"]) == len(whole["items"])
    assert call("gate", str(out / "dpo")) != 2, capsys.readouterr().err
