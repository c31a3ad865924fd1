"""Paired bootstrap: is the mean of paired differences better, worse, or not different? Numbers only; used by gate."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from trainlab.errors import UserError

BETTER, SAME, WORSE = "better", "no difference", "worse"
_ROUNDING = 1e-12  # a mean of gains that cancel is off from 0 by some 1e-18
_CELLS = 2_000_000  # indices drawn at once: 16 MB whatever the number of samples


def compare(
    before: Sequence[float],
    after: Sequence[float],
    *,
    higher_is_better: bool,
    samples: int,
    confidence: float,
    seed: int,
) -> dict[str, Any]:
    """Compare two equally long series of scores for the same items.

    Returns {before, after: means, mean: mean gain (positive is better), low, high: percentile interval of the gain at
    the two-sided level `confidence`, pairs, verdict}. The verdict is "better" when low > 0, "worse" when high < 0,
    else "no difference". Items are resampled (Efron and Tibshirani, An Introduction to the Bootstrap, chapter 13).
    Raises UserError for series that cannot be paired.
    """
    if len(before) != len(after) or not before:
        raise UserError(
            f"cannot pair {len(before)} scores before with {len(after)} after; score the same rows both times"
        )
    first, second = np.asarray(before, dtype=np.float64), np.asarray(after, dtype=np.float64)
    gain = second - first if higher_is_better else first - second
    low, high = _interval(gain, samples, confidence, seed)
    verdict = BETTER if low > _ROUNDING else WORSE if high < -_ROUNDING else SAME
    return {
        "before": float(first.mean()),
        "after": float(second.mean()),
        "mean": float(gain.mean()),
        "low": low,
        "high": high,
        "pairs": len(gain),
        "verdict": verdict,
    }


def interval(values: Sequence[float], *, samples: int, confidence: float, seed: int) -> tuple[float, float]:
    """Return the bootstrap interval of the mean of `values` (one score's own bar in the report)."""
    return _interval(np.asarray(values, dtype=np.float64), samples, confidence, seed)


def _interval(values: Any, samples: int, confidence: float, seed: int) -> tuple[float, float]:
    if len(values) == 1:  # nothing to resample: widened to include zero, so one item proves nothing
        return min(0.0, float(values[0])), max(0.0, float(values[0]))
    rng = np.random.default_rng(seed)
    block = max(1, _CELLS // len(values))
    means = [
        values[rng.integers(0, len(values), size=(min(block, samples - start), len(values)))].mean(axis=1)
        for start in range(0, samples, block)
    ]
    tail = (1 - confidence) / 2
    low, high = np.quantile(np.concatenate(means), [tail, 1 - tail])
    return float(low), float(high)
