"""What may not go together with the section `stage:`."""

from itertools import pairwise

from trainlab.config.phase_fields import PhaseFields
from trainlab.config.section_stage import MARGIN, RECIPES, STAGES, Stage


def conflict(phase: PhaseFields) -> str | None:
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
    if phase.train.cache_frozen_activations:
        return f"train.cache_frozen_activations: true in stage {stage.name}, which trains all layers; set false"
    if phase.serve.runtime != "trainlab":
        return f"serve.runtime: {phase.serve.runtime} in stage {stage.name}, whose base is a run's model; set trainlab"
    gpus = phase.resources.nodes * phase.resources.gpus_per_node
    for key, wished, needed in (("fsdp", stage.fsdp, 2), ("compile", stage.compile, 1)):
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
