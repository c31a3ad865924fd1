"""compare: verdicts, symmetry, determinism, coverage of the interval."""

from typing import Any

import numpy as np
import pytest
from trainlab.errors import UserError
from trainlab.evaluation.paired_bootstrap import SAME, compare, interval


def loss(before: Any, after: Any, **changes: Any) -> dict[str, Any]:
    settings = {"higher_is_better": False, "samples": 1000, "confidence": 0.95, "seed": 1} | changes
    return compare(list(before), list(after), **settings)


def test_identical_scores_are_no_difference() -> None:
    scores = np.random.default_rng(0).normal(2, 1, 50)
    result = loss(scores, scores)
    assert (result["verdict"], result["mean"], result["low"], result["high"]) == ("no difference", 0, 0, 0)


def test_a_bound_of_zero_is_no_difference_whatever_the_rounding() -> None:
    """Thirds that cancel leave 5e-18: seen with facts answered in thirds."""
    third = 1 / 3
    before, after = [third] * 24 + [0.1 + 0.2] * 24, [third] * 24 + [0.3] * 24
    assert compare(before, after, higher_is_better=False, samples=500, confidence=0.95, seed=1)["verdict"] == SAME


def test_verdicts_mirror() -> None:
    before = np.random.default_rng(0).normal(2, 0.5, 60)
    after = before - 0.2 + np.random.default_rng(1).normal(0, 0.1, 60)
    better, worse = loss(before, after), loss(after, before)
    assert (better["verdict"], worse["verdict"]) == ("better", "worse")
    assert better["mean"] == pytest.approx(-worse["mean"]) and better["mean"] == pytest.approx(0.2, abs=0.05)
    assert better["low"] <= better["mean"] <= better["high"]
    assert loss(before, after, higher_is_better=True)["verdict"] == "worse"


def test_noise_is_no_difference() -> None:
    rng = np.random.default_rng(3)
    assert loss(rng.normal(2, 1, 60), rng.normal(2, 1, 60))["verdict"] == "no difference"


def test_same_seed_same_interval_and_blocks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    before, after = rng.normal(2, 1, 40), rng.normal(2, 1, 40)
    first = loss(before, after)
    assert first == loss(before, after) and first != loss(before, after, seed=2)
    monkeypatch.setattr("trainlab.evaluation.paired_bootstrap._CELLS", 400)
    assert loss(before, after) == first


def test_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(5)
    inside = 0
    for seed in range(200):
        low, high = interval(list(rng.normal(1, 1, 60)), samples=400, confidence=0.9, seed=seed)
        inside += low <= 1 <= high
    assert 165 <= inside <= 195


def test_one_pair_proves_nothing_and_no_pair_is_an_error() -> None:
    assert loss([2.0], [1.0])["verdict"] == "no difference"
    with pytest.raises(UserError, match="cannot pair 2 scores before with 1 after"):
        loss([1, 2], [1])
    with pytest.raises(UserError):
        loss([], [])
