"""The gate of image classifiers: test accuracy with its interval, against the untrained network and a threshold."""

from collections.abc import Mapping
from datetime import UTC, datetime
from statistics import NormalDist
from typing import Any

from trainlab.config import ResnetPhase
from trainlab.evaluation.answer_gate import paired
from trainlab.evaluation.paired_bootstrap import compare

Scores = Mapping[str, Any]


def decide(before: Scores, after: Scores, phase: ResnetPhase) -> dict[str, Any]:
    """Return the content of gate.json for two results of `image_score.score` over the same images.

    Promoted only if the gain's interval (paired bootstrap) lies above `gate.min_gain` and the accuracy's own interval
    (Wilson) above `vision.min_accuracy`. `reasons` holds a sentence per condition, whichever way it went.
    """
    pairs = paired(before, after)
    settings, level = phase.evaluate, f"{phase.evaluate.confidence:.0%}"
    first, second = ([pair[side]["correct"] for pair in pairs] for side in (0, 1))
    gain = compare(
        first,
        second,
        higher_is_better=True,
        samples=settings.bootstrap_samples,
        confidence=settings.confidence,
        seed=phase.seed,
    )
    low, high = wilson(sum(second), len(second), settings.confidence)
    enough, right = gain["low"] > phase.gate.min_gain, low > phase.vision.min_accuracy
    return {
        "promoted": enough and right,
        "verdict": gain["verdict"],
        "metric": "accuracy",
        "gain": gain,
        "accuracy": gain,
        "test_accuracy": {"mean": gain["after"], "low": low, "high": high, "images": len(second)},
        "reasons": [
            f"Test accuracy went from {gain['before']:.1%} (untrained) to {gain['after']:.1%} over {gain['pairs']} "
            f"images: a gain of {gain['mean']:+.1%} with the {level} interval {gain['low']:+.1%} to {gain['high']:+.1%}; "
            f"its lower end is {'above' if enough else 'not above'} the required {phase.gate.min_gain:.1%}.",
            f"The {level} interval of the test accuracy is {low:.1%} to {high:.1%}; its lower end is "
            f"{'above' if right else 'not above'} the required {phase.vision.min_accuracy:.1%}.",
        ],
        "thresholds": {
            "min_gain": phase.gate.min_gain,
            "min_accuracy": phase.vision.min_accuracy,
            "confidence": settings.confidence,
            "bootstrap_samples": settings.bootstrap_samples,
        },
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def wilson(right: int, count: int, confidence: float) -> tuple[float, float]:
    """Return the score interval of a share at the two-sided level `confidence` (Wilson, JASA 22, 1927).

    Unlike the bootstrap, it does not collapse to a point when everything is right.
    """
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    share, square = right / count, z * z / count
    center = (share + square / 2) / (1 + square)
    reach = z / (1 + square) * (share * (1 - share) / count + square / (4 * count)) ** 0.5
    return max(0.0, center - reach), min(1.0, center + reach)
