"""The gate: may the tuned model be served? A pure function of two evaluations and the phase; writes no file.

Called on rank 0 after training and by `trainlab gate`; its result is gate.json, which promote, verify-run and the report read.
"""

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from trainlab.config import Phase, SftPhase
from trainlab.errors import UserError
from trainlab.evaluation import facts
from trainlab.evaluation.paired_bootstrap import SAME, WORSE, compare, interval

Scores = Mapping[str, Any]
UNITS = {
    "answer_loss": "nats per token",
    "fact_recall": "of the facts",
    "taught_recall": "of the facts",
    "form_adherence": "of the form",
    "preference_margin": "nats",
}


def decide(before: Scores, after: Scores, phase: SftPhase) -> dict[str, Any]:
    """Return the content of gate.json for two results of `answer_score.score` over the same rows.

    Promoted only if the lower end of the gain's interval is above `gate.min_gain`, neither fact recall nor form adherence,
    where measured, dropped by more than `gate.max_..._drop`, and, where facts are taught, their recall rose and the answer loss
    did not get worse. Fact recall is that of questions whose facts were not taught, taught recall that of the others. `reasons` holds
    one sentence with numbers per condition, whichever way it went.
    Raises UserError if the two evaluations do not cover the same rows.
    """
    pairs = paired(before, after)
    loss = compared(pairs, "loss", phase)
    recall = compared([pair for pair in pairs if not pair[0].get("taught")], "recall", phase)
    taught = compared([pair for pair in pairs if pair[0].get("taught")], "recall", phase)
    label = compared([pair for pair in pairs if not pair[0].get("taught")], "labelled", phase)
    form = compared(pairs, "adherence", phase)
    rule = phase.gate
    gain = {"answer_loss": loss, "taught_recall": taught, "fact_recall": recall, "form_adherence": form}[rule.metric]
    conditions = [_gain_condition(gain, phase)]
    if rule.metric == "taught_recall":
        conditions.append(_loss_condition(loss))
    elif phase.data.taught and rule.require_taught:
        conditions.append(_taught_condition(taught))
    if recall or not (form or taught):
        conditions.append(_kept_condition("Fact recall", recall, rule.max_fact_recall_drop))
    if form:
        conditions.append(_kept_condition("Form adherence", form, rule.max_form_adherence_drop))
    return {
        "promoted": all(kept for kept, _ in conditions),
        "verdict": gain["verdict"] if gain else SAME,
        "metric": rule.metric,
        "gain": gain,
        "answer_loss": loss,
        "taught_recall": taught,
        "lookup_recall": _lookup(pairs, phase),
        "fact_recall": recall,
        "label_accuracy": label,
        "form_adherence": form,
        "ended_by_itself": compared(pairs, "ended", phase),
        **{f"form_{part}": compared(pairs, part, phase) for part in ("lines", "rhyme", "syllables")},
        "reasons": [reason for _, reason in conditions],
        "thresholds": {
            "min_gain": rule.min_gain,
            "max_fact_recall_drop": rule.max_fact_recall_drop,
            "max_form_adherence_drop": rule.max_form_adherence_drop,
            "confidence": phase.evaluate.confidence,
            "bootstrap_samples": phase.evaluate.bootstrap_samples,
        },
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def paired(before: Scores, after: Scores) -> list[tuple[Scores, Scores]]:
    """Return the items of both evaluations paired by id, in the order of the first; raises UserError for unmatched ones."""
    first, second = _by_id(before["items"], "before"), _by_id(after["items"], "after")
    if first.keys() != second.keys():
        odd = sorted(first.keys() ^ second.keys())
        raise UserError(
            f"eval_before.json and eval_after.json do not hold the same rows ({len(odd)} differ, first {odd[0]}); "
            "score both again with `trainlab eval RUN_DIR --models DIR`"
        )
    return [(item, second[key]) for key, item in first.items()]


def _by_id(items: Sequence[Scores], name: str) -> dict[str, Scores]:
    found = {str(item["id"]): item for item in items}
    if len(found) != len(items):
        raise UserError(f"eval_{name}.json: two rows have the same id; give every held-out row a unique id")
    return found


def compared(pairs: Sequence[tuple[Scores, Scores]], key: str, phase: Phase) -> dict[str, Any] | None:
    """Compare one score of all rows that have it on both sides; None if none has, or a value is not finite."""
    both = [(a[key], b[key]) for a, b in pairs if a.get(key) is not None and b.get(key) is not None]
    if not both or not all(math.isfinite(value) for pair in both for value in pair):
        return None
    settings = phase.evaluate
    return compare(
        [a for a, _ in both],
        [b for _, b in both],
        higher_is_better=key != "loss",
        samples=settings.bootstrap_samples,
        confidence=settings.confidence,
        seed=phase.seed,
    )


def _lookup(pairs: Sequence[tuple[Scores, Scores]], phase: SftPhase) -> dict[str, Any] | None:
    """Return the recall of a search for the nearest training question: {mean, low, high, pairs}; it decides nothing."""
    recalls = [facts.recall(item["nearest"], item["facts"]) for item, _ in pairs if "nearest" in item]
    values = [value for value in recalls if value is not None]
    if not values:
        return None
    settings = phase.evaluate
    low, high = interval(values, samples=settings.bootstrap_samples, confidence=settings.confidence, seed=phase.seed)
    return {"mean": sum(values) / len(values), "low": low, "high": high, "pairs": len(values)}


def _gain_condition(gain: Mapping[str, Any] | None, phase: SftPhase) -> tuple[bool, str]:
    metric, needed = phase.gate.metric, phase.gate.min_gain
    name = metric.replace("_", " ")
    if gain is None:
        return False, f"The {name} could not be compared: it was not measured, or a value is not a finite number."
    enough = gain["low"] > needed
    return enough, (
        f"{name.capitalize()} went from {gain['before']:.3f} to {gain['after']:.3f} {UNITS[metric]} over "
        f"{gain['pairs']} held-out questions: a gain of {gain['mean']:+.3f} with the "
        f"{phase.evaluate.confidence:.0%} interval {gain['low']:+.3f} to {gain['high']:+.3f}; its lower end is "
        f"{'above' if enough else 'not above'} the required {needed:g}."
    )


def _loss_condition(loss: Mapping[str, Any] | None) -> tuple[bool, str]:
    if loss is None:
        return False, "The answer loss could not be compared: it was not measured, or a value is not a finite number."
    kept = loss["verdict"] != WORSE
    return kept, (
        f"Answer loss went from {loss['before']:.3f} to {loss['after']:.3f}: {'not worse' if kept else 'worse'} (interval of "
        f"the gain {loss['low']:+.3f} to {loss['high']:+.3f})."
    )


def _taught_condition(taught: Mapping[str, Any] | None) -> tuple[bool, str]:
    if taught is None:
        return False, "Taught recall could not be compared: it was not measured."
    rose = taught["low"] > 0
    return rose, (
        f"Taught recall went from {taught['before']:.3f} to {taught['after']:.3f}: {'it rose' if rose else 'it did not measurably rise'} "
        f"(interval of the gain {taught['low']:+.3f} to {taught['high']:+.3f}), which phase.gate.require_taught asks for."
    )


def _kept_condition(name: str, score: Mapping[str, Any] | None, bound: float) -> tuple[bool, str]:
    """Return whether a share of the answers (recall, adherence) fell by no more than `bound`, and the sentence."""
    if score is None:
        return True, f"{name} was not measured (no held-out row with facts was answered), so it decides nothing."
    drop = round(-score["mean"], 9)  # 0.55 - 0.50 is a little more than 0.05 in floating point
    kept = drop <= bound
    moved = "did not measurably move" if score["verdict"] == SAME else f"got {score['verdict']}"
    fell = (
        f"a drop of {drop:.1%} is {'within' if kept else 'more than'} the allowed {bound:.1%}"
        if drop > 0
        else "no drop"
    )
    return kept, (
        f"{name} {moved}: {score['before']:.1%} before, {score['after']:.1%} after, over {score['pairs']} "
        f"answered questions (interval of the change {score['low']:+.1%} to {score['high']:+.1%}); {fell}."
    )
