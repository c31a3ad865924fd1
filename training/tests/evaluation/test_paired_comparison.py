"""compare: verdicts, symmetry, determinism; how often the interval covers the truth and noise is called better."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from trainlab.errors import UserError
from trainlab.evaluation.paired_comparison import SAME, TOO_FEW, compare, interval, min_clusters

TRIALS = 800
Gains = Callable[[np.random.Generator, int], NDArray[Any]]


def loss(before: Any, after: Any, **changes: Any) -> dict[str, Any]:
    settings = {"higher_is_better": False, "samples": 1000, "confidence": 0.95, "seed": 1} | changes
    return compare(list(before), list(after), **settings)


def wordings(gains: NDArray[Any], seed: int = 1, confidence: float = 0.95) -> dict[str, Any]:
    """Compare by the gains of each fact's wordings: (facts, wordings)."""
    rows = gains.ravel().tolist()
    names = np.repeat(np.arange(len(gains)), gains.shape[1]).astype(str).tolist()
    rule: dict[str, Any] = {"higher_is_better": True, "samples": 1000, "confidence": confidence, "seed": seed}
    return compare([0.0] * len(rows), rows, clusters=names, **rule)


def test_identical_scores_are_no_difference() -> None:
    scores = np.random.default_rng(0).normal(2, 1, 50)
    result = loss(scores, scores)
    assert (result["verdict"], result["mean"], result["low"], result["high"]) == ("no difference", 0, 0, 0)


def test_a_bound_of_zero_is_no_difference_whatever_the_rounding() -> None:
    """Thirds that cancel leave 5e-18: seen with facts answered in thirds."""
    third = 1 / 3
    before, after = [third] * 24 + [0.1 + 0.2] * 24, [third] * 24 + [0.3] * 24
    assert compare(before, after, higher_is_better=False, samples=500, confidence=0.95, seed=1)["verdict"] == SAME


def test_the_smallest_interval_reaches_from_the_least_gain_to_the_largest() -> None:
    """Of six gains 63 subsets have a mean, and 95 % cut off one order statistic on each side: the gains themselves."""
    assert interval([1, 2, 3, 4, 5, 6], samples=200, confidence=0.95, seed=1) == (1.0, 6.0)


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
    monkeypatch.setattr("trainlab.evaluation.paired_comparison._CELLS", 400)
    assert loss(before, after) == first


def test_few_clusters_are_compared_exactly() -> None:
    """Of eight facts six may rise alone: 2 of their 64 sign flips are as extreme, 3 %; of five it would be 2 of 32, 6 %."""
    risen = [[1.0, 1.0]] * 6 + [[0.0, 0.0]] * 2
    assert wordings(np.array(risen))["verdict"] == "better"
    assert wordings(np.array([*risen[1:], [0.0, 0.0]]))["verdict"] == SAME
    assert wordings(np.array(risen), seed=1) == wordings(np.array(risen), seed=2)


@pytest.mark.parametrize(("confidence", "facts"), [(0.95, 6), (0.9, 5), (0.99, 8), (0.75, 3)])
def test_fewer_clusters_than_an_interval_takes_are_no_verdict(confidence: float, facts: int) -> None:
    assert min_clusters(confidence) == facts
    few = wordings(np.full((facts - 1, 20), 0.5), confidence=confidence)
    assert (few["verdict"], few["low"], few["high"]) == (TOO_FEW, None, None)
    assert (few["mean"], few["pairs"], few["clusters"]) == (0.5, 20 * (facts - 1), facts - 1)
    assert wordings(np.full((facts, 2), 0.5), confidence=confidence)["verdict"] == "better"
    short = {"samples": 1000, "confidence": confidence, "seed": 1}
    assert interval([0.5] * (facts - 1), **short) == (None, None)


def test_wordings_of_a_fact_count_as_the_fact() -> None:
    """Equal wordings change nothing, and the mean is that of the rows where facts have different numbers of them."""
    gains = np.random.default_rng(6).normal(0.4, 1, (30, 1))
    single, double = wordings(gains), wordings(np.repeat(gains, 2, axis=1))
    assert {key: single[key] for key in ("mean", "low", "high", "clusters")} == pytest.approx(
        {key: double[key] for key in ("mean", "low", "high", "clusters")}
    )
    names, rows = ["a"] * 3 + list("bcdefghij"), [1.0] * 3 + [0.0] * 9
    uneven = compare([0.0] * 12, rows, clusters=names, higher_is_better=True, samples=500, confidence=0.95, seed=1)
    assert uneven["mean"] == 0.25 and uneven["clusters"] == 10 and uneven["low"] == 0 < uneven["high"] <= 1


def normal(rng: np.random.Generator, facts: int) -> NDArray[Any]:
    """Losses: the two wordings correlate by 0.8."""
    return rng.normal(0, 1, (facts, 1)) + rng.normal(0, 0.5, (facts, 2))


def recall(rng: np.random.Generator, facts: int) -> NDArray[Any]:
    """Recall: three of ten facts change, up or down, by a half or wholly, half of them in one wording only."""
    change = rng.choice([-1.0, -0.5, 0.5, 1.0], (facts, 1)) * (rng.random((facts, 1)) < 0.3)
    return change * np.where(rng.random((facts, 1)) < 0.5, [[1.0, 0.0]], [[1.0, 1.0]])


@pytest.mark.parametrize("gains", [normal, recall])
@pytest.mark.parametrize("facts", [3, 8, 20, 48])
def test_noise_is_seldom_better_and_the_interval_covers_the_truth(facts: int, gains: Gains) -> None:
    """Nominal: 2.5 % better, 2.5 % worse, 95 % covered; three standard errors of the trials are allowed, more for fewer."""
    rng = np.random.default_rng(facts)
    results = [wordings(gains(rng, facts), seed) for seed in range(TRIALS)]
    verdicts = [result["verdict"] for result in results]
    if facts == 3:
        assert set(verdicts) == {TOO_FEW}
        return
    tail = 0.025 + 3 * (0.025 * 0.975 / TRIALS) ** 0.5
    assert verdicts.count("better") / TRIALS <= tail and verdicts.count("worse") / TRIALS <= tail
    covered = sum(result["low"] <= 1e-12 and result["high"] >= -1e-12 for result in results) / TRIALS
    assert covered >= 0.95 - 3 * (0.05 * 0.95 / TRIALS) ** 0.5
    assert gains is recall or covered <= 0.95 + 3 * (0.05 * 0.95 / TRIALS) ** 0.5, "no wider than it says"


@pytest.mark.parametrize(("facts", "power"), [(8, 0.6), (20, 0.95), (48, 0.99)])
def test_what_is_learned_is_seen(facts: int, power: float) -> None:
    """Facts that were not known and are now stated with probability 0.9: sizes of the phases quick and survival."""
    rng = np.random.default_rng(facts)
    seen = [wordings(np.repeat(rng.random((facts, 1)) < 0.9, 2, axis=1) * 1.0)["verdict"] for _ in range(200)]
    assert seen.count("better") / 200 >= power


def test_one_pair_proves_nothing_and_no_pair_is_an_error() -> None:
    assert loss([2.0], [1.0])["verdict"] == TOO_FEW
    with pytest.raises(UserError, match="cannot pair 2 scores before with 1 after"):
        loss([1, 2], [1])
    with pytest.raises(UserError):
        loss([], [])
