"""FSDP2 over two gloo ranks equals the same training without it; its losses keep their digits; what is left on disk."""

import json
import os
import shutil
import statistics
from pathlib import Path
from typing import Any

import forked
import pytest
import torch
from safetensors.torch import load_file
from stages import DPO, LORA, phase_of
from tiny import write_data
from trained import assert_same, weights
from trainlab.engine import acceleration, checkpoints
from trainlab.models import chat
from trainlab.recipes import dpo

JOBS = (
    *("whole:sft:float32:whole", "lora-whole:lora:float32:whole"),  # first: accelerate keeps FSDP in the environment
    *("broken:sft:float32:fsdp", "again:sft:float32:fsdp", "lora:lora:float32:fsdp"),
    *("sft:sft:bfloat16:fsdp", "dpo:dpo:bfloat16:fsdp"),
)
RANKS = Path(__file__).parent / "sharded_ranks.py"


@pytest.fixture(scope="module")
def trained(tiny_model: Path, phase_dict: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the jobs above, each trained by the same two ranks."""
    folder = tmp_path_factory.mktemp("sharded")
    shutil.copytree(tiny_model, folder / "model")
    write_data(folder / "data")
    (folder / "phase.json").write_text(json.dumps(phase_dict), encoding="utf-8")
    forked.ended(forked.ranks(RANKS, [str(folder), *JOBS], os.environ))
    return folder


@pytest.fixture(scope="module")
def seen(trained: Path) -> Any:
    """What the ranks saw, by name of the job."""
    return json.loads((trained / "seen.json").read_text(encoding="utf-8"))


@pytest.mark.rest
def test_sharded_saved_and_resumed_is_the_whole_model_trained_without_sharding(trained: Path, seen: Any) -> None:
    assert [rank["share"] for rank in seen["whole"]["ranks"]] == [1, 1]
    for rank in seen["broken"]["ranks"]:
        assert 0.4 < rank["share"] < 0.6
    again = seen["again"]["summary"]
    assert (again["resumed_from_step"], again["steps"]) == (3, 6)
    assert_same(trained / "whole", trained / "broken", tolerance=1e-5)
    assert [rank["complete"] for rank in seen["whole"]["ranks"] + seen["broken"]["ranks"]] == [True, True, False, False]
    losses = [
        [
            entry["loss"]
            for entry in json.loads((trained / name / "training_history.json").read_text())
            if "loss" in entry
        ]
        for name in ("whole", "broken")
    ]
    assert losses[0] == pytest.approx(losses[1], abs=1e-5) and len(losses[0]) == 6


@pytest.mark.rest
def test_steps_are_timed_and_ddp_says_what_it_communicated(trained: Path, seen: Any) -> None:
    """What FSDP2 sends is not logged."""
    summary = seen["whole"]["summary"]
    history = json.loads((trained / "whole" / "training_history.json").read_text())
    times = [entry["step_seconds"] for entry in history if "loss" in entry]
    assert len(times) == 6 and min(times) > 0 and summary["step_seconds"] == statistics.median(times)
    parts = summary["step_parts"]
    assert 0 <= parts["overlapped"] <= parts["communication"] and parts["communication"] > 0 and parts["forward"] > 0
    assert seen["broken"]["summary"]["step_parts"] is None


@pytest.mark.rest
@pytest.mark.parametrize("name", ["sft", "dpo"])
def test_in_bfloat16_losses_and_log_probabilities_stay_float32(trained: Path, seen: Any, name: str) -> None:
    for rank in seen[name]["ranks"]:
        assert (rank["loss"], rank["log_probs"], rank["reduced"]) == ("torch.float32",) * 3
    assert {str(tensor.dtype) for tensor in weights(trained / name).values()} == {"torch.bfloat16"}
    if name == "dpo":  # the model is its own reference before the first step
        assert seen[name]["summary"]["first_loss"] == pytest.approx(0.693147, abs=1e-5)


@pytest.mark.rest
def test_checkpoints_are_saved_by_shards_and_the_last_step_is_the_result(trained: Path, seen: Any) -> None:
    (newest,) = checkpoints.listed(trained / "dpo" / "checkpoints")[-1:]
    shards = [path.name for path in sorted((newest / "pytorch_model_fsdp_0").glob("*.distcp"))]
    assert shards == ["__0_0.distcp", "__1_0.distcp"] and checkpoints.fault(newest) is None
    assert not list(newest.glob("*.safetensors"))
    summary = seen["broken"]["summary"]
    assert (summary["best_step"], summary["validation_loss"]) == (6, None) and summary["last_validation_loss"] > 0
    assert seen["whole"]["summary"]["validation_loss"] is not None  # unsharded, the best one was kept


@pytest.mark.rest
def test_sharded_adapters_are_those_of_the_run_without_sharding(
    trained: Path, seen: Any, phase_dict: dict[str, Any]
) -> None:
    for rank in seen["lora"]["ranks"]:
        assert 0.4 < rank["share"] < 0.6
    names = ("lora-whole", "lora")
    whole, sharded = (load_file(trained / name / "lora_adapter" / "adapter_model.safetensors") for name in names)
    assert whole.keys() == sharded.keys() and any(name.endswith("lora_B.weight") for name in whole)
    for name, tensor in whole.items():
        assert tensor.shape == sharded[name].shape and torch.allclose(tensor, sharded[name], atol=1e-5), name
    phase: Any = phase_of(phase_dict, LORA)
    model, tokenizer = chat.load_tuned(trained / "lora", phase, trained / "model")
    base, _ = chat.load_base(trained / "model", phase)
    ids = torch.tensor([chat.prompt_ids(tokenizer, phase, "fire 1?")])
    assert not torch.allclose(model(ids).logits, base(ids).logits, atol=1e-3)


def test_the_reference_of_a_sharded_run_is_not_spread_over_the_gpus_of_its_pod(
    phase_dict: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus = {"gpus_per_node": 2, "processes_per_node": 2}
    phase: Any = phase_of(phase_dict, DPO, stage={"fsdp": True}, resources=gpus)
    assert dpo.config(phase, tmp_path, False).model_init_kwargs is None  # one rank: TRL loads none
    monkeypatch.setattr(acceleration, "sharded", lambda _: True)
    monkeypatch.setattr(acceleration, "sharding", lambda _: {})
    assert dpo.config(phase, tmp_path, False).model_init_kwargs == {"device_map": None}
