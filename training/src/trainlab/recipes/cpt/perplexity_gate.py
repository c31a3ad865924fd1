"""The gate of continued pre-training: loss on held-out blocks, block by block, base against tuned; used by cpt_recipe.py."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from trainlab.config import TextPhase
from trainlab.evaluation.answer_gate import compared, paired
from trainlab.evaluation.paired_bootstrap import SAME

Scores = Mapping[str, Any]


def decide(before: Scores, after: Scores, phase: TextPhase) -> dict[str, Any]:
    """Return the content of gate.json for two results of `block_score.score` over the same blocks.

    Promoted only if the interval of the gain in nats per token (paired bootstrap over blocks) lies above `gate.min_gain`.
    A gain of g nats divides the perplexity by exp(g). Raises UserError if the two do not cover the same blocks.
    """
    pairs = paired(before, after)
    gain = compared(pairs, "loss", phase)
    settings, needed = phase.evaluate, phase.gate.min_gain
    return {
        "promoted": bool(gain and gain["low"] > needed),
        "verdict": gain["verdict"] if gain else SAME,
        "metric": phase.gate.metric,
        "gain": gain,
        "heldout_loss": gain,
        "perplexity": _perplexity(gain),
        "next_token_accuracy": compared(pairs, "right", phase),
        "reasons": [_reason(gain, phase)],
        "thresholds": {
            "min_gain": needed,
            "confidence": settings.confidence,
            "bootstrap_samples": settings.bootstrap_samples,
        },
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def perplexity(loss: float) -> float:
    """Return exp(loss), infinity where that overflows a float."""
    return math.exp(loss) if loss < 700 else math.inf


def _perplexity(gain: Mapping[str, Any] | None) -> dict[str, float] | None:
    """Return the gain as perplexities, and by what factor the perplexity was divided, with the interval of the factor."""
    if gain is None:
        return None
    return {
        "before": perplexity(gain["before"]),
        "after": perplexity(gain["after"]),
        "factor": perplexity(gain["mean"]),
        "low": perplexity(gain["low"]),
        "high": perplexity(gain["high"]),
    }


def _reason(gain: Mapping[str, Any] | None, phase: TextPhase) -> str:
    if gain is None:
        return "The losses could not be compared: a value is not a finite number."
    both = _perplexity(gain) or {}
    enough = gain["low"] > phase.gate.min_gain
    return (
        f"Perplexity went from {both['before']:.2f} to {both['after']:.2f} over {gain['pairs']} held-out blocks: "
        f"{gain['before']:.3f} to {gain['after']:.3f} nats per token, a gain of {gain['mean']:+.3f} with the "
        f"{phase.evaluate.confidence:.0%} interval {gain['low']:+.3f} to {gain['high']:+.3f}; its lower end is "
        f"{'above' if enough else 'not above'} the required {phase.gate.min_gain:g}."
    )
