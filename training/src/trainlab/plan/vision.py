"""What `trainlab plan` says of an image classifier: steps and work; memory, time and cards are not judged yet. No torch."""

import json
import math

from trainlab.config import Phase
from trainlab.vision.block import CIFAR10, DIGITS

ROWS = {DIGITS: 1347, CIFAR10: 50_000}  # training images of each set, the validation part included
SHAPES = {DIGITS: (1, 10), CIFAR10: (3, 10)}  # channels and classes
NOT_JUDGED = "memory, time and cards are not judged for recipe resnet yet: these numbers warn of nothing"


def counts(width: int, channels: int, classes: int, size: int) -> tuple[int, int]:
    """Return parameters of ResNet-18 and multiply-adds of one image forward (convolutions and head)."""
    parameters, work = 9 * channels * width + 2 * width, 9 * channels * width * size * size
    given = width
    for stage in range(4):
        wide = width * 2**stage
        side = math.ceil(size / 2**stage)
        for _ in range(2):
            parameters += 9 * (given * wide + wide * wide) + 4 * wide
            work += 9 * (given * wide + wide * wide) * side * side
            if given != wide:
                parameters += given * wide + 2 * wide
                work += given * wide * side * side
            given = wide
    return parameters + given * classes + classes, work + given * classes


def command(phase: Phase, rows: int | None, as_json: bool) -> int:
    """Print the plan of a phase with recipe resnet; return 0, since nothing is refused yet."""
    channels, classes = SHAPES.get(phase.data.source, SHAPES[CIFAR10])
    parameters, work = counts(phase.vision.width, channels, classes, phase.vision.image_size)
    images = rows or phase.data.train_rows or ROWS.get(phase.data.source, ROWS[CIFAR10])
    images -= round(images * phase.train.validation_fraction)
    per_epoch = images // phase.effective_batch
    steps = max(1, round(phase.train.epochs * per_epoch))
    total = 6 * work * steps * phase.effective_batch
    numbers = {
        "phase": phase.name,
        "parameters": parameters,
        "training_images": images,
        "images_per_step": phase.effective_batch,
        "steps": steps,
        "flop_per_image": 6 * work,  # 2 per multiply-add, forward once and backward twice
        "flop": total,
        "all_reduced_bytes_per_step": 4 * parameters if phase.world_size > 1 else 0,
        "not_judged": NOT_JUDGED,
    }
    if as_json:
        print(json.dumps(numbers, indent=2))
        return 0
    print(
        f"plan of phase {phase.name}: ResNet-18 with {parameters:,} parameters, all trained\n"
        f"  {images:,} training images, {phase.effective_batch} a step, {steps} steps\n"
        f"  {6 * work / 1e9:.2f} GFLOP an image, {total / 1e12:,.1f} TFLOP in all\n"
        f"note: {NOT_JUDGED}"
    )
    return 0
