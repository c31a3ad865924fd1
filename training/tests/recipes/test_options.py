"""Options of training that are off until they are set: what each changes, and that it changes nothing else."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from safetensors.torch import load_file
from tiny import make_phase
from torch.utils.data import DataLoader
from trained import assert_same, weights
from trainlab import files
from trainlab.config.loading import ConfigErrors, load_values, phase_hash, trained
from trainlab.engine import acceleration
from trainlab.engine.checkpoints import FINAL
from trainlab.engine.trainer import TrainingJob
from trainlab.models import compute
from trainlab.recipes import sft
from trainlab.recipes.base import Run
from trainlab.report import words
from trainlab.run import manifest
from workplace import Workplace

Make = Callable[..., TrainingJob]
TRAIN = {"epochs": 2, "batch_size": 4, "learning_rate": 0.01, "checkpoints": 5, "validation_fraction": 0.2}


@pytest.fixture
def make_job(tmp_path: Path, tiny_model: Path, phase_dict: dict[str, Any]) -> Make:
    """Return a function that makes a job of sft in tmp_path/<name> with changed blocks of the phase."""
    return tiny.sft_jobs(phase_dict, tiny_model, tmp_path, train=TRAIN)


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_workers_give_the_same_rows_in_the_same_order(
    make_job: Make, tmp_path: Path, dropout: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[int, bool]] = []
    first = DataLoader.__init__

    def noted(self: Any, *given: Any, **named: Any) -> None:
        first(self, *given, **named)
        made.append((self.num_workers, self.persistent_workers))

    monkeypatch.setattr(DataLoader, "__init__", noted)
    lora = {"rank": 2, "dropout": dropout} if dropout else {"rank": 0}
    orders = {}
    for workers in (None, 2):
        seen: list[list[int]] = []
        job = make_job(f"workers-{workers}", lora=lora, train={"dataloader_workers": workers})
        job.model.register_forward_pre_hook(
            lambda module, _, named, seen=seen: seen.append(named["input_ids"].flatten().tolist()), with_kwargs=True
        )
        sft.fit(job)
        orders[workers] = seen
        assert set(made) == ({(2, True)} if workers else {(0, False)})
        made.clear()
    assert orders[None] == orders[2] and len(orders[2]) > 10
    if not dropout:
        assert_same(tmp_path / "workers-None", tmp_path / "workers-2", tolerance=0)


def test_a_resumed_run_with_workers_and_dropout_is_uninterrupted(make_job: Make, tmp_path: Path) -> None:
    blocks = {"lora": {"rank": 2, "dropout": 0.5}, "train": {"dataloader_workers": 1, "keep_checkpoints": 9}}
    sft.fit(make_job("whole", **blocks))
    job = make_job("broken", **blocks)
    shutil.copytree(tmp_path / "whole" / "checkpoints" / "checkpoint-4", job.run_dir / "checkpoints" / "checkpoint-4")
    assert sft.fit(job)["resumed_from_step"] == 4  # of ten, five an epoch
    one, other = (
        load_file(tmp_path / name / "lora_adapter" / "adapter_model.safetensors") for name in ("whole", "broken")
    )
    assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def test_workers_are_read_by_recipes_with_a_data_loader_alone(tmp_path: Path) -> None:
    over = tmp_path / "over.yaml"
    over.write_text("phase: {train: {dataloader_workers: 2}}")
    with pytest.raises(
        ConfigErrors, match="dataloader_workers: recipe resnet does not read it, only cpt, dpo, pretrain, sft"
    ):
        load_values([Path("values/resnet.yaml"), over])


def test_the_last_weights_are_kept_beside_the_best(make_job: Make, tmp_path: Path) -> None:
    train = {"save_final_model": True, "learning_rate": 1.0, "warmup_fraction": 0.9, "epochs": 6}
    summary = sft.fit(make_job("run", train=train))
    assert summary["best_step"] < summary["steps"] and summary["final_model"] is True
    sft.fit(
        make_job("last", train={"learning_rate": 1.0, "warmup_fraction": 0.9, "epochs": 6, "validation_fraction": 0.2})
    )
    last, best = load_file(tmp_path / "run" / FINAL / "model.safetensors"), weights(tmp_path / "run")
    assert not all(torch.equal(tensor, best[name]) for name, tensor in last.items())
    assert_same(tmp_path / "run", tmp_path / "last", tolerance=0)  # the best ones are those without the option
    assert not (tmp_path / "last" / FINAL).exists()
    assert {path.name for path in (tmp_path / "run" / FINAL).iterdir()} == {
        path.name for path in (tmp_path / "run" / "best_model").iterdir()
    }
    told = dict(words.ending(summary))["Last weights"]
    assert told == f"step {summary['steps']}, validation loss {summary['last_validation_loss']:.3f}, in final_model/"


def test_the_last_adapters_are_kept_beside_the_best(make_job: Make, tmp_path: Path) -> None:
    sft.fit(make_job("run", lora={"rank": 2}, train={"save_final_model": True}))
    names = [{path.name for path in (tmp_path / "run" / name).iterdir()} for name in (FINAL, "lora_adapter")]
    assert names[0] == names[1] and "adapter_model.safetensors" in names[0]


@pytest.fixture
def precision() -> Iterator[None]:
    """Set back what a process has one of."""
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    yield
    torch.set_float32_matmul_precision(before[0])
    torch.backends.cudnn.allow_tf32 = before[1]


def test_tf32_is_what_the_phase_says(phase_dict: dict[str, Any], precision: None) -> None:
    gpus = {"gpus_per_node": 1, "processes_per_node": 1}
    default = torch.get_float32_matmul_precision()
    for wish, told in ((None, default), (True, "high"), (False, "highest"), (None, "highest")):
        compute.set_tf32(make_phase(phase_dict, train={"tf32": wish}, resources=gpus))
        assert torch.get_float32_matmul_precision() == told
        assert wish is None or torch.backends.cudnn.allow_tf32 == wish


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{data: {validation: pvc:x}, recipe: resnet}", "data.validation: recipe resnet does not read it"),
        ("{data: {validation: 'builtin:x'}}", "phase.data.validation is 'builtin:x'"),
        ("{train: {resume_from: latest}}", "phase.train.resume_from is 'latest'"),
        ("{train: {resume_from: ../checkpoint-1}}", "phase.train.resume_from is '../checkpoint-1'"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    over = tmp_path / "over.yaml"
    over.write_text(f"phase: {text}")
    with pytest.raises(ConfigErrors) as caught:
        load_values([Path("values/quick.yaml"), Path("values/local/quick.yaml"), over])
    assert expected in str(caught.value)


@pytest.mark.parametrize(("mode", "tuned", "graphs"), [(None, False, False), ("max-autotune", True, True)])
def test_the_mode_reaches_the_compiler(
    make_job: Make, mode: str | None, tuned: bool, graphs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch._inductor.compile_fx as compile_fx

    asked: list[dict[str, Any]] = []

    def compiled(graph: Any, inputs: Any, config_patches: Any = None, **_: Any) -> Any:
        asked.append(dict(config_patches or {}))
        return graph

    monkeypatch.setattr(compile_fx, "compile_fx", compiled)
    job = make_job("run")
    acceleration.compile_layers(job.model, mode=mode)
    with torch.no_grad():
        job.model(input_ids=torch.tensor([[1, 2, 3]]))
    assert asked and all(bool(each.get("max_autotune")) is tuned for each in asked)
    assert all(bool(each.get("triton.cudagraphs")) is graphs for each in asked)


def test_options_that_are_set_are_in_manifest_and_report(phase_dict: dict[str, Any], tmp_path: Path) -> None:
    plain = make_phase(phase_dict)
    assert plain.options == {} and not set(trained(plain)["train"]) & {"tf32", "dataloader_workers", "resume_from"}
    phase = make_phase(phase_dict, train={"dataloader_workers": 2, "save_final_model": True})
    assert phase.options == {"train.dataloader_workers": 2, "train.save_final_model": True}
    ranks = {"world_size": 1, "hosts": ["here"], "nodes": []}
    record = manifest.begin(Run(phase, tmp_path, tmp_path, tmp_path), {"model": {}, "data": {}}, ranks)
    assert record["options"] == phase.options
    shown = dict(words.provenance({"model": {"source": "x"}, "data": {"source": "y"}}, record))["Options"]
    assert shown == "train.dataloader_workers: 2; train.save_final_model: true"
    assert phase_hash(phase) != phase_hash(plain)
    again = make_phase(phase_dict, train={"resume_from": "checkpoint-5"})
    assert phase_hash(again) == phase_hash(plain)


@pytest.mark.rest
def test_a_whole_run_of_two_ranks_with_all_of_them(
    tmp_path: Path, tiny_model: Path, phase_dict: dict[str, Any]
) -> None:
    own = {"id": "v1", "question": "Own one?", "phrasings": ["Own 1?", "Own I?", "Own i?"], "answer": "It is one."}
    (tmp_path / "models" / "val").mkdir(parents=True)
    (tmp_path / "models" / "val" / "own.jsonl").write_text(json.dumps(own), encoding="utf-8")
    shutil.copytree(tiny_model, tmp_path / "models" / "tiny")
    train = {**TRAIN, "dataloader_workers": 1, "save_final_model": True, "tf32": False}
    resources = {"processes_per_node": 2}
    phase = make_phase(phase_dict, train=train, data={"validation": "pvc:val"}, resources=resources)
    run = Workplace(tmp_path, phase).start("--run", "all")
    output = run.communicate()[0]
    assert run.returncode == 0 and "validation: 4 of pvc:val" in output, output
    record, options = files.read_json(tmp_path / "all" / "manifest.json"), phase.options
    assert record["options"] == options and set(options) == {
        *("train.tf32", "train.dataloader_workers", "train.save_final_model", "data.validation")
    }
    assert record["data"]["validation"]["source"] == "pvc:val"
    assert (tmp_path / "all" / FINAL / "model.safetensors").exists()
    page = (tmp_path / "all" / "report.html").read_text("utf-8")
    assert "in final_model/" in page and "data.validation: pvc:val" in page
