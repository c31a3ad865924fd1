"""The gate of answers: may the tuned model be served? A pure function of two evaluations and the phase; writes no file.

Called on rank 0 after training and by `trainlab gate`; its result is gate.json, which promote, verify-run and the report read.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from trainlab.config import Phase, SftPhase
from trainlab.evaluation import facts, gate
from trainlab.evaluation.gate import Condition, Scores, Unit, compared
from trainlab.evaluation.paired_comparison import BETTER, SAME, TOO_FEW, interval

UNITS = {
    "answer_loss": "nats per token",
    "fact_recall": "of the facts",
    "taught_recall": "of the facts",
    "form_adherence": "of the form",
}
QUESTIONS = Unit("held-out questions", "facts", "raise phase.data.heldout_rows, or add held-out rows")
TAUGHT = Unit("held-out questions", "facts", "raise phase.data.train_rows, or add taught facts")
GAIN = "interval of the gain "
COMPARED: Mapping[str, tuple[str, str | None]] = {
    "taught_recall": ("recall", "taught"),
    "fact_recall": ("recall", "never_taught"),
    "refused": ("refused", None),
    "taught_refused": ("taught_refused", None),
    "harm": ("harm", None),
    **{probe: ("recall", probe) for probe in ("retention", "ceiling", "reversed", "composed")},
    "structure": ("structure", None),
    "label_accuracy": ("labelled", "never_taught"),
    "form_adherence": ("adherence", None),
    **{f"form_{part}": (part, None) for part in ("lines", "rhyme", "syllables")},
    "ended_by_itself": ("ended", None),
    "answer_loss": ("loss", None),
}
"""Scores of gate.json -> the key of an item that is compared, and the kind of row that counts (None: any)."""
SCORES = dict.fromkeys(("taught_recall", "lookup_recall", *COMPARED), "questions")
"""All of them as a recipe's SCORES."""
HIGHER = "higher"
"""The verdict on a recall of facts that were not taught: more of their words were said, which is not yet recall."""
REPEATS = "A word that only repeats another answer counts as well, so this is no proof of recall."


def decide(before: Scores, after: Scores, phase: SftPhase) -> dict[str, Any]:
    """Return the content of gate.json for two results of `answer_score.score` over the same rows.

    Promoted only if the lower end of the gain's interval is above `gate.min_gain`, neither fact recall nor form adherence,
    where measured, dropped by more than `gate.max_..._drop`, and, where facts are taught, their recall rose and the answer loss
    did not get worse. Where refusals are taught, emergencies answered with another question's answer must not become more, and
    `gate.min_refused` and `gate.max_taught_refused` hold. Fact recall is that of questions whose facts were not taught, taught recall
    that of the others. `reasons` holds one sentence with numbers per condition, whichever way it went.
    Raises UserError if the two evaluations do not cover the same rows.
    """
    pairs = gate.paired(before, after)
    scores = {name: compared(_of(pairs, kind), key, phase) for name, (key, kind) in COMPARED.items()}
    loss, recall, taught, form = (
        scores[name] for name in ("answer_loss", "fact_recall", "taught_recall", "form_adherence")
    )
    rule, notes = phase.gate, []
    gain = scores[rule.metric]
    conditions = [_min_gain(gain, phase)]
    if rule.metric == "taught_recall":
        conditions.append(_loss_not_worse(loss, phase))
    elif phase.data.taught and rule.require_taught:
        conditions.append(_taught_rose(taught, phase))
    if phase.data.refuses:
        conditions += _refusals(scores, phase)
    to_answer = [pair for pair in _of(pairs, "never_taught") if not pair[0].get("refuse")]
    if not (answerable := compared(to_answer, "recall", phase)) and recall:
        notes.append("Fact recall decides nothing, as all questions that were never taught are to be refused.")
    elif answerable:
        conditions.append(_max_drop("Fact recall", shown_recall(answerable), rule.max_fact_recall_drop))
    elif not (form or taught):
        notes.append("Fact recall was not measured (no held-out row with facts was answered), so it decides nothing.")
    if form:
        conditions.append(_max_drop("Form adherence", form, rule.max_form_adherence_drop))
    reported = {"fact_recall": shown_recall(recall), "lookup_recall": _lookup(pairs, phase)}
    return gate.decision(phase, gain, conditions, scores | reported, notes)


def _of(pairs: Sequence[tuple[Scores, Scores]], kind: str | None) -> list[tuple[Scores, Scores]]:
    return [pair for pair in pairs if kind in (None, gate.kind_of(pair[0]))]


def shown_recall(recall: Scores | None) -> Any:
    """Return the recall of facts that were not taught as it is reported: "higher" instead of "better"."""
    return recall and {**recall, "verdict": HIGHER if recall["verdict"] == BETTER else recall["verdict"]}


def _lookup(pairs: Sequence[tuple[Scores, Scores]], phase: Phase) -> dict[str, Any] | None:
    """Return the recall of a search for the nearest training question: {mean, low, high, pairs}; it decides nothing."""
    searched = [(item, facts.recall(item["nearest"], item["facts"])) for item, __ in pairs if "nearest" in item]
    measured = [(item, value) for item, value in searched if value is not None]
    if not measured:
        return None
    values = [value for __, value in measured]
    low, high = interval(values, clusters=[gate.cluster(item) for item, __ in measured], **gate.settings(phase))
    return {"mean": sum(values) / len(values), "low": low, "high": high, "pairs": len(values)}


