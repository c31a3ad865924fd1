"""The scores of a run as lines of text, for the terminal: report.json has them as `rows`, the playbooks print them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trainlab.engine import gpu_use as of_gpus
from trainlab.evaluation.gate import reach

Row = dict[str, str]  # what, base, tuned, gain, verdict: ready to print, empty where there is nothing to say


def rows(gate: Mapping[str, Any] | None, units: Mapping[str, str]) -> list[Row]:
    """Return a row for each score of gate.json, in the order of `units` (a recipe's SCORES), then one for each task's score.

    Scores that were not measured have none. Without a gate there are no rows.
    """
    if gate is None:
        return []
    measured = ((name, gate.get(name), unit) for name, unit in units.items())
    own = [_row(name, value, unit) for name, value, unit in measured if value is not None]
    return own + list(_tasks(gate.get("tasks", [])))


def gpu_use(history: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Return a row on the GPUs of a history, none without any."""
    use = of_gpus.summary(history)
    return [_text("GPU use", "", "", *use)] if use else []


def _row(name: str, value: Any, unit: str) -> Row:
    """Return the row of one score; its shape in gate.json says what it is."""
    what = name.replace("_", " ")
    if isinstance(value, float | int):  # a share of the tuned model alone: the base model is what it is compared with
        return _text(what, tuned=f"{value:.3f}", verdict=f"share of {unit}")
    if "factor" in value:  # perplexity: a gain in nats is a factor
        gain = f"/ {value['factor']:.3f} ({reach(value, '.3f')})"
        return _text(what, f"{value['before']:.3f}", f"{value['after']:.3f}", gain, f"over {unit}")
    if "before" in value:
        return _compared(what, value, value, f"{value['pairs']} {unit}")
    shown, interval = f"{value['mean']:.3f}", reach(value, ".3f")
    count = value.get("pairs") or value[unit]
    if name == "lookup_recall":
        return _text(what, gain=f"{shown} ({interval})", verdict=f"search without a model, {count} {unit}")
    return _text(what, tuned=shown, gain=f"({interval})", verdict=f"{count} {unit}")


def _tasks(tasks: Any) -> Iterator[Row]:
    for task in tasks:
        what = f"{task['task']} {task['metric']}" + (f", {task['filter']}" if task["filter"] != "none" else "")
        count = f"{task['items']} items" if task["items"] else "over all items"
        if task["gain"]:
            yield _compared(what, task, task["gain"], count)
        else:  # a score that is no mean over items has no pairs
            yield _text(what, f"{task['before']:.3f}", f"{task['after']:.3f}", "", count)


def _compared(what: str, sides: Mapping[str, Any], gain: Mapping[str, Any], count: str) -> Row:
    moved = f"{gain['mean']:+.3f} ({reach(gain)})"
    return _text(what, f"{sides['before']:.3f}", f"{sides['after']:.3f}", moved, f"{gain['verdict']}, {count}")


def _text(what: str, base: str = "", tuned: str = "", gain: str = "", verdict: str = "") -> Row:
    return {"what": what, "base": base, "tuned": tuned, "gain": gain, "verdict": verdict}
