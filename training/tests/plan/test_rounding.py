"""The share of weights that an update can change when they are saved as bfloat16, held against torch's own rounding."""

import pytest
import torch
from trainlab.plan import rounding


@pytest.mark.parametrize(("rate", "steps"), [(5e-7, 31), (3e-6, 31), (5e-6, 60), (2e-5, 18)])
def test_the_share_of_weights_that_can_change_is_that_of_torch(rate: float, steps: int) -> None:
    torch.manual_seed(0)
    weights = (torch.randn(1_000_000) * rounding.WEIGHT).to(torch.bfloat16)
    moved = weights.float() + rounding.travel(rate, steps) * torch.randn(1_000_000).sign()
    changed = float((moved.to(torch.bfloat16) != weights).float().mean())
    assert rounding.changeable(rounding.travel(rate, steps)) == pytest.approx(changed, abs=0.01)


def test_the_sentence_names_rate_steps_and_remedy() -> None:
    assert rounding.lost(5e-7, 31) == (
        "phase.train.learning_rate is 5e-07: 31 steps move a weight by at most 7.8e-06; saved as bfloat16, 85% of "
        "weights of the usual size 0.02 are rounded back to what they were; set phase.model.saved_dtype to float32, or "
        "raise the rate or train.epochs"
    )
    assert rounding.lost(5e-6, 60) is None and rounding.lost(1e-30, 1) is not None
