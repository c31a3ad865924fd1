"""The network of recipe resnet, its optimizer, and its scores on images that it was not trained on, which ranks share.

ResNet-18 for small images: 3x3 first convolution, no max-pool (He et al., arXiv 1512.03385, sections 3.3 and 4.2). torchvision's
resnet18 begins with 7x7 stride 2 and a max-pool, which reduce 32 x 32 pixels to 8 x 8 before the first block.
"""

import base64
import hashlib
import io
import math
import time
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import nn

from trainlab import files
from trainlab.config import ResnetPhase
from trainlab.config.methods import Train
from trainlab.engine import dist
from trainlab.errors import UserError
from trainlab.models import compute
from trainlab.recipes.image_data import Images, Part, normalize

Scores = dict[str, Any]


class Block(nn.Module):
    """Two 3x3 convolutions and a shortcut, which is a 1x1 convolution where the shape changes (option B)."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != width:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, inputs, H, W) to (N, width, H / stride, W / stride)."""
        inner = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(inner)) + self.shortcut(x))


class ResNet18(nn.Module):
    """Four stages of two blocks; 11.17 million parameters with width 64, 3 channels and 10 classes."""

    def __init__(self, channels: int, classes: int, width: int = 64) -> None:
        super().__init__()
        self.settings = {"channels": channels, "classes": classes, "width": width}
        stages: list[nn.Module] = [nn.Conv2d(channels, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        inputs = width
        for index in range(4):
            wide = width * 2**index
            stages += [Block(inputs, wide, 1 if index == 0 else 2), Block(wide, wide, 1)]
            inputs = wide
        self.features = nn.Sequential(*stages)
        self.head = nn.Linear(inputs, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalized images (N, channels, H, W) to logits (N, classes)."""
        return self.head(self.features(x).mean(dim=(2, 3)))


def untrained(channels: int, classes: int, width: int, seed: int) -> ResNet18:
    """Return the network with the weights that training with `seed` starts from."""
    state = torch.get_rng_state()
    torch.manual_seed(seed)
    network = ResNet18(channels, classes, width)
    torch.set_rng_state(state)
    return channels_last(network)


def channels_last(network: ResNet18) -> ResNet18:
    """Return the network with its weights in the layout that convolutions read fastest, on CPU and GPU."""
    module: Any = network  # torch's annotations of `to` do not know this argument
    module.to(memory_format=torch.channels_last)
    return network


def parameters(network: nn.Module) -> int:
    """Return the number of weights."""
    return sum(p.numel() for p in network.parameters())


def save(network: ResNet18, folder: Path, about: dict[str, Any]) -> None:
    """Write config.json (settings and `about`) and model.safetensors into `folder`, atomically."""
    with files.atomic_folder(folder) as work:
        state = {name: tensor.detach().cpu().contiguous() for name, tensor in network.state_dict().items()}
        save_file(state, work / "model.safetensors")
        files.write_json(work / "config.json", {"architecture": "resnet18", **network.settings, **about})


def load(folder: Path) -> tuple[ResNet18, dict[str, Any]]:
    """Return the network in `folder` and its config.json; raises UserError where it does not fit."""
    config = files.read_json(folder / "config.json")
    try:
        network = ResNet18(config["channels"], config["classes"], config["width"])
        network.load_state_dict(load_file(folder / "model.safetensors"))
    except Exception as error:  # KeyError, FileNotFoundError, SafetensorError, RuntimeError by what is broken
        raise UserError(f"{folder}: the network cannot be loaded: {str(error).splitlines()[0]}") from None
    return channels_last(network), config


def optimizer(network: nn.Module, phase: ResnetPhase) -> torch.optim.Optimizer:
    """Return the optimizer; biases and batch-norm weights do not decay."""
    vision, train = phase.vision, phase.train
    weights = [p for p in network.parameters() if p.ndim > 1]
    others = [p for p in network.parameters() if p.ndim <= 1]
    groups = [{"params": weights, "weight_decay": train.weight_decay}, {"params": others, "weight_decay": 0.0}]
    if vision.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=train.learning_rate)
    return torch.optim.SGD(groups, lr=train.learning_rate, momentum=vision.momentum, nesterov=vision.momentum > 0)


def rate(step: int, total: int, train: Train) -> float:
    """Return the share of the peak learning rate at `step`: linear warm-up, then cosine decay to 0."""
    warm = math.ceil(total * train.warmup_fraction)
    if step < warm:
        return (step + 1) / warm
    return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, total - warm)))


def stream(seed: int, name: str, index: int) -> torch.Generator:
    """Return a separate random generator for each use and step, the same on every rank."""
    value = hashlib.sha256(f"{seed}:{name}:{index}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(value[:8], "big"))


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
    shares = probabilities(network, own, images, phase)
    confidence, prediction = shares.max(dim=1)
    losses = -shares.gather(1, own.labels[:, None])[:, 0].clamp_min(1e-12).log()
    rows = zip(own.ids, own.labels, prediction, confidence, losses, strict=True)
    items = [
        {
            "id": int(i),
            "label": int(label),
            "prediction": int(guess),
            "confidence": round(float(sure), 5),
            "correct": int(label == guess),
            "loss": round(float(loss), 5),
        }
        for i, label, guess, sure, loss in rows
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
    shares = probabilities(network, part, images, phase)
    return [
        {
            "id": int(i),
            "label": images.classes[int(label)],
            "prediction": images.classes[int(row.argmax())],
            "probabilities": {name: round(float(p), 5) for name, p in zip(images.classes, row, strict=True)},
        }
        for i, label, row in zip(part.ids, part.labels, shares, strict=True)
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
