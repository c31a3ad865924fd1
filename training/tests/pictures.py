"""A tiny image task: bright bars in four places, learnt by a narrow network in a second; and phases over it."""

import copy
from typing import Any

import torch
from tiny import phase_from
from trainlab.config import Phase
from trainlab.recipes.image_data import Images, Part, split

PHASE: dict[str, Any] = {
    "name": "bars",
    "recipe": "resnet",
    "title": "Bars",
    "model": {"source": "builtin:resnet18", "dtype": "float32"},
    "data": {"source": "builtin:digits"},
    "vision": {"image_size": 8, "width": 16, "crop_padding": 1, "shown": 6},
    "train": {
        **{"epochs": 3, "batch_size": 8, "learning_rate": 0.05, "checkpoints": 3, "keep_checkpoints": 2},
        **{"validation_fraction": 0.2, "warmup_fraction": 0.1, "max_grad_norm": 5.0},
    },
    "evaluate": {"batch_size": 32, "bootstrap_samples": 200},
    "gate": {"metric": "accuracy"},
}


def make_phase(**blocks: Any) -> Phase:
    """Return the phase with blocks merged in, e.g. train={"epochs": 1}."""
    merged = copy.deepcopy(PHASE)
    for name, value in blocks.items():
        merged[name] = {**merged.get(name, {}), **value} if isinstance(value, dict) else value
    return phase_from(merged)


def _part(count: int, seed: int) -> Part:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 4, (count,), generator=generator)
    images = torch.randint(0, 60, (count, 1, 8, 8), generator=generator, dtype=torch.uint8)
    for row, label in enumerate(labels.tolist()):
        if label < 2:
            images[row, 0, 2 + 3 * label] = 250
        else:
            images[row, 0, :, 2 + 3 * (label - 2)] = 250
    return Part(images, labels, torch.arange(count))


def make_images(phase: Phase) -> Images:
    """Return 80 training images less the validation part, and 40 test images."""
    train, validation = split(_part(80, 1), phase.train.validation_fraction, phase.seed)
    return Images(train, validation, _part(40, 2), ("top", "bottom", "left", "right"), (0.3,), (0.3,))
