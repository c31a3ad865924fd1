"""The device and dtype a rank computes with; used by everything that loads or creates a model."""

import os

import torch

from trainlab.config import Phase


def dtype(phase: Phase) -> torch.dtype:
    """Return the dtype of the weights: `model.dtype`, where auto depends on the hardware."""
    if phase.model.dtype == "auto":
        fast = torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)
        return torch.bfloat16 if fast else torch.float32
    return torch.bfloat16 if phase.model.dtype == "bfloat16" else torch.float32


def device() -> torch.device:
    """Return this process's GPU (LOCAL_RANK) or the CPU."""
    if torch.cuda.is_available():
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    return torch.device("cpu")
