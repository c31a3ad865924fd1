"""The device and dtype a rank computes with; used by everything that loads or creates a model."""

import os

import torch

from trainlab.config import LanguagePhase, Phase
from trainlab.errors import UserError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
_begun: list[torch.dtype] = []


def dtype(phase: Phase) -> torch.dtype:
    """Return what training and scoring compute in: `model.dtype`, where auto depends on the hardware, or on what `keep` was asked for."""
    if phase.model.dtype == "auto":
        return _begun[-1] if _begun else torch.bfloat16 if _has_bfloat16() else torch.float32
    return DTYPES[phase.model.dtype]


def keep(name: str | None) -> None:
    """Let `auto` be the dtype of this name in this process, that of a run's first start; None: as the hardware has it.

    A run whose pod comes back on another kind of node would else compare scores of two precisions.
    """
    _begun[:] = [DTYPES[name]] if name else []


def _has_bfloat16() -> bool:
    """Whether this GPU, or without one this processor, multiplies bfloat16 matrices faster than float32 ones."""
    if torch.cuda.is_available():
        return torch.cuda.is_bf16_supported(including_emulation=False)
    able = torch.cpu.get_capabilities()
    return bool(able.get("avx512_bf16") or able.get("amx_bf16"))


def saved_dtype(phase: LanguagePhase) -> torch.dtype:
    """Return the dtype of the trained weights on the volume: `model.saved_dtype`, else what computes."""
    return DTYPES[phase.model.saved_dtype] if phase.model.saved_dtype else dtype(phase)


def served_dtype(phase: LanguagePhase) -> torch.dtype:
    """Return what the served model computes in: `serve.dtype`, else what training computes in."""
    served: str | None = getattr(phase.serve, "dtype", None)
    return DTYPES[served] if served else dtype(phase)


def set_tf32(phase: Phase) -> None:
    """Allow or forbid TF32 in this process as `train.tf32` says; null leaves PyTorch's own setting.

    Raises UserError where this GPU has no TF32.
    """
    wish = phase.train.tf32
    if wish is None:
        return
    if wish and torch.cuda.is_available() and torch.cuda.get_device_capability() < (8, 0):
        raise UserError(
            f"phase.train.tf32 is true: {torch.cuda.get_device_name()} has no TF32, which needs capability 8.0; remove it"
        )
    torch.set_float32_matmul_precision("high" if wish else "highest")
    torch.backends.cudnn.allow_tf32 = wish


def device() -> torch.device:
    """Return this process's GPU (LOCAL_RANK) or the CPU."""
    if torch.cuda.is_available():
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    return torch.device("cpu")