def _min_gain(gain: Scores | None, phase: SftPhase) -> Condition:
    metric = phase.gate.metric
    unit = TAUGHT if metric == "taught_recall" else QUESTIONS
    change = ""
    if gain:
        change = (
            f"{metric.replace('_', ' ').capitalize()} went from {gain['before']:.3f} to {gain['after']:.3f} {UNITS[metric]} over "
            f"{unit.count(gain)}: a gain of {gain['mean']:+.3f}"
        )
    return gate.min_gain(gain, phase, unit, change)


def _loss_not_worse(loss: Scores | None, phase: SftPhase) -> Condition:
    """Return the condition that the interval of the rise in answer loss does not lie above 0."""
    name = "max_sure_answer_loss_rise"
    if loss is None:
        reason = "The answer loss could not be compared: it was not measured, or a value is not a finite number."
        return Condition(name, None, gate.AT_MOST, 0.0, reason)
    change = f"Answer loss went from {loss['before']:.3f} to {loss['after']:.3f}"
    if loss["high"] is None:
        return Condition(name, None, gate.AT_MOST, 0.0, f"{change}. {QUESTIONS.too_few(loss, phase)}.")
    condition = Condition(name, round(-loss["high"], 9), gate.AT_MOST, 0.0)
    verdict = "not worse" if condition.passed else "worse"
    return condition.because(f"{change}: {verdict} ({gate.reach(loss, name=GAIN)}).")


def _taught_rose(taught: Scores | None, phase: SftPhase) -> Condition:
    name = "min_taught_recall_gain"
    if taught is None:
        return Condition(name, None, gate.ABOVE, 0.0, "Taught recall could not be compared: it was not measured.")
    condition = Condition(name, taught["low"], gate.ABOVE, 0.0)
    change = f"Taught recall went from {taught['before']:.3f} to {taught['after']:.3f}"
    asked = "phase.gate.require_taught asks for a rise"
    if taught["low"] is None:
        return condition.because(f"{change}, and {asked}. {TAUGHT.too_few(taught, phase)}.")
    rose = "it rose" if condition.passed else "it did not measurably rise"
    return condition.because(f"{change}: {rose} ({gate.reach(taught, name=GAIN)}), and {asked}.")


def _refusals(scores: Mapping[str, Scores | None], phase: SftPhase) -> list[Condition]:
    """Return the conditions on refusals: no more harm, and the shares that the phase asks for."""
    rule = phase.gate
    conditions = [_harm_not_above(scores["harm"])]
    for name, key, what, operator, bound in (
        ("min_refused", "refused", "questions that were never taught", gate.AT_LEAST, rule.min_refused),
        ("max_taught_refused", "taught_refused", "questions about taught facts", gate.AT_MOST, rule.max_taught_refused),
    ):
        if bound is None:
            continue
        score = scores[key]
        condition = Condition(name, score["after"] if score else None, operator, bound)
        reason = f"Refused {what} could not be counted: none was answered."
        if score:
            link = "as" if condition.passed else "but"
            wish = f"{link} phase.gate.{name} asks for {gate.WORDS[operator]} {bound:.1%}"
            reason = f"Refused: {score['after']:.1%} of {score['pairs']} {what}, {wish}."
        conditions.append(condition.because(reason))
    return conditions


def _harm_not_above(harm: Scores | None) -> Condition:
    """Return the condition that harm did not rise: its interval does not lie above 0, or, without one, the count is not higher."""
    name = "max_sure_harm_rise"
    if harm is None:
        reason = "Harm was not counted: no emergency that was not taught was asked."
        return Condition(name, 0.0, gate.AT_MOST, 0.0, reason)
    counts = [round(harm[side] * harm["pairs"]) for side in ("before", "after")]
    condition = Condition(name, round(-(harm["mean"] if harm["high"] is None else harm["high"]), 9), gate.AT_MOST, 0.0)
    verdict = "not more" if condition.passed else "more"
    reach = "too few for an interval, so the counts decide"
    if harm["high"] is not None:
        reach = gate.reach(harm, "+.1%", "interval of the fall ")
    return condition.because(
        f"Emergencies answered with another question's answer: {counts[0]} before, {counts[1]} after, of {harm['pairs']} that "
        f"were not taught: {verdict} ({reach})."
    )


def _max_drop(name: str, score: Mapping[str, Any], bound: float) -> Condition:
    """Return the condition that a share of the answers (recall, adherence) fell by no more than `bound`."""
    drop = round(-score["mean"], 9)  # 0.55 - 0.50 is a little more than 0.05 in floating point
    condition = Condition(f"max_{name.lower().replace(' ', '_')}_drop", drop, gate.AT_MOST, bound)
    limit = f"{'within' if condition.passed else 'more than'} the allowed {bound:.1%}"
    fell = f"a drop of {drop:.1%} is {limit}" if drop > 0 else "no drop"
    repeats = f" {REPEATS}" if score["verdict"] == HIGHER else ""
    return condition.because(
        f"{name} {moved(score)}: {score['before']:.1%} before, {score['after']:.1%} after, over {score['pairs']} "
        f"answered questions ({gate.reach(score, '+.1%', 'interval of the change ')}); {fell}.{repeats}"
    )


def moved(score: Scores) -> str:
    """Return the verdict on a score as what it did."""
    words = {SAME: "did not measurably move", TOO_FEW: "cannot be judged from so few", HIGHER: "is higher"}
    return words.get(score["verdict"], f"got {score['verdict']}")
