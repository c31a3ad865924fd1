"""Accuracy of a network on images it was not trained on, and its predictions for the few that are shown; used by resnet_recipe.py
and, for validation, by resnet_trainer.py. Ranks share the images.
"""

import base64
import io
import time
from typing import Any

import torch
from PIL import Image
from torch import nn

from trainlab.config import ResnetPhase
from trainlab.engine import dist
from trainlab.models import compute
from trainlab.recipes.resnet.augment import normalize
from trainlab.recipes.resnet.images import Images, Part

Scores = dict[str, Any]


@torch.no_grad()
def probabilities(network: nn.Module, part: Part, images: Images, phase: ResnetPhase) -> torch.Tensor:
    """Return (N, classes) float32 on the CPU, in float32 arithmetic: the same as the server's. Leaves train mode as it was."""
    where, training = compute.device(), network.training
    network.eval()
    pieces = [
        network(normalize(piece.to(where), images.mean, images.std)).float().softmax(dim=1).cpu()
        for piece in part.images.split(phase.evaluate.batch_size)
    ]
    network.train(training)
    return torch.cat(pieces) if pieces else torch.zeros(0, len(images.classes))


def score(network: nn.Module, part: Part, images: Images, phase: ResnetPhase) -> Scores:
    """Return {accuracy, loss: nats, items: one per image, seconds}, whole on every rank.

    An item is {id, label, prediction, confidence, correct: 0 or 1, loss}.
    """
    began = time.monotonic()
    own = part.take(torch.arange(dist.rank(), len(part), dist.world_size()))
    found = probabilities(network, own, images, phase)
    confidence, prediction = found.max(dim=1)
    losses = -found.gather(1, own.labels[:, None])[:, 0].clamp_min(1e-12).log()
    rows = zip(own.ids, own.labels, prediction, confidence, losses, strict=True)
    items = [
        {
            "id": int(i),
            "label": int(label),
            "prediction": int(said),
            "confidence": round(float(sure), 5),
            "correct": int(label == said),
            "loss": round(float(loss), 5),
        }
        for i, label, said, sure, loss in rows
    ]
    items = sorted((item for rank in dist.gather(items) for item in rank), key=lambda item: item["id"])
    return {
        "accuracy": sum(item["correct"] for item in items) / max(1, len(items)),
        "loss": sum(item["loss"] for item in items) / max(1, len(items)),
        "items": items,
        "seconds": round(time.monotonic() - began, 1),
    }


def shown(images: Images, count: int) -> Part:
    """Return the test images that people see: `count` of them, spread evenly over the set, none hand-picked."""
    total = len(images.test)
    return images.test.take(torch.linspace(0, total - 1, min(count, total)).round().long().unique())


def predictions(network: nn.Module, images: Images, phase: ResnetPhase) -> list[dict[str, Any]]:
    """Return demo_outputs: {id, label, prediction, probabilities} of the images that are shown, classes by name."""
    part = shown(images, phase.vision.shown)
    found = probabilities(network, part, images, phase)
    return [
        {
            "id": int(i),
            "label": images.classes[int(label)],
            "prediction": images.classes[int(row.argmax())],
            "probabilities": {name: round(float(p), 5) for name, p in zip(images.classes, row, strict=True)},
        }
        for i, label, row in zip(part.ids, part.labels, found, strict=True)
    ]


def pictures(images: Images, count: int) -> dict[str, str]:
    """Return the images that are shown as PNG files in base64, by id."""
    part = shown(images, count)
    return {str(int(i)): png(pixels) for i, pixels in zip(part.ids, part.images, strict=True)}


def png(pixels: torch.Tensor) -> str:
    """Return one uint8 image (C, H, W) as a PNG file in base64; lossless."""
    array = pixels.permute(1, 2, 0).cpu().numpy()
    stream = io.BytesIO()
    Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array).save(stream, "PNG")
    return base64.b64encode(stream.getvalue()).decode()
