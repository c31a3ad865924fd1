"""Paired comparison by sign flips: are scores better, worse or not different, and by how much? Used by gate.py.

If nothing changed, a gain is as likely to be a loss of the same size: the randomization test flips the signs of the
gains in every way, or in many ways at random (Fisher, The Design of Experiments, 1935, section 21). The interval holds
every gain that this test does not reject, so the verdict follows from it. Its bounds are order statistics of the mean
gains of all subsets (Hartigan, Using subsample values as typical values, JASA 64, 1969): exact for symmetric gains,
however few there are. Gains that are all equal leave a point, which shows that there is a change and not how well it is
known. Rows that share a fact, a document or a question (a cluster) rise and fall together and are flipped together.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainlab.errors import UserError

BETTER, SAME, WORSE, TOO_FEW = "better", "no difference", "worse", "too few to tell"
Interval = tuple[float, float] | tuple[None, None]
_ROUNDING = 1e-12  # a mean of gains that cancel is off from 0 by some 1e-18
_ALL_SUBSETS = 12  # up to this many clusters all subsets are taken, 4,095
_CELLS = 2_000_000  # memberships drawn at once: 16 MB whatever the number of samples


def compare(
    before: Sequence[float],
    after: Sequence[float],
    *,
    higher_is_better: bool,
    samples: int,
    confidence: float,
    seed: int,
    clusters: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Compare two equally long series of scores for the same rows.

    clusters: the name of each row's cluster; None: each is its own. samples: subsets drawn where there are too many to
    take all. Returns {before, after: means over rows, mean: mean gain (positive is better), low, high: interval of the
    gain at the two-sided level `confidence`, None with fewer clusters than min_clusters(confidence), pairs: rows,
    clusters: their number, verdict}. The verdict is "better" when low > 0, "worse" when high < 0, "too few to tell"
    without an interval, else "no difference". Raises UserError for series that cannot be paired.
    """
    if len(before) != len(after) or not before:
        raise UserError(
            f"cannot pair {len(before)} scores before with {len(after)} after; score the same rows both times"
        )
    first, second = np.asarray(before, dtype=np.float64), np.asarray(after, dtype=np.float64)
    gain = second - first if higher_is_better else first - second
    sums, counts = _by_cluster(gain, clusters)
    low, high = _interval(sums, counts, samples, confidence, seed)
    return {
        "before": float(first.mean()),
        "after": float(second.mean()),
        "mean": float(gain.mean()),
        "low": low,
        "high": high,
        "pairs": len(gain),
        "clusters": len(sums),
        "verdict": _verdict(low, high),
    }


def interval(
    values: Sequence[float], *, samples: int, confidence: float, seed: int, clusters: Sequence[str] | None = None
) -> Interval:
    """Return (low, high) of the mean of `values` (one score's own bar in the report), as in compare."""
    return _interval(*_by_cluster(np.asarray(values, dtype=np.float64), clusters), samples, confidence, seed)


def min_clusters(confidence: float) -> int:
    """Return how many clusters an interval at this level takes: 2 of 2^n flips must not be more than 1 - confidence."""
    return math.ceil(round(math.log2(2 / (1 - confidence)), 9))


def wilson(right: int, count: int, confidence: float) -> tuple[float, float]:
    """Return the score interval of a share at the two-sided level `confidence` (Wilson, JASA 22, 1927).

    Unlike an interval of sampled means, it does not collapse to a point when everything is right.
    """
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    share, square = right / count, z * z / count
    center = (share + square / 2) / (1 + square)
    reach = z / (1 + square) * (share * (1 - share) / count + square / (4 * count)) ** 0.5
    return max(0.0, center - reach), min(1.0, center + reach)


def _verdict(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return TOO_FEW
    return BETTER if low > _ROUNDING else WORSE if high < -_ROUNDING else SAME


def _by_cluster(values: NDArray[Any], clusters: Sequence[str] | None) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the sum of the values of each cluster, and the number of its rows."""
    if clusters is None:
        return values, np.ones(len(values))
    __, places = np.unique(np.asarray(clusters, dtype=str), return_inverse=True)
    return np.bincount(places, weights=values), np.bincount(places).astype(np.float64)


def _interval(sums: NDArray[Any], counts: NDArray[Any], samples: int, confidence: float, seed: int) -> Interval:
    clusters = len(sums)
    if clusters < min_clusters(confidence):
        return None, None
    if clusters <= _ALL_SUBSETS:
        means = _means(np.arange(1, 2**clusters)[:, None] >> np.arange(clusters) & 1, sums, counts)
    else:
        rng = np.random.default_rng(seed)
        samples = max(samples, math.ceil(2 / (1 - confidence)))
        block = max(1, _CELLS // clusters)
        sizes = [min(block, samples - start) for start in range(0, samples, block)]
        means = np.concatenate([_means(rng.integers(0, 2, size=(size, clusters)), sums, counts) for size in sizes])
    means.sort()
    beyond = int((1 - confidence) / 2 * (len(means) + 1) + _ROUNDING)  # order statistics cut off on each side, plus 1
    return float(means[beyond - 1]), float(means[-beyond])


def _means(members: NDArray[Any], sums: NDArray[Any], counts: NDArray[Any]) -> NDArray[Any]:
    """Return the mean over the rows of each subset of clusters; members: (subsets, clusters), 1 for those in it."""
    members[~members.any(axis=1)] = 1  # drawn once in 2^clusters: an empty subset has no mean
    members = members.astype(np.float64)
    return (members @ sums) / (members @ counts)
