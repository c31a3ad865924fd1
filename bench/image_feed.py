"""How fast are random crops, flips and normalization: on whole batches, or image by image with PIL?

PYTHONPATH=training/src python bench/image_feed.py [--images 2048] [--rounds 3] [--json FILE]    (needs the packages of the trainer image)
All variants get the same random draws and must give the same numbers; synthetic 3 x 32 x 32 bytes, one thread.
`torchvision` is the usual chain of transforms, per image; `pil` a minimal PIL version. Prints images per second; exits
with 1 when the batch is less than 5 times as fast as the usual chain, or numbers differ.
"""

import os
import sys
import time
from collections.abc import Callable
from importlib.metadata import version

import numpy as np
import outcome
import torch
from PIL import Image, ImageOps
from torchvision.transforms import functional as transforms
from trainlab.recipes.image_data import augment, draws, normalize
from trainlab.run.launch import RANK_ENVIRONMENT
from trainlab.run.manifest import cpu_model

PADDING, NEEDED = 4, 5.0
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


def with_pil(pictures: list[Image.Image], shifts: torch.Tensor, flags: torch.Tensor) -> torch.Tensor:
    """Pad, crop, mirror and normalize each picture as torchvision's transforms on PIL images do."""
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))
    done = []
    for picture, (down, right), flag in zip(pictures, shifts.tolist(), flags.tolist(), strict=True):
        size = picture.width
        cropped = ImageOps.expand(picture, PADDING).crop((right, down, right + size, down + size))
        if flag:
            cropped = cropped.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        values = torch.from_numpy(np.array(cropped)).permute(2, 0, 1).contiguous()
        done.append((values.float().div(255) - mean) / std)
    return torch.stack(done)


def transformed(pictures: list[Image.Image], shifts: torch.Tensor, flags: torch.Tensor) -> torch.Tensor:
    """Do the same with the functions behind RandomCrop, RandomHorizontalFlip, ToTensor and Normalize."""
    done = []
    for picture, (down, right), flag in zip(pictures, shifts.tolist(), flags.tolist(), strict=True):
        size = picture.width
        cropped = transforms.crop(transforms.pad(picture, PADDING), down, right, size, size)
        cropped = transforms.hflip(cropped) if flag else cropped
        done.append(transforms.normalize(transforms.to_tensor(cropped), MEAN, STD))
    return torch.stack(done)


def main() -> int:
    """Measure all variants, compare, print; return the exit code."""
    parser = outcome.parser(__doc__)
    parser.add_argument("--images", type=int, default=2048, help="images per batch (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds; the fastest counts (default %(default)s)")
    args = parser.parse_args()
    if args.smoke:
        args.images, args.rounds = 32, 1
    if "MALLOC_MMAP_MAX_" not in os.environ:  # as `trainlab run` starts its ranks; read at process start
        os.environ.update(RANK_ENVIRONMENT, OMP_NUM_THREADS="1")
        os.execv(sys.executable, [sys.executable, *sys.argv])
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (args.images, 3, 32, 32), generator=generator, dtype=torch.uint8)
    pictures = [Image.fromarray(pixels.permute(1, 2, 0).numpy()) for pixels in images]
    shifts, flags = draws(args.images, PADDING, True, generator)
    sides: dict[str, Callable[[], torch.Tensor]] = {
        "batch": lambda: normalize(augment(images, PADDING, shifts, flags), MEAN, STD),
        "torchvision": lambda: transformed(pictures, shifts, flags),
        "pil": lambda: with_pil(pictures, shifts, flags),
    }
    seconds, outputs = dict.fromkeys(sides, float("inf")), {}
    for _ in range(args.rounds):
        for name, side in sides.items():
            began = time.process_time()  # CPU time of this process: other programs on the machine do not count
            outputs[name] = side()
            seconds[name] = min(seconds[name], time.process_time() - began)
    equal = all(bool((outputs["batch"] - outputs[name]).abs().max() < 1e-5) for name in sides)
    ratios = {name: round(seconds[name] / seconds["batch"], 1) for name in ("torchvision", "pil")}
    result = {
        "images": args.images,
        "images_per_second": {name: round(args.images / value) for name, value in seconds.items()},
        "ratio": ratios,
        "versions": {name: version(name) for name in ("torch", "torchvision", "pillow")},
        "cpu": cpu_model(),
    }
    floors = {"times as fast as torchvision's transforms": (ratios["torchvision"], NEEDED)}
    return outcome.end(args, result, equal=equal, at_least=floors)


if __name__ == "__main__":
    sys.exit(main())
