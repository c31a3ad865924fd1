"""What preference tuning learns at the full scale's rate is in the saved model: its difference to the parent."""

from pathlib import Path
from typing import Any

import pytest
import torch
from checkout import VALUES
from safetensors.torch import load_file
from stages import DPO, phase_of
from tiny import make_job, write_data
from trained import weights
from trainlab.config.loading import load_values
from trainlab.errors import UserError
from trainlab.recipes import dpo

Weights = dict[str, torch.Tensor]


@pytest.fixture
def parent(tiny_model: Path) -> Weights:
    """Weights of the usual size on the grid of bfloat16, as the stage before saved them."""
    found = load_file(tiny_model / "model.safetensors")
    matrices = {name: tensor for name, tensor in found.items() if tensor.dim() == 2}
    small = {name: tensor / tensor.std() * 0.02 for name, tensor in matrices.items()}
    return {name: small.get(name, tensor).to(torch.bfloat16).float() for name, tensor in found.items()}


def learn(base: dict[str, Any], folder: Path, tiny_model: Path, parent: Weights, dtype: str) -> tuple[Weights, Weights]:
    """Train with the full scale's rate; return what was learned and what was saved of it, as differences by name."""
    full = load_values([VALUES / "staged-dpo.yaml"]).phase
    train = {"learning_rate": full.train.learning_rate, "epochs": 2, "checkpoints": 1, "validation_fraction": 0}
    phase = phase_of(base, DPO, train=train, model={"dtype": dtype})
    job = make_job(phase, tiny_model, write_data(folder / "data"), folder / "run")
    job.model.load_state_dict(parent, strict=False)
    dpo.fit(job)
    learned = {name: tensor.detach().float() - parent[name] for name, tensor in job.model.named_parameters()}
    return learned, {name: weights(job.run_dir)[name].float() - parent[name] for name in learned}


def kept(learned: Weights, saved: Weights) -> float:
    """Return the cosine between what was learned and what was saved."""
    one, other = (torch.cat([part[name].flatten() for name in learned]) for part in (learned, saved))
    return float(torch.nn.functional.cosine_similarity(one, other, dim=0))


def test_the_full_scale_saves_what_it_learned(
    phase_dict: dict[str, Any], tmp_path: Path, tiny_model: Path, parent: Weights
) -> None:
    dtype = load_values([VALUES / "staged-dpo.yaml"]).phase.model.dtype
    learned, saved = learn(phase_dict, tmp_path, tiny_model, parent, dtype)
    assert max(float(tensor.abs().max()) for tensor in learned.values()) > 0
    assert kept(learned, saved) > 0.9999
    narrow = {name: (parent[name] + tensor).to(torch.bfloat16).float() - parent[name] for name, tensor in saved.items()}
    assert kept(learned, narrow) < 0.5  # what bfloat16 would have kept


def test_bfloat16_is_refused_before_the_first_step(
    phase_dict: dict[str, Any], tmp_path: Path, tiny_model: Path, parent: Weights
) -> None:
    with pytest.raises(UserError, match=r"learning_rate is 5e-07: 12 steps .* set phase.model.saved_dtype to float32"):
        learn(phase_dict, tmp_path, tiny_model, parent, "bfloat16")
    assert not (tmp_path / "run" / "best_model").exists()


def test_the_stage_after_it_loads_its_weights_as_they_were_saved() -> None:
    after = load_values([VALUES / "staged-lora.yaml"]).phase
    assert after.parent == "dpo" and after.model.dtype == "float32"
