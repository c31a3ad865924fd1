"""What may not go together with the section `vision:`."""

from trainlab.config.phase_fields import PhaseFields
from trainlab.config.section_vision import CIFAR10, DIGITS, NETWORK, Vision


def conflict(phase: PhaseFields) -> str | None:
    """Return what does not fit together in a phase as `key: reason; remedy` below phase, None when all is well."""
    recipe, model, data, metric = phase.recipe, phase.model.source, phase.data.source, phase.gate.metric
    if recipe != "resnet":
        if phase.vision != Vision():
            return f"vision: recipe {recipe} does not read this block; remove it"
        if model == NETWORK:
            return f"model.source: {model} with recipe {recipe}, which tunes a language model; name one"
        if data in (DIGITS, CIFAR10):
            return f"data.source: {data} holds images, recipe {recipe} reads text; name a data set of questions"
        if metric == "accuracy":
            return f"gate.metric: accuracy with recipe {recipe}; set answer_loss or fact_recall"
        return None
    fields = type(phase).model_fields
    for name in ("unfreeze", "questions"):
        if getattr(phase, name) != fields[name].default:
            return f"{name}: recipe resnet does not read it; remove it"
    if model != NETWORK:
        return f"model.source: {model} with recipe resnet, which builds its network; set {NETWORK}"
    if data not in (DIGITS, CIFAR10) and not data.startswith("pvc:"):
        return (
            f"data.source: {data} with recipe resnet; set {DIGITS}, {CIFAR10}, or pvc:PATH of a folder that holds "
            "cifar-10-batches-py"
        )
    if metric != "accuracy":
        return f"gate.metric: {metric} with recipe resnet; set accuracy"
    if phase.serve.runtime != "trainlab":
        return f"serve.runtime: {phase.serve.runtime} serves language models; set trainlab for recipe resnet"
    if phase.train.cache_frozen_activations:
        return "train.cache_frozen_activations: true with recipe resnet, which has no frozen layers; set false"
    if phase.vision.flip and data == DIGITS:
        return f"vision.flip: true with data.source {DIGITS}; a mirrored digit is another sign: set false"
    return None
