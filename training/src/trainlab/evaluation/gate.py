"""The gate: the conditions under which a tuned model may be served, and gate.json; every recipe's gate is made of this.

A recipe lists its conditions, a stage's bounds among them; `decision` says whether all of them hold. Nothing else promotes
but a named person's override, which run/results.py records.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from operator import ge, gt, le
from pathlib import Path
from typing import Any

from trainlab import files
from trainlab.config import Phase
from trainlab.errors import UserError
from trainlab.evaluation.paired_comparison import SAME, compare, min_clusters

Scores = Mapping[str, Any]
ABOVE, AT_LEAST, AT_MOST = ">", ">=", "<="
_HOLDS = {ABOVE: gt, AT_LEAST: ge, AT_MOST: le}
WORDS = {ABOVE: "more than", AT_LEAST: "at least", AT_MOST: "at most"}


@dataclass(frozen=True)
class Condition:
    """One condition: `value` `operator` `bound`, in the unit of the score; it fails where the value is None, not measured."""

    name: str
    value: float | None
    operator: str
    bound: float
    reason: str = ""
    """A sentence with the numbers, whichever way it went."""

    @property
    def passed(self) -> bool:
        """Whether it holds."""
        return self.value is not None and bool(_HOLDS[self.operator](self.value, self.bound))

    def because(self, reason: str) -> "Condition":
        """Return it with its sentence."""
        return replace(self, reason=reason)


@dataclass(frozen=True)
class Unit:
    """What is counted: rows, the clusters that they belong to, and how to get more of these."""

    rows: str
    clusters: str
    remedy: str

    def count(self, score: Scores) -> str:
        """Return how many were compared: rows, and clusters where these are fewer."""
        rows = f"{score['pairs']} {self.rows}"
        return rows if score["clusters"] == score["pairs"] else f"{rows} of {score['clusters']} {self.clusters}"

    def too_few(self, score: Scores, phase: Phase) -> str:
        """Return the part of a sentence that says why there is no interval, and what to change."""
        level = phase.evaluate.confidence
        name = self.rows if score["clusters"] == score["pairs"] else self.clusters
        return (
            f"{score['clusters']} {name} are too few for a {level:.0%} interval, which takes {min_clusters(level)}; "
            f"{self.remedy}"
        )


def decision(
    phase: Phase,
    gain: Scores | None,
    conditions: Sequence[Condition],
    scores: Scores,
    notes: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the content of gate.json: promoted if every condition holds.

    gain: the comparison of `gate.metric`, None where there is none; scores: what else is reported, by name; notes:
    sentences on what decides nothing.
    """
    return {
        "promoted": all(condition.passed for condition in conditions),
        "verdict": gain["verdict"] if gain else SAME,
        "metric": phase.gate.metric,
        "gain": gain,
        **scores,
        "conditions": [{**asdict(condition), "passed": condition.passed} for condition in conditions],
        "reasons": [*(condition.reason for condition in conditions), *notes],
        "thresholds": {
            **{condition.name: condition.bound for condition in conditions},
            "confidence": phase.evaluate.confidence,
            "bootstrap_samples": phase.evaluate.bootstrap_samples,
        },
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def min_gain(gain: Scores | None, phase: Phase, unit: Unit, change: str, spec: str = "+.3f") -> Condition:
    """Return the condition that the lower end of the gain's interval is above `gate.min_gain`.

    change: the sentence up to the gain; spec: how the gain's numbers are written.
    """
    needed = phase.gate.min_gain
    if gain is None:
        metric = phase.gate.metric.replace("_", " ")
        reason = f"The {metric} could not be compared: it was not measured, or a value is not a finite number."
        return Condition("min_gain", None, ABOVE, needed, reason)
    condition = Condition("min_gain", gain["low"], ABOVE, needed)
    if gain["low"] is None:
        return condition.because(f"{change}. {unit.too_few(gain, phase)}.")
    bound = f"{needed:{spec.removeprefix('+')}}" if spec.endswith("%") else f"{needed:g}"
    return condition.because(
        f"{change} with the {phase.evaluate.confidence:.0%} interval {reach(gain, spec)}; its lower end is "
        f"{'above' if condition.passed else 'not above'} the required {bound}."
    )


def bounded(name: str, value: float | None, operator: str, bound: float, what: str) -> Condition:
    """Return the condition of a stage on a number that `what` names: its key is phase.stage.<name>."""
    condition = Condition(name, value, operator, bound)
    measured = "was not measured" if value is None else f"is {value:.4g}"
    link = "as" if condition.passed else "but"
    return condition.because(f"{what} {measured}, {link} phase.stage.{name} asks for {WORDS[operator]} {bound:g}.")


def reach(score: Scores, spec: str = "+.3f", name: str = "") -> str:
    """Return the interval of a score as text, with its name before it."""
    return "no interval" if score["low"] is None else f"{name}{score['low']:{spec}} to {score['high']:{spec}}"


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


def kind_of(item: Scores) -> str:
    """Return the kind of a row (data/chat_rows.py); one that names none asks what was never taught."""
    return str(item.get("kind", "never_taught"))


def _by_id(items: Sequence[Scores], name: str) -> dict[str, Scores]:
    by_id = {str(item["id"]): item for item in items}
    if len(by_id) != len(items):
        raise UserError(f"eval_{name}.json: two rows have the same id; give every held-out row a unique id")
    return by_id


LOWER_IS_BETTER = ("loss", "taught_refused", "harm")


def compared(pairs: Sequence[tuple[Scores, Scores]], key: str, phase: Phase) -> dict[str, Any] | None:
    """Compare one score of all rows that have it on both sides; None if none has, or a value is not finite."""
    both = [(a, b) for a, b in pairs if a.get(key) is not None and b.get(key) is not None]
    if not both or not all(math.isfinite(item[key]) for pair in both for item in pair):
        return None
    return compare(
        [a[key] for a, __ in both],
        [b[key] for __, b in both],
        higher_is_better=key not in LOWER_IS_BETTER,
        clusters=[cluster(a) for a, __ in both],
        **settings(phase),
    )


def cluster(item: Scores) -> str:
    """Return the fact, document or question that an item shares with others; its id where it shares none."""
    return str(item.get("group", item["id"]))


def settings(phase: Phase) -> dict[str, Any]:
    """Return what every comparison and interval of a phase has in common."""
    return {
        "samples": phase.evaluate.bootstrap_samples,
        "confidence": phase.evaluate.confidence,
        "seed": phase.seed,
    }


def read_gate(run_dir: Path) -> dict[str, Any]:
    """Return the content of RUN_DIR/gate.json, with `promoted` and the list `reasons`; raises UserError where it lacks them."""
    path = run_dir / "gate.json"
    content = files.read_json(path)
    again = f"regenerate it with `trainlab gate {run_dir}`"
    if not isinstance(content, dict) or not isinstance(content.get("promoted"), bool):
        raise UserError(f"{path}: has no promoted: true or false; {again}")
    if not isinstance(content.get("reasons"), list):
        raise UserError(f"{path}: has no list of reasons; {again}")
    return content
