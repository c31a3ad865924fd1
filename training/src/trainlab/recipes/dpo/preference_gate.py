"""The gate of preferences: how far the model moved from its parent towards the chosen answers, pair by pair."""

from typing import Any

from trainlab.config import DpoPhase
from trainlab.evaluation import answer_gate, gate
from trainlab.evaluation.gate import Scores, Unit

PAIRS = Unit("held-out pairs", "questions", "raise phase.data.heldout_rows, or add pairs")


def decide(before: Scores, after: Scores, phase: DpoPhase) -> dict[str, Any]:
    """Return the content of gate.json; a pair's margin is beta x (how much more the chosen gained than the rejected), in nats.

    Promoted only if the interval of the margin lies above `gate.min_gain`, more than `stage.min_preference_accuracy` of the
    pairs moved in the right direction, and the loss on right answers rose by at most `stage.max_answer_loss_rise`. Raises
    UserError if the two do not cover the same pairs.
    """
    pairs, stage = gate.paired(before, after), phase.stage
    leads = [
        ({**a, "margin": 0.0}, {**b, "margin": stage.beta * (_lead(b) - _lead(a))}) for a, b in pairs
    ]  # the parent against itself
    gain = gate.compared(leads, "margin", phase)
    share = sum(b["margin"] > 0 for _, b in leads) / len(leads)
    loss = gate.compared(pairs, "loss", phase)
    change = ""
    if gain:
        change = (
            f"Compared with its parent, the model prefers the chosen answer by {gain['mean']:+.3f} nats of reward over "
            f"{PAIRS.count(gain)}"
        )
    conditions = [
        gate.min_gain(gain, phase, PAIRS, change),
        gate.bounded(
            "min_preference_accuracy",
            share,
            gate.ABOVE,
            stage.min_preference_accuracy,
            "The share of held-out pairs that moved in the right direction",
        ),
        gate.bounded(
            "max_answer_loss_rise",
            round(-loss["mean"], 9) if loss else None,
            gate.AT_MOST,
            stage.max_answer_loss_rise,
            "The rise in the loss on right answers, in nats per token,",
        ),
    ]
    scores = {
        "preference_margin": gain,
        "answer_loss": loss,
        "fact_recall": answer_gate.shown_recall(gate.compared(pairs, "recall", phase)),
        "label_accuracy": None,
        "form_adherence": None,
        "preference_accuracy": share,
    }
    return gate.decision(phase, gain, conditions, scores)


def _lead(item: Scores) -> float:
    """Return by how many nats the chosen answer is likelier than the rejected one."""
    return float(item["chosen_logp"] - item["rejected_logp"])
