"""What may not go together with the section `text:`."""

import re

from trainlab.config.phase_fields import PhaseFields
from trainlab.config.section_hub import RECIPE as ROWS_RECIPE
from trainlab.config.section_text import METRIC, RECIPES, TOPICS, Text


def conflict(phase: PhaseFields) -> str | None:
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
    if phase.train.cache_frozen_activations:
        return (
            f"train.cache_frozen_activations: true with recipe {recipe}, which sees each block once or twice; set false"
        )
    if phase.serve.runtime != "trainlab":
        return f"serve.runtime: {phase.serve.runtime} with recipe {recipe}, whose models need no chat template; set trainlab"
    return _pattern(phase.text.document_start)


def _pattern(text: str | None) -> str | None:
    try:
        re.compile(text or "")
    except re.error as error:
        return f"text.document_start: {text!r} is no regular expression ({error}); correct it"
    return None
