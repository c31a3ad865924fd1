"""The gate of image classifiers: test accuracy with its interval, against the untrained network and a threshold."""

from statistics import NormalDist
from typing import Any

from trainlab.config import ResnetPhase
from trainlab.evaluation import gate
from trainlab.evaluation.gate import Condition, Scores, Unit

IMAGES = Unit("images", "images", "raise phase.data.heldout_rows, or add images")


def decide(before: Scores, after: Scores, phase: ResnetPhase) -> dict[str, Any]:
    """Return the content of gate.json for two results of `image_score.score` over the same images.

    Promoted only if the gain's interval lies above `gate.min_gain` and the accuracy's own interval (Wilson) above
    `vision.min_accuracy`. `reasons` holds a sentence per condition, whichever way it went.
    """
    pairs = gate.paired(before, after)
    gain = gate.compared(pairs, "correct", phase)
    right = [item["correct"] for _, item in pairs]
    level = phase.evaluate.confidence
    low, high = wilson(sum(right), len(right), level)
    change = ""
    if gain:
        change = (
            f"Test accuracy went from {gain['before']:.1%} (untrained) to {gain['after']:.1%} over {IMAGES.count(gain)}: "
            f"a gain of {gain['mean']:+.1%}"
        )
    accurate = Condition("min_accuracy", low, gate.ABOVE, phase.vision.min_accuracy)
    accurate = accurate.because(
        f"The {level:.0%} interval of the test accuracy is {low:.1%} to {high:.1%}; its lower end is "
        f"{'above' if accurate.passed else 'not above'} the required {accurate.bound:.1%}."
    )
    scores = {
        "accuracy": gain,
        "test_accuracy": {"mean": sum(right) / len(right), "low": low, "high": high, "images": len(right)},
    }
    return gate.decision(phase, gain, [gate.min_gain(gain, phase, IMAGES, change, "+.1%"), accurate], scores)


def wilson(right: int, count: int, confidence: float) -> tuple[float, float]:
    """Return the score interval of a share at the two-sided level `confidence` (Wilson, JASA 22, 1927).

    Unlike the bootstrap, it does not collapse to a point when everything is right.
    """
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    share, square = right / count, z * z / count
    center = (share + square / 2) / (1 + square)
    reach = z / (1 + square) * (share * (1 - share) / count + square / (4 * count)) ** 0.5
    return max(0.0, center - reach), min(1.0, center + reach)
