"""An image set as two tensors of bytes and labels, with random shifts and flips of whole batches; for recipe resnet.

The test images of a set are always the same ones, whatever the seed of the phase. Shifts and flips are index arithmetic on the
device: bench/image_feed.py compares them with the same done image by image.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from trainlab.config import ResnetPhase
from trainlab.recipes import image_sources


@dataclass(frozen=True)
class Part:
    """Images (N, channels, size, size) in uint8, labels (N,) in int64, and the index of each in its set (N,)."""

    images: torch.Tensor
    labels: torch.Tensor
    ids: torch.Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, index: torch.Tensor) -> "Part":
        """Return the images at `index`."""
        return Part(self.images[index], self.labels[index], self.ids[index])

    def to(self, device: torch.device) -> "Part":
        """Return the same on `device`."""
        return Part(self.images.to(device), self.labels.to(device), self.ids)


@dataclass(frozen=True)
class Images:
    """A set as a phase uses it: parts for training, for choosing the best, for the one final score; class names."""

    train: Part
    validation: Part
    test: Part
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def channels(self) -> int:
        """1 for gray, 3 for color."""
        return int(self.train.images.shape[1])


def load(phase: ResnetPhase, folder: Path) -> Images:
    """Return the images of a phase; mean and std are those of the training part, per channel, of values in 0..1.

    Raises UserError for a set that is missing or cannot be read.
    """
    raw = image_sources.read(phase.data.source, folder)
    train, test = _part(raw[0], raw[1], phase), _part(raw[2], raw[3], phase)
    train, test = _even(train, phase.data.train_rows), _even(test, phase.data.heldout_rows)
    train, validation = split(train, phase.train.validation_fraction, phase.seed)
    values = train.images.float().div_(255)
    mean, std = values.mean(dim=(0, 2, 3)), values.std(dim=(0, 2, 3)).clamp_min(1e-3)
    return Images(train, validation, test, raw[4], tuple(mean.tolist()), tuple(std.tolist()))


def digest(phase: ResnetPhase, folder: Path) -> str:
    """Return one SHA-256 over all pixels and labels of the set."""
    raw = image_sources.read(phase.data.source, folder)
    total = hashlib.sha256()
    for array in raw[:4]:
        total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()


def split(part: Part, fraction: float, seed: int) -> tuple[Part, Part]:
    """Return (training part, validation part), drawn by `seed`; the validation part may be empty."""
    order = torch.randperm(len(part), generator=torch.Generator().manual_seed(seed))
    count = round(len(part) * fraction)
    return part.take(order[count:].sort().values), part.take(order[:count].sort().values)


def resize(images: torch.Tensor, size: int) -> torch.Tensor:
    """Return uint8 images (N, C, H, W) as (N, C, size, size), bilinear; the same tensor where nothing needs doing."""
    if images.shape[-2:] == (size, size):
        return images
    wide = torch.nn.functional.interpolate(images.float(), size=(size, size), mode="bilinear", antialias=True)
    return wide.round_().clamp_(0, 255).to(torch.uint8)


def _part(images: Any, labels: Any, phase: ResnetPhase) -> Part:
    pixels = resize(torch.from_numpy(images), phase.vision.image_size)
    return Part(pixels, torch.from_numpy(labels), torch.arange(len(labels)))


def _even(part: Part, count: int | None) -> Part:
    """Return `count` images spread evenly over the set, all if `count` is None."""
    if count is None or count >= len(part):
        return part
    return part.take(torch.linspace(0, len(part) - 1, count).round().long())


def draws(count: int, padding: int, flip: bool, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Return shifts (count, 2) in 0..2*padding and flip flags (count,); drawn on the CPU, so the same on every device."""
    shifts = torch.randint(0, 2 * padding + 1, (count, 2), generator=generator)
    flags = torch.rand(count, generator=generator) < 0.5 if flip else torch.zeros(count, dtype=torch.bool)
    return shifts, flags


def augment(images: torch.Tensor, padding: int, shifts: torch.Tensor, flags: torch.Tensor) -> torch.Tensor:
    """Crop each of `images` (N, C, H, W) from itself padded with a black border of `padding`, and flip where flagged.

    Shape and dtype stay. Equals RandomCrop(size, padding) and RandomHorizontalFlip of torchvision with these draws.
    """
    if padding == 0 and not bool(flags.any()):
        return images
    count, channels, height, width = images.shape
    shifts, flags = shifts.to(images.device), flags.to(images.device)
    padded = torch.nn.functional.pad(images, (padding,) * 4)
    rows = shifts[:, :1] + torch.arange(height, device=images.device)
    columns = shifts[:, 1:] + torch.arange(width, device=images.device)
    columns = torch.where(flags[:, None], columns.flip(1), columns)
    # One flat index per image, shared by its channels: on the CPU six times as fast as indexing all four axes.
    places = rows[:, :, None] * padded.shape[3] + columns[:, None, :]
    places = places.view(count, 1, -1).expand(count, channels, height * width)
    return padded.view(count, channels, -1).gather(2, places).view(count, channels, height, width)


def normalize(images: torch.Tensor, mean: Sequence[float], std: Sequence[float]) -> torch.Tensor:
    """Return bytes (N, C, H, W) as floats with mean 0 and standard deviation 1 per channel, channels last in memory."""
    deviation = torch.tensor(std, device=images.device).view(1, -1, 1, 1)
    shift = -torch.tensor(mean, device=images.device).view(1, -1, 1, 1) / deviation
    values = images.float().mul_(1 / (255 * deviation)).add_(shift)
    return values.contiguous(memory_format=torch.channels_last)
