"""GPU-only features: FSDP2, compiled layers, FP8 if a probe shows that it pays. None of this changes a CPU run.

Compiled layers were run on one GPU, and FP8 of two layers without its gain being known (docs/evidence/benchmarks.md, One GPU); several GPUs,
so sharding, not yet. Sharding is transformers' own (TrainingArguments.fsdp, version 2), FP8 is torchao's, which needs
dimensions divisible by 16 (pytorch/ao, float8 README). Compiling in place keeps the names of all weights: no `_orig_mod.` anywhere.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy

from trainlab import files
from trainlab.config import LanguagePhase, Phase
from trainlab.config.methods import Stage
from trainlab.engine import dist, gpus
from trainlab.errors import UserError
from trainlab.models import compute
from trainlab.models.layers import decoder_layers

CAPABILITY = (8, 9)  # of FP8 tensor cores: L4, L40S, H100; not A100 or A40
PAYS = 1.05  # FP8 must beat bfloat16 by this factor in the probe
TOKENS = 8192  # rows of the probe's matrix
CHOICE = "fp8.json"  # in the run directory: {"on", "reason"}
NO_TORCHAO = "Python's package torchao is missing"


def _asked(phase: Phase) -> Stage:
    """Return the section `stage:`; for a standalone phase, one that requests nothing."""
    return phase.stage_block or Stage(name="")


def several_gpus() -> bool:
    """True if there is something to shard across."""
    return torch.cuda.is_available() and dist.world_size() > 1


def sharded(phase: Phase) -> bool:
    """True if weights, gradients and optimizer states are sharded across the ranks."""
    return _asked(phase).fsdp and several_gpus()


def gradient_checkpointing(phase: LanguagePhase) -> bool:
    """True if the Trainer recomputes activations itself; under FSDP2, FSDP does it (sharding)."""
    return phase.recomputes and not sharded(phase)


def sharding(phase: LanguagePhase) -> dict[str, Any]:
    """Return the Trainer's FSDP2 settings, {} if nothing is sharded."""
    if not sharded(phase):
        return {}
    return {
        "fsdp": True,
        "fsdp_config": {
            "version": 2,
            "reshard_after_forward": True,
            "activation_checkpointing": phase.recomputes,
            "state_dict_type": "SHARDED_STATE_DICT",  # each rank writes its part of a checkpoint
        },
    }


def keep_digits(arguments: Any) -> None:
    """Make FSDP2 reduce gradients in float32 and pass results on as they were computed; nothing if it is not used.

    Accelerate's own policy (1.15, FullyShardedDataParallelPlugin.set_mixed_precision) makes both bfloat16: the loss, which
    the head computes in float32, keeps two or three digits, and log-probabilities that DPO sums are rounded to 0.5 and
    more. No output_dtype=float32 either: it would apply to every layer, and the head would multiply float32 matrices.
    """
    if arguments.fsdp_plugin_args is not None and arguments.bf16:
        arguments.fsdp_plugin_args["mixed_precision_policy"] = MixedPrecisionPolicy(
            param_dtype=torch.bfloat16, reduce_dtype=torch.float32
        )


def prepare(model: Any, phase: Phase, run_dir: Path, say: Callable[[str], None]) -> None:
    """Apply FP8 and compilation to a model, as phase and hardware allow; before any trainer wraps it; on every rank.

    Raises UserError for a request that this machine cannot fulfill.
    """
    stage = _asked(phase)
    for key, wish, enough in (
        ("fsdp", stage.fsdp, several_gpus()),
        ("compile", stage.compile, torch.cuda.is_available()),
    ):
        if wish and not enough:
            lacks = "several GPUs" if key == "fsdp" else "a GPU"
            raise UserError(f"phase.stage.{key} is true: needs {lacks}, which this machine lacks; set false")
    if stage.fp8 != "off":
        choice = choose_fp8(model, phase, run_dir)
        say("fp8: on, torchao tensorwise" if choice["on"] else f"fp8: off: {choice['reason']}")
        if choice["on"]:
            convert(model)
    if stage.compile:
        compile_layers(model, mode=stage.compile_mode)


