"""Optimizer, learning-rate schedule and random streams of resnet_trainer.py."""

import hashlib
import math

import torch
from torch import nn

from trainlab.config import ResnetPhase
from trainlab.config.methods import Train


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
