"""GPU-only features: FSDP2, compiled layers, FP8 if a probe shows that it pays. None of this changes a CPU run.

Not run on GPUs yet (the conversion to FP8 and its arithmetic are tested on CPU). Sharding is transformers' own
(TrainingArguments.fsdp, version 2), FP8 is torchao's, which needs dimensions divisible by 16 (pytorch/ao, float8
README). Compiling in place keeps the names of all weights: no `_orig_mod.` anywhere.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from trainlab.config import Phase
from trainlab.config.section_stage import Stage
from trainlab.engine import dist
from trainlab.errors import UserError
from trainlab.models import compute
from trainlab.models.layers import decoder_layers

CAPABILITY = (8, 9)  # of FP8 tensor cores: L4, L40S, H100; not A100 or A40
PAYS = 1.05  # FP8 must beat bfloat16 by this factor in the probe
TOKENS = 8192  # rows of the probe's matrix
ROUNDS = 20


def _asked(phase: Phase) -> Stage:
    """Return the section `stage:`; for a standalone phase, one that requests nothing."""
    return phase.stage_block or Stage(name="")


def sharded(phase: Phase) -> bool:
    """True if weights, gradients and optimizer states are sharded across the ranks."""
    return _asked(phase).fsdp and torch.cuda.is_available() and dist.world_size() > 1


def gradient_checkpointing(phase: Phase) -> bool:
    """True if the Trainer recomputes activations itself; under FSDP2, FSDP does it (sharding)."""
    return _asked(phase).gradient_checkpointing and not sharded(phase)


def sharding(phase: Phase) -> dict[str, Any]:
    """Return the Trainer's FSDP2 settings, {} if nothing is sharded."""
    if not sharded(phase):
        return {}
    return {
        "fsdp": True,
        "fsdp_config": {
            "version": 2,
            "reshard_after_forward": True,
            "activation_checkpointing": _asked(phase).gradient_checkpointing,
            "state_dict_type": "SHARDED_STATE_DICT",  # each rank writes its part of a checkpoint
        },
    }


def prepare(model: Any, phase: Phase, say: Callable[[str], None]) -> None:
    """Apply FP8 and compilation to a model, as phase and hardware allow; before any trainer wraps it.

    Raises UserError for a request that this machine cannot fulfill.
    """
    stage = _asked(phase)
    for key, wish, enough in (
        ("fsdp", stage.fsdp, torch.cuda.is_available() and dist.world_size() > 1),
        ("compile", stage.compile, torch.cuda.is_available()),
    ):
        if wish and not enough:
            lacks = "several GPUs" if key == "fsdp" else "a GPU"
            raise UserError(f"phase.stage.{key} is true: needs {lacks}, which this machine lacks; set false")
    if stage.fp8 == "auto":
        reason = why_not_fp8(phase) or _slow(model)
        say(f"fp8: off: {reason}" if reason else "fp8: on, torchao tensorwise")
        if not reason:
            convert(model)
    if stage.compile:
        compile_layers(model)


def compile_layers(model: Any, backend: str = "inductor") -> None:
    """Compile each decoder layer in place: one graph for all of them, and every weight keeps its name."""
    for layer in decoder_layers(model):
        layer.compile(backend=backend)


def why_not_fp8(phase: Phase) -> str | None:
    """Return what rules out FP8 without measuring, None if nothing does."""
    if not torch.cuda.is_available():
        return "no GPU"
    capability = torch.cuda.get_device_capability()
    if capability < CAPABILITY:
        return f"compute capability {capability[0]}.{capability[1]}, FP8 needs 8.9"
    if compute.dtype(phase) != torch.bfloat16:
        return "weights are not bfloat16"
    if not _asked(phase).compile:
        return "without stage.compile it is slower than bfloat16"
    return None


def whole_state(trainer: Any, phase: Phase) -> dict[str, Any] | None:
    """Return all weights of a sharded model on rank 0, None for one that is not sharded; every rank must call it."""
    if not sharded(phase):
        return None
    state: dict[str, Any] = trainer.accelerator.get_state_dict(trainer.model_wrapped)
    return state


def _slow(model: Any) -> str | None:
    """Return the probe's result if FP8 does not pay: forward and backward of one matrix of this model, both ways."""
    layer: Any = decoder_layers(model)[0]
    part = layer.mlp.up_proj
    times = []
    for eight in (False, True):
        linear = nn.Sequential(nn.Linear(part.in_features, part.out_features, bias=False))
        linear = linear.to("cuda", torch.bfloat16)
        if eight:
            convert(linear)
        times.append(_seconds(torch.compile(linear), part.in_features))
    ratio = times[0] / times[1]
    return None if ratio >= PAYS else f"the probe ran at {ratio:.2f} times the speed of bfloat16, {PAYS} is needed"


def _seconds(linear: Any, width: int) -> float:
    rows = torch.randn(TOKENS, width, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    for _ in range(3):  # compiles
        linear(rows).sum().backward()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(ROUNDS):
        linear(rows).sum().backward()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) / 1000 / ROUNDS


def convert(model: Any) -> None:
    """Make the matrices of a bfloat16 model multiply in FP8, except its output layer; every weight keeps its name."""
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    def fits(module: nn.Module, name: str) -> bool:
        sizes = (getattr(module, "in_features", 1), getattr(module, "out_features", 1))
        return not name.endswith("lm_head") and all(size % 16 == 0 for size in sizes)

    convert_to_float8_training(model, config=Float8LinearConfig.from_recipe_name("tensorwise"), module_filter_fn=fits)
