"""The gate of preferences: how far the model moved from its parent towards the chosen answers, pair by pair."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from trainlab.config import DpoPhase
from trainlab.evaluation import answer_gate
from trainlab.evaluation.paired_bootstrap import SAME, compare


def decide(before: Mapping[str, Any], after: Mapping[str, Any], phase: DpoPhase) -> dict[str, Any]:
    """Return the content of gate.json: the margin of each pair is beta x (how much more the chosen gained than the rejected)."""
    settings = phase.evaluate
    both = answer_gate.paired(before, after)
    margins = [phase.stage.beta * (_lead(b) - _lead(a)) for a, b in both]
    gain = None
    if all(math.isfinite(margin) for margin in margins):
        gain = compare(
            [0.0] * len(margins),  # the parent against itself
            margins,
            higher_is_better=True,
            samples=settings.bootstrap_samples,
            confidence=settings.confidence,
            seed=phase.seed,
        )
    share = sum(margin > 0 for margin in margins) / len(margins)
    return {
        "promoted": bool(gain and gain["low"] > phase.gate.min_gain),
        "verdict": gain["verdict"] if gain else SAME,
        "metric": phase.gate.metric,
        "gain": gain,
        "preference_margin": gain,
        "answer_loss": answer_gate.compared(both, "loss", phase),
        "fact_recall": answer_gate.compared(both, "recall", phase),
        "label_accuracy": None,
        "form_adherence": None,
        "preference_accuracy": share,
        "reasons": [_reason(gain, share, phase.gate.min_gain, settings.confidence)],
        "thresholds": {
            "min_gain": phase.gate.min_gain,
            "confidence": settings.confidence,
            "bootstrap_samples": settings.bootstrap_samples,
        },
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _lead(item: Mapping[str, Any]) -> float:
    """Return by how many nats the chosen answer is likelier than the rejected one."""
    return float(item["chosen_logp"] - item["rejected_logp"])


def _reason(gain: Mapping[str, Any] | None, share: float, needed: float, confidence: float) -> str:
    if gain is None:
        return "The margins could not be compared: a value is not a finite number."
    enough = "above" if gain["low"] > needed else "not above"
    return (
        f"Compared with its parent, the model prefers the chosen answer by {gain['mean']:+.3f} nats of reward over {gain['pairs']} "
        f"held-out pairs, {confidence:.0%} interval {gain['low']:+.3f} to {gain['high']:+.3f}; its lower end is {enough} the "
        f"required {needed:g}. It moved in the right direction on {share:.1%} of the pairs."
    )