def choose_fp8(model: Any, phase: Phase, run_dir: Path) -> dict[str, Any]:
    """Return {"on", "reason": why not, None if on}, the same on every rank and for the whole run.

    "on" asks no probe. With "auto" one rank times and all follow: a probe near its threshold falls out differently on each, and ranks that computed
    differently would drift apart. A resumed run keeps the choice. Raises UserError where it cannot.
    """
    path, asked = run_dir / CHOICE, _asked(phase).fp8
    known: dict[str, Any] | None = dist.gather(files.read_json(path) if dist.is_main() and path.exists() else None)[0]
    reason = next((why for why in dist.gather(why_not_fp8(phase)) if why), None)
    missing = reason == NO_TORCHAO
    if known is not None:
        if known["on"] and reason:
            remedy = "install torchao" if missing else "resume it on GPUs like those it began on"
            raise UserError(
                f"phase.stage.fp8 is {asked}: {path} says that this run computes in FP8, which is not possible here "
                f"({reason}); {remedy}, or name a new run with --run"
            )
        return known
    if asked == "on" and reason:
        remedy = "install torchao" if missing else "use other GPUs"
        raise UserError(f"phase.stage.fp8 is on: {reason}; {remedy}, or set auto, which computes in bfloat16 here")
    if reason is None and asked == "auto":
        reason = dist.gather(_slow(model) if dist.is_main() else None)[0]
    choice = {"on": reason is None, "reason": reason}
    if dist.is_main():
        files.write_json(path, choice)
    return choice


def chosen_fp8(run_dir: Path) -> dict[str, Any] | None:
    """Return what choose_fp8 chose in this run, for the manifest; None if the phase did not ask for FP8."""
    path = run_dir / CHOICE
    return dict(files.read_json(path)) if path.exists() else None


def compile_layers(model: Any, backend: str = "inductor", mode: str | None = None) -> None:
    """Compile each decoder layer in place: one graph for all of them and each shape (engine/compiled.py); every weight keeps its name."""
    for layer in decoder_layers(model):
        layer.compile(backend=backend, mode=mode, dynamic=False)


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
    if find_spec("torchao") is None:
        return NO_TORCHAO
    return None


def gathered_state(trainer: Any, phase: Phase) -> dict[str, Any] | None:
    """Return all weights of a sharded model on rank 0, None for one that is not sharded; every rank must call it."""
    if not sharded(phase):
        return None
    state: dict[str, Any] = trainer.accelerator.get_state_dict(trainer.model_wrapped)
    first: dict[int, str] = {}
    for name, parameter in trainer.model_wrapped.named_parameters(remove_duplicate=False):
        known = first.setdefault(id(parameter), name)
        if known != name and name in state:  # a tied head, gathered a second time, would be saved a second time
            state[name] = state[known]
    return state


def _slow(model: Any) -> str | None:
    """Return the probe's result if FP8 does not pay: forward and backward of one matrix of this model, both ways."""
    layer: Any = decoder_layers(model)[0]
    part = layer.mlp.up_proj
    rows = torch.randn(TOKENS, part.in_features, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    times = []
    for eight in (False, True):
        linear = nn.Sequential(nn.Linear(part.in_features, part.out_features, bias=False))
        linear = linear.to("cuda", torch.bfloat16)
        if eight:
            convert(linear)
        times.append(gpus.seconds(partial(lambda step: step(rows).sum().backward(), torch.compile(linear))))
    ratio = times[0] / times[1]
    return None if ratio >= PAYS else f"the probe ran at {ratio:.2f} times the speed of bfloat16, {PAYS} is needed"


def convert(model: Any) -> None:
    """Make the matrices of a bfloat16 model multiply in FP8, except its output layer; every weight keeps its name.

    The gradient of a weight sums over the tokens of a batch, and the GPU's FP8 product takes only sums of a multiple of 16
    terms (torch._scaled_mm); packed rows have any number: padded with zeros.
    """
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    def fits(module: nn.Module, name: str) -> bool:
        sizes = (getattr(module, "in_features", 1), getattr(module, "out_features", 1))
        return not name.endswith("lm_head") and all(size % 16 == 0 for size in sizes)

    config = replace(Float8LinearConfig.from_recipe_name("tensorwise"), pad_inner_dim=True)
    convert_to_float8_training(model, config=config, module_filter_fn=fits)
