"""What base and tuned model scored on the tasks, side by side, for gate.json and the report; numbers only."""

from collections.abc import Mapping
from typing import Any

from trainlab.config import Phase
from trainlab.evaluation.gate import settings
from trainlab.evaluation.paired_comparison import compare

SAME = ("items", "of", "few_shot", "version")


def rows(before: Mapping[str, Any], after: Mapping[str, Any], phase: Phase) -> list[dict[str, Any]]:
    """Return one row per task and metric; [] if one side has no tasks.

    {task, metric, filter, items, of, few_shot, version, cut, higher_is_better, before, before_stderr, after, after_stderr,
    gain: paired_comparison.compare (positive is better), None where a score is not a mean over items}.
    """
    sides = [(part.get("tasks") or {}).get("results") or {} for part in (before, after)]
    found = []
    for task, old in sides[0].items():
        new = sides[1].get(task)
        if new is None:
            continue
        for key, first in old["metrics"].items():
            second = new["metrics"].get(key)
            if second is None:
                continue
            metric, _, kind = key.partition(",")
            found.append(
                {
                    "task": task,
                    "metric": metric,
                    "filter": kind,
                    **{name: old[name] for name in SAME},
                    "cut": max(old["cut"], new["cut"]),
                    "higher_is_better": first["higher_is_better"],
                    "before": first["value"],
                    "before_stderr": first["stderr"],
                    "after": second["value"],
                    "after_stderr": second["stderr"],
                    "gain": _gain(first, second, phase),
                }
            )
    return found


def _gain(first: Mapping[str, Any], second: Mapping[str, Any], phase: Phase) -> dict[str, Any] | None:
    old, new = first["values"], second["values"]
    if not old or not new or len(old) != len(new):
        return None
    return compare(old, new, higher_is_better=first["higher_is_better"], **settings(phase))
