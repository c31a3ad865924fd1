"""The gate of pre-training: loss on held-out blocks, block by block, base against tuned; used by cpt_recipe.py."""

import math
from typing import Any

from trainlab.config import TextPhase
from trainlab.config.methods import PretrainStage
from trainlab.evaluation import gate
from trainlab.evaluation.gate import Scores, Unit

BLOCKS = Unit("held-out blocks", "documents", "raise phase.text.heldout_fraction, or add documents")


def decide(before: Scores, after: Scores, phase: TextPhase) -> dict[str, Any]:
    """Return the content of gate.json for two results of `block_score.score` over the same blocks.

    Promoted only if the interval of the gain in nats per token lies above `gate.min_gain`, and the perplexity is no higher
    than `stage.max_perplexity`. A gain of g nats divides the perplexity by exp(g). Raises UserError if the two do not cover
    the same blocks.
    """
    pairs = gate.paired(before, after)
    gain = gate.compared(pairs, "loss", phase)
    both = _perplexity(gain)
    change = ""
    if gain and both:
        change = (
            f"Perplexity went from {both['before']:.2f} to {both['after']:.2f} over {BLOCKS.count(gain)}: "
            f"{gain['before']:.3f} to {gain['after']:.3f} nats per token, a gain of {gain['mean']:+.3f}"
        )
    conditions, stage = [gate.min_gain(gain, phase, BLOCKS, change)], phase.stage_block
    if isinstance(stage, PretrainStage) and stage.max_perplexity is not None:
        reached = both["after"] if both else None
        what = "Perplexity on held-out blocks"
        conditions.append(gate.bounded("max_perplexity", reached, gate.AT_MOST, stage.max_perplexity, what))
    scores = {
        "heldout_loss": gain,
        "perplexity": both,
        "next_token_accuracy": gate.compared(pairs, "right", phase),
    }
    return gate.decision(phase, gain, conditions, scores)


def perplexity(loss: float) -> float:
    """Return exp(loss), infinity where that overflows a float."""
    return math.exp(loss) if loss < 700 else math.inf


def _perplexity(gain: Scores | None) -> dict[str, float | None] | None:
    """Return the gain as perplexities, and by what factor the perplexity was divided, with the interval of the factor."""
    if gain is None:
        return None
    return {
        "before": perplexity(gain["before"]),
        "after": perplexity(gain["after"]),
        "factor": perplexity(gain["mean"]),
        "low": None if gain["low"] is None else perplexity(gain["low"]),
        "high": None if gain["high"] is None else perplexity(gain["high"]),
    }
