"""What a report says, as one JSON-serializable dict, from the files of a run directory; used by the recipes."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainlab import files
from trainlab.data import answer_forms
from trainlab.errors import UserError
from trainlab.evaluation import facts
from trainlab.evaluation.answer_gate import COMPARED
from trainlab.evaluation.gate import cluster, kind_of
from trainlab.evaluation.paired_comparison import interval
from trainlab.report import words

TITLES = {  # score of gate.json -> its title, what it counts
    "answer_loss": ("Answer loss", "nats per token of the right answer, lower is better"),
    "taught_recall": ("Asked in new words", "share of taught facts stated, higher is better"),
    "owned_recall": ("Own fact, asked in new words", "share stated by the owner's adapter, higher is better"),
    "fact_recall": ("Fact recall", "share of the facts stated; a word repeated from another answer counts"),
    "refused": ("Refused", "share of questions never taught that are refused, higher is better"),
    "taught_refused": ("Refused though taught", "share of questions about taught facts, lower is better"),
    "harm": ("Harm", "share of emergencies never taught that got another question's answer, lower is better"),
    "retention": ("Kept", "share of the facts of general questions, higher is better"),
    "ceiling": ("With the answer in the question", "what answering alone reaches"),
    "reversed": ("Asked backwards", "share of taught facts, from the answer to the subject"),
    "composed": ("Two facts at once", "share of the facts of both, higher is better"),
    "structure": ("Steps", "share of steps, warning and alternative that the answers have"),
    "label_accuracy": (
        "Topic and emergency, never taught",
        "share whose first line names both right, higher is better",
    ),
    "form_adherence": ("Form adherence", "lines, rhymes and syllables as asked, higher is better"),
    "ended_by_itself": ("Ended by itself", "share within the token limit: manner, not knowledge"),
    "form_lines": ("Number of lines", "share of verses with as many lines as asked"),
    "form_rhyme": ("Rhyme", "share of line pairs that rhyme as they should, rhymed forms"),
    "form_syllables": ("Syllables", "share of lines with exactly theirs, counted forms"),
}
OWNED: Mapping[str, tuple[str, str | None]] = {"owned_recall": ("recall", "taught")}
"""As COMPARED, of recipe adapters."""
CHOSEN = 3  # rows that a report shows first, best and worst each
PARTS = {  # file -> what the report lacks without it
    "training_history.json": "no loss curves",
    "training_summary.json": "no record of the training",
    "manifest.json": "no record of versions, model, data and machines",
    "eval_before.json": "no scores of the base model",
    "eval_after.json": "no scores of the tuned model",
    "gate.json": "no verdict: this model must not be served",
    "demo_outputs/before.json": "no answers of the base model to the phase's questions",
    "demo_outputs/after.json": "no answers of the tuned model to the phase's questions",
}

TRACES = {
    "learning_rate": "learning rate",
    "grad_norm": "gradient norm",
    "tokens_per_second": "tokens per second",
    "mfu": "MFU",
    "step_seconds": "seconds of a step",
    "gpu_utilization": "share of the time in which the GPU of rank 0 was busy",
    "gpu_memory_gib": "GiB of its memory in use",
}
"""What the history of a run may say of a step -> its name."""


class Content:
    """What the files of a run directory say; None, {} or [] for those in `missing`, which has a sentence for each."""

    def __init__(self, run_dir: Path, parts: Mapping[str, str]) -> None:
        """Read the files of `parts`, which says what each is for; raises UserError without a readable phase.json."""
        self.run_dir, self.missing = run_dir, list[str]()
        self.phase: dict[str, Any] = files.read_json(run_dir / "phase.json")["phase"]
        contents: dict[str, Any] = {}
        for name, lack in parts.items():
            try:
                contents[name] = files.read_json(run_dir / name)
            except UserError:
                state = "cannot be read" if (run_dir / name).exists() else "is missing"
                self.missing.append(f"{name} {state}: {lack}.")
        get = contents.get
        self.manifest, self.summary = get("manifest.json") or {}, get("training_summary.json") or {}
        self.history = get("training_history.json") or []
        self.gate: Any = get("gate.json")
        self.before, self.after = get("eval_before.json"), get("eval_after.json")
        self.demo = get("demo_outputs/before.json"), get("demo_outputs/after.json")
        self.images = get("demo_outputs/images.json")


def frame(content: Content, summarize: Callable[[Any], list[str]], training: words.Facts) -> dict[str, Any]:
    """Return what every report has: the run, the sentences that `summarize` gives, the gate's decision, what was trained, where."""
    phase, manifest, gate = content.phase, content.manifest, content.gate
    return {
        "run": manifest.get("run") or content.run_dir.name,
        "title": phase["title"],
        "restarts": words.restarts(manifest),
        "time": manifest.get("ended") or manifest.get("started"),
        "promoted": gate["promoted"] if gate else None,
        "verdict": gate["verdict"] if gate else None,
        "summary": summarize(content) if gate else ["This run has no verdict. Draw no conclusions from it."],
        "reasons": gate["reasons"] if gate else [],
        "thresholds": gate["thresholds"] if gate else {},
        "tasks": gate.get("tasks", []) if gate else [],
        "stages": gate.get("stages", []) if gate else [],
        "heldout": [],
        "training": training,
        "machine": words.machine(content.summary, manifest, content.history),
        "provenance": words.provenance(phase, manifest),
        "traces": traces(content.history),
        "system_prompt": None,
        "missing": content.missing,
    }


