"""The weights that a run leaves."""

from pathlib import Path

import torch
from safetensors.torch import load_file


def weights(run_dir: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of best_model/ by name."""
    return load_file(run_dir / "best_model" / "model.safetensors")


def assert_same(one: Path, other: Path, tolerance: float = 1e-6) -> None:
    """Assert that two runs left the same weights."""
    first, second = weights(one), weights(other)
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert torch.allclose(tensor, second[name], atol=tolerance), name
