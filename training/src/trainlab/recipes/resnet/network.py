"""ResNet-18 for small images: 3x3 first convolution, no max-pool (He et al., arXiv 1512.03385, sections 3.3 and 4.2).

torchvision's resnet18 begins with 7x7 stride 2 and a max-pool, which reduce 32 x 32 pixels to 8 x 8 before the first block.
"""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from trainlab import files
from trainlab.errors import UserError


class Block(nn.Module):
    """Two 3x3 convolutions and a shortcut, which is a 1x1 convolution where the shape changes (option B)."""

    def __init__(self, given: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(given, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or given != width:
            self.shortcut = nn.Sequential(nn.Conv2d(given, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, given, H, W) to (N, width, H / stride, W / stride)."""
        inner = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(inner)) + self.shortcut(x))


class ResNet18(nn.Module):
    """Four stages of two blocks; 11.17 million parameters with width 64, 3 channels and 10 classes."""

    def __init__(self, channels: int, classes: int, width: int = 64) -> None:
        super().__init__()
        self.settings = {"channels": channels, "classes": classes, "width": width}
        stages: list[nn.Module] = [nn.Conv2d(channels, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        given = width
        for index in range(4):
            wide = width * 2**index
            stages += [Block(given, wide, 1 if index == 0 else 2), Block(wide, wide, 1)]
            given = wide
        self.features = nn.Sequential(*stages)
        self.head = nn.Linear(given, classes)
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
        save_file(
            {k: v.detach().cpu().contiguous() for k, v in network.state_dict().items()}, work / "model.safetensors"
        )
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