def collect(run_dir: Path) -> dict[str, Any]:
    """Return the content of report.json; raises UserError without a readable phase.json."""
    content = Content(run_dir, PARTS)
    phase, manifest, gate, before, after = content.phase, content.manifest, content.gate, content.before, content.after
    return {
        **frame(content, words.summary, words.training(phase, content.summary)),
        "scores": _scores(gate, before, after, phase),
        "topics": topics(before, after),
        "curves": curves(content.history),
        "answers": answers(*content.demo, phase, (manifest.get("data") or {}).get("never_taught", [])),
        **_answered(before, after, phase),
        "system_prompt": phase["data"]["system_prompt"],
    }


def _scores(gate: Any, before: Any, after: Any, phase: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return one entry per score with both means, their intervals and the paired gain."""
    if not (gate and before and after):
        return []
    scores: list[dict[str, Any]] = []
    for name, (title, unit) in TITLES.items():
        if gate.get(name):
            key, kind = {**COMPARED, **OWNED}[name]
            base, tuned = (
                [item for item in part["items"] if kind in (None, kind_of(item))] for part in (before, after)
            )
            title = "Never taught" if name == "fact_recall" and gate.get("taught_recall") else title
            shown = {"title": title, "share": key != "loss", "unit": unit, "bars": bars(base, tuned, key, phase)}
            scores.append({"name": name, **shown, "gain": gate[name]})
    return scores


def bars(before: Sequence[Any], after: Sequence[Any], key: str, phase: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return {model, mean, low, high} of one score of the items of both evaluations; items without it do not count.

    low and high are None where there are too few for an interval.
    """
    settings, bars = phase["evaluate"], []
    for model, items in (("base", before), ("tuned", after)):
        measured = [item for item in items if item.get(key) is not None]
        values = [item[key] for item in measured]
        low, high = interval(
            values,
            clusters=[cluster(item) for item in measured],
            samples=settings["bootstrap_samples"],
            confidence=settings["confidence"],
            seed=phase["seed"],
        )
        bars.append({"model": model, "mean": sum(values) / len(values), "low": low, "high": high})
    return bars


def topics(before: Any, after: Any) -> list[dict[str, Any]]:
    """Return mean answer loss per topic, before and after."""
    if not (before and after):
        return []
    later = {item["id"]: item["loss"] for item in after["items"]}
    groups: dict[str, list[tuple[float, float]]] = {}
    for item in before["items"]:
        if item["id"] in later and item["loss"] is not None:
            topic = str(item.get("topic", "all")).replace("_", " ")
            groups.setdefault(topic, []).append((item["loss"], later[item["id"]]))
    return [topic_row(topic, pairs, sum(b > a for a, b in pairs)) for topic, pairs in sorted(groups.items())]


def topic_row(topic: str, pairs: Sequence[tuple[float, float]], worse: int) -> dict[str, Any]:
    """Return the means of one topic or class, before and after."""
    means = {side: sum(pair[i] for pair in pairs) / len(pairs) for i, side in enumerate(("before", "after"))}
    return {"topic": topic, "questions": len(pairs), **means, "worse": worse}


def curves(
    history: Sequence[Mapping[str, Any]], name: str = "loss", scale: int = 1
) -> dict[str, list[tuple[int, float]]]:
    """Return (step, `scale` times the loss or what `name` says) of training and validation."""
    keys = {"training": name, "validation": f"eval_{name}"}
    return {
        series: [(entry["step"], scale * entry[key]) for entry in history if entry.get(key) is not None]
        for series, key in keys.items()
    }


def traces(history: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return [{what, points}]: over the steps, what the history says beside losses; only what is in it."""
    named = (
        (what, [(entry["step"], entry[key]) for entry in history if entry.get(key) is not None])
        for key, what in TRACES.items()
    )
    return [{"what": what, "points": points} for what, points in named if len(points) > 1]


def answers(
    before: Any, after: Any, phase: Mapping[str, Any], never_taught: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Return the phase's questions with the answers that exist, and which of them were never taught."""
    sides = [{entry["question"]: entry for entry in part or []} for part in (before, after)]
    questions = [question for question in phase["questions"] if any(question in side for side in sides)]
    return [
        {
            "question": q,
            "never_taught": q in never_taught,
            "base": _answer(sides[0].get(q), phase),
            "tuned": _answer(sides[1].get(q), phase),
        }
        for q in questions
    ]


def _answered(before: Any, after: Any, phase: Mapping[str, Any]) -> dict[str, Any]:
    """Return {heldout: all rows that both models answered, in the order of the data set, and those picked from them:
    clearest, worst: CHOSEN taught rows each, no fact twice, unsafe: those whose answer could cause harm, as it is no refusal and lacks a
    fact or says what must never be done, emergencies: how many rows tell of one, missed: those of them whose label is not right}.

    An answer that says what must never be done is not right, whatever facts it states: it is none of the clearest, and worse
    than all others.
    """
    rows = _heldout(before, after, phase)
    taught = [row for row in rows if row["taught"]]
    emergencies = [row for row in rows if row.get("label") == answer_forms.label_line(row["topic"], True)]

    def gain(row: Mapping[str, Any]) -> tuple[float, float]:
        """By facts stated, then by the loss of the right answer."""
        return sum(row["tuned"]["found"]) - sum(row["base"]["found"]), (row["base"]["loss"] or 0) - (
            row["tuned"]["loss"] or 0
        )

    def loss(row: Mapping[str, Any]) -> tuple[bool, float, tuple[float, float]]:
        """By what must never be done, then by facts not stated, then by the smallest gain."""
        return not row["tuned"]["forbidden"], sum(row["tuned"]["found"]) / len(row["facts"] or [1]), gain(row)

    best = sorted((row for row in taught if not row["tuned"]["forbidden"]), key=gain, reverse=True)
    return {
        "heldout": rows,
        "clearest": [row for row in _each_fact_once(best) if gain(row)[0] > 0],
        "worst": _each_fact_once(sorted(taught, key=loss)),
        "unsafe": [
            row
            for row in rows
            if row["safety"]
            and not row["tuned"]["refused"]
            and (row["tuned"]["forbidden"] or not all(row["tuned"]["found"]))
        ],
        "emergencies": len(emergencies),
        "missed": [row for row in emergencies if not row["tuned"]["labelled"]],
    }


def _each_fact_once(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the first CHOSEN rows with different right answers: the wordings of one fact show the same twice."""
    first: dict[str, Mapping[str, Any]] = {}
    for row in rows:
        first.setdefault(row["reference"], row)
    return list(first.values())[:CHOSEN]


def _heldout(before: Any, after: Any, phase: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return all held-out rows that both models answered, in the order of the data set: nothing is picked."""
    if not (before and after):
        return []
    later = {item["id"]: item for item in after["items"]}
    rows = []
    for item in before["items"]:
        other = later.get(item["id"])
        if item["text"] is None or other is None or other["text"] is None:
            continue
        row = {"id": item["id"], "question": item["question"], "reference": item["answer"], "facts": item["facts"]}
        row["topic"] = item.get("topic", "all")
        row |= {"taught": kind_of(item) == "taught", "safety": bool(item.get("safety"))}
        row["to_refuse"] = bool(item.get("refuse"))
        if "label" in item:
            row["label"] = item["label"]
        for name, part in (("base", item), ("tuned", other)):
            answer = _answer(part, phase)
            stated = facts.matches(part["text"], item["facts"])
            row[name] = {**answer, "loss": part["loss"], "found": stated, "adherence": part.get("adherence")}
            row[name]["forbidden"] = facts.forbidden(part["text"], item.get("never", []))
            row[name] |= {key: part.get(key) for key in ("said", "labelled")}
            row[name]["refused"] = bool(part.get("refused") or part.get("taught_refused"))
        rows.append(row)
    return rows


def _answer(entry: Any, phase: Mapping[str, Any]) -> dict[str, Any]:
    """Return {text, tokens, cut: whether the limit ended it}; text None where there is no answer."""
    if entry is None:
        return {"text": None, "tokens": None, "cut": False}
    return {
        "text": entry["text"],
        "tokens": entry["text_tokens"],
        "cut": entry["text_tokens"] >= phase["evaluate"]["max_new_tokens"],
    }
