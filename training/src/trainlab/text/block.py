"""The block `text:` of a values file and the rules over it; imported by config.py, so it must not import torch."""

import re
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field

from trainlab.hub.block import RECIPE as ROWS_RECIPE

if TYPE_CHECKING:
    from trainlab.config import Phase

TOPICS = "pydoc:topics"
METRIC = "perplexity"
RECIPES = ("cpt", "pretrain")  # what reads running text; its models need no chat template


class Text(BaseModel):
    """Running text; only recipes cpt and pretrain read it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    column: str | None = Field(
        None, description="Column that holds the text; null takes the one called text, else the only one with texts."
    )
    hub_config: str | None = Field(None, description="Configuration of a hub data set, e.g. wikitext-2-raw-v1.")
    document_start: str | None = Field(
        None,
        description="Regular expression: a row (or a line of a TXT file) that it finds begins a new document; null "
        "makes each row (and each TXT file) one document. ^$ cuts a TXT file at its empty lines.",
    )
    heldout_fraction: float = Field(
        0.1, gt=0, lt=0.5, description="Share of the text (whole documents) that is scored and never trained on."
    )
    train_all: bool = Field(True, description="Train all weights; false trains what `unfreeze` names.")


def problem(phase: "Phase") -> str | None:
    """Return what does not fit together in a phase as `key: reason; remedy` below phase, None when all is well."""
    recipe, data, metric = phase.recipe, phase.data.source, phase.gate.metric
    kind = data.partition(":")[0]
    if recipe not in RECIPES:
        if phase.text != Text():
            return f"text: recipe {recipe} does not read this block; remove it"
        if kind == "pydoc" or (kind == "hf" and recipe != ROWS_RECIPE):
            return f"data.source: {data} holds running text, which recipe {recipe} does not read; use recipe cpt"
        if metric == METRIC:
            return f"gate.metric: {METRIC} with recipe {recipe}; set another, this one is for recipe cpt"
        return None
    if kind in ("builtin", "torchvision"):
        return (
            f"data.source: {data} with recipe {recipe}, which reads running text; set {TOPICS}, "
            "hf:OWNER/NAME@40-HEX-REVISION, or pvc:PATH of a text file"
        )
    if metric != METRIC:
        return f"gate.metric: {metric} with recipe {recipe}; set {METRIC}"
    if phase.lora.rank:
        return f"lora.rank: {phase.lora.rank} with recipe {recipe}, which trains the model's own weights; set 0"
    if phase.train.trunk_cache:
        return f"train.trunk_cache: true with recipe {recipe}, which sees each block once or twice; set false"
    if phase.serve.runtime != "trainlab":
        return f"serve.runtime: {phase.serve.runtime} with recipe {recipe}, whose models need no chat template; set trainlab"
    return _pattern(phase.text.document_start)


def _pattern(text: str | None) -> str | None:
    try:
        re.compile(text or "")
    except re.error as error:
        return f"text.document_start: {text!r} is no regular expression ({error}); correct it"
    return None
