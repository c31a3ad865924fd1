"""Random shifts and mirror images for whole batches, as index arithmetic on the device; used by recipes/resnet.py.

Per image in PIL one core makes some 2,300 images a second, as one gather about ten times as many (bench/image_feed.py).
"""

from collections.abc import Sequence

import torch


def draws(count: int, padding: int, flip: bool, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Return shifts (count, 2) in 0..2*padding and mirror flags (count,); drawn on the CPU, so alike on every device."""
    shifts = torch.randint(0, 2 * padding + 1, (count, 2), generator=generator)
    flags = torch.rand(count, generator=generator) < 0.5 if flip else torch.zeros(count, dtype=torch.bool)
    return shifts, flags


def augment(images: torch.Tensor, padding: int, shifts: torch.Tensor, flags: torch.Tensor) -> torch.Tensor:
    """Cut each of `images` (N, C, H, W) out of itself with a black border of `padding`, and mirror where flagged.

    The shape and type stay. Equals RandomCrop(size, padding) and RandomHorizontalFlip of torchvision with these draws.
    """
    if padding == 0 and not bool(flags.any()):
        return images
    count, channels, height, width = images.shape
    shifts, flags = shifts.to(images.device), flags.to(images.device)
    padded = torch.nn.functional.pad(images, (padding,) * 4)
    rows = shifts[:, :1] + torch.arange(height, device=images.device)
    columns = shifts[:, 1:] + torch.arange(width, device=images.device)
    columns = torch.where(flags[:, None], columns.flip(1), columns)
    first = torch.arange(count, device=images.device)[:, None, None, None]
    second = torch.arange(channels, device=images.device)[None, :, None, None]
    return padded[first, second, rows[:, None, :, None], columns[:, None, None, :]]


def normalise(
    images: torch.Tensor, mean: Sequence[float], std: Sequence[float], dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """Return bytes (N, C, H, W) as numbers with mean 0 and deviation 1 per channel, channels last in memory."""
    shift = torch.tensor(mean, device=images.device).view(1, -1, 1, 1)
    scale = torch.tensor(std, device=images.device).view(1, -1, 1, 1)
    values = (images.float() / 255 - shift) / scale
    return values.to(dtype).contiguous(memory_format=torch.channels_last)
