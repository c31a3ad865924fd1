"""Image sets as two tensors of bytes and labels: scikit-learn's digits and CIFAR-10; used by resnet_recipe.py.

The test images of a set are always the same ones, whatever the seed of the phase.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from trainlab.config import ResnetPhase
from trainlab.config.types import DIGITS
from trainlab.errors import UserError
from trainlab.recipes.resnet import image_sources

TEST_DIGITS = 450  # of 1797; a quarter, so that the interval of the accuracy is narrow enough for a gate
SPLIT_SEED = 0  # of the test images: fixed, because a phase's seed must not choose its own test set


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
    raw = digits() if phase.data.source == DIGITS else image_sources.cifar10(folder)
    train, test = _part(raw[0], raw[1], phase), _part(raw[2], raw[3], phase)
    train, test = _even(train, phase.data.train_rows), _even(test, phase.data.heldout_rows)
    train, validation = split(train, phase.train.validation_fraction, phase.seed)
    values = train.images.float().div_(255)
    mean, std = values.mean(dim=(0, 2, 3)), values.std(dim=(0, 2, 3)).clamp_min(1e-3)
    return Images(train, validation, test, raw[4], tuple(mean.tolist()), tuple(std.tolist()))


def digest(phase: ResnetPhase, folder: Path) -> str:
    """Return one SHA-256 over all pixels and labels of the set."""
    raw = digits() if phase.data.source == DIGITS else image_sources.cifar10(folder)
    total = hashlib.sha256()
    for array in raw[:4]:
        total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()


def digits() -> image_sources.Raw:
    """Return scikit-learn's 1797 handwritten digits, 8 x 8, as (train, labels, test, labels, classes).

    Optical Recognition of Handwritten Digits (Alpaydin and Kaynak, UCI, 1998, CC BY 4.0), its test part; gray values
    0..16 become 0..255. Raises UserError without scikit-learn.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise UserError(
            f"phase.data.source is {DIGITS}: scikit-learn, which ships the images, is not installed; "
            "pip install scikit-learn, or use the trainer image"
        ) from None
    found: Any = load_digits()
    pixels = np.round(found.images * (255 / 16)).astype(np.uint8)[:, None]
    labels = found.target.astype(np.int64)
    order = np.random.default_rng(SPLIT_SEED).permutation(len(labels))
    test, train = np.sort(order[:TEST_DIGITS]), np.sort(order[TEST_DIGITS:])
    return pixels[train], labels[train], pixels[test], labels[test], tuple(str(i) for i in range(10))


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
