"""Where images come from: scikit-learn's digits, and CIFAR-10 in the folder of data sets, by torchvision. No torch on import."""

import contextlib
import io
from pathlib import Path
from typing import Any

import numpy as np

from trainlab.config.types import CIFAR10, DIGITS
from trainlab.errors import UserError
from trainlab.models import fetch as base

TEST_DIGITS = 450  # of 1797; a quarter, so that the interval of the accuracy is narrow enough for a gate
SPLIT_SEED = 0  # of the test images: fixed, because a phase's seed must not choose its own test set
FOLDER = "cifar-10-batches-py"
LICENSE = "none stated by its authors (Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009)"
Raw = tuple[Any, Any, Any, Any, tuple[str, ...]]
"""Training images (N, C, H, W) uint8, labels int64, test images, labels, names of the classes; numpy arrays."""


def place(source: str, models: Path) -> Path:
    """Return the folder that holds the images of a source, inside the folder of data sets."""
    return base.datasets_dir(models) / (
        source.removeprefix("pvc:") if source.startswith("pvc:") else source.replace(":", "-")
    )


def fetch(source: str, models: Path) -> Path:
    """Make sure that CIFAR-10 is in the folder of data sets; return its folder. Raises UserError with the remedy."""
    target = place(source, models)
    if (target / FOLDER).is_dir():
        return target
    if source != CIFAR10:
        raise UserError(f"phase.data.source is {source}: no folder {target / FOLDER}; put it there")

    def fill(folder: Path) -> dict[str, Any]:
        _download(folder)
        return {"source": source, "license": LICENSE}

    return base.once(target, (target / FOLDER).is_dir, fill)


def read(source: str, folder: Path) -> Raw:
    """Return the set of a source, which is in `folder` unless it comes with a package. Raises UserError without it."""
    return digits() if source == DIGITS else cifar10(folder)


def digits() -> Raw:
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
    images: Any = load_digits()
    pixels = np.round(images.images * (255 / 16)).astype(np.uint8)[:, None]
    labels = images.target.astype(np.int64)
    order = np.random.default_rng(SPLIT_SEED).permutation(len(labels))
    test, train = np.sort(order[:TEST_DIGITS]), np.sort(order[TEST_DIGITS:])
    return pixels[train], labels[train], pixels[test], labels[test], tuple(str(i) for i in range(10))


def cifar10(folder: Path) -> Raw:
    """Return the 50,000 training and 10,000 test images of CIFAR-10, 3 x 32 x 32; torchvision checks their MD5 sums."""
    kind = _torchvision()
    try:
        train, test = (kind(str(folder), train=part, download=False) for part in (True, False))
    except RuntimeError:
        raise UserError(
            f"{folder}: no complete CIFAR-10 ({FOLDER} with six batches); run `trainlab fetch` with the same --models"
        ) from None
    arrays: list[Any] = []
    for part in (train, test):
        arrays += [np.ascontiguousarray(part.data.transpose(0, 3, 1, 2)), np.asarray(part.targets, dtype=np.int64)]
    return arrays[0], arrays[1], arrays[2], arrays[3], tuple(train.classes)


def _download(folder: Path) -> None:
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            _torchvision()(str(folder), train=True, download=True)
    except (OSError, RuntimeError) as error:
        if base.no_space(error):  # fetch.once says so
            raise
        raise UserError(
            f"phase.data.source is {CIFAR10}: cannot be fetched: {str(error).splitlines()[0]}; allow access to "
            f"www.cs.toronto.edu, or put the folder {FOLDER} into the folder of data sets (by default that of the models) "
            "and name it with pvc:PATH"
        ) from None
    (folder / "cifar-10-python.tar.gz").unlink(missing_ok=True)  # already unpacked


def _torchvision() -> Any:
    try:
        from torchvision.datasets import CIFAR10 as Dataset
    except ImportError:
        raise UserError(
            f"phase.data.source is {CIFAR10}: torchvision, which reads the images, is not installed; "
            "pip install torchvision, or use the trainer image"
        ) from None
    return Dataset
