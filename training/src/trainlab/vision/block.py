"""The block `vision:` of a values file and the rules over it; imported by config.py, so it must not import torch."""

from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from trainlab.config import Phase

NETWORK = "builtin:resnet18"
DIGITS, CIFAR10 = "builtin:digits", "torchvision:cifar10"


class Vision(BaseModel):
    """Image classification; only recipe resnet reads it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    image_size: int = Field(
        32, ge=8, le=256, description="Height and width of the network's input; smaller or larger images are resized."
    )
    width: int = Field(64, ge=4, le=256, description="Channels of the first stage; 64 is ResNet-18.")
    optimizer: Literal["sgd", "adamw"] = Field("sgd", description="sgd has Nesterov momentum.")
    momentum: float = Field(0.9, ge=0, lt=1, description="Momentum of sgd.")
    label_smoothing: float = Field(0.0, ge=0, lt=1, description="Share of the target spread over all classes.")
    crop_padding: int = Field(
        0, ge=0, le=32, description="Training images are shifted at random by up to so many pixels of the input."
    )
    flip: bool = Field(False, description="Mirror training images at random; only where a mirror image means the same.")
    compile: bool = Field(False, description="Compile the network with torch.compile.")
    min_accuracy: float = Field(
        0.0, ge=0, lt=1, description="The gate wants the lower end of the test accuracy's interval above this share."
    )
    shown: int = Field(24, ge=1, le=200, description="Test images whose predictions the report shows, drawn evenly.")


def problem(phase: "Phase") -> str | None:
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
    if phase.train.trunk_cache:
        return "train.trunk_cache: true with recipe resnet, which has no frozen layers; set false"
    if phase.vision.flip and data == DIGITS:
        return f"vision.flip: true with data.source {DIGITS}; a mirrored digit is another sign: set false"
    return None
