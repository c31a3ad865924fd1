"""Tiny training jobs in this process: a data set of twelve questions, a phase, and a recipe run in milliseconds."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainlab import recipes
from trainlab.config import Values
from trainlab.config.schema import allowed_keys
from trainlab.engine import trainer
from trainlab.progress import Progress
from trainlab.recipes.base import Run


def write_data(folder: Path) -> Path:
    """Write a data set of two topics, six questions each with one further phrasing, and four held-out questions."""
    for topic in ("fire", "water"):
        rows = [
            {"id": f"{topic}-{i}", "question": f"{topic} {i}?", "phrasings": [f"{topic} no {i}"], "answer": f"boil {i}"}
            for i in range(6)
        ]
        heldout = [
            {"id": f"{topic}-h{i}", "question": f"is {topic} {i} safe?", "answer": f"yes {i}", "facts": [["yes"]]}
            for i in range(2)
        ]
        for side, content in (("train", rows), ("heldout", heldout)):
            (folder / side).mkdir(parents=True, exist_ok=True)
            text = "".join(json.dumps(row) + "\n" for row in content)
            (folder / side / f"{topic}.jsonl").write_text(text, encoding="utf-8")
    return folder


def write_taught(folder: Path) -> Path:
    """Add three facts to a data set, two of one topic: three wordings to train on, one for dev, two for test."""
    facts = {
        "fire": [
            ("fire-t1", "How do I put out a candle?", "Snuff it."),
            ("fire-t2", "Which wood burns slowly?", "Oak."),
        ],
        "water": [("water-t1", "Is rain safe to drink?", "Mostly.")],
    }
    (folder / "taught").mkdir()
    for topic, some in facts.items():
        rows = [
            {
                "id": ident,
                "question": question,
                "phrasings": [f"{question} Please.", f"{question} Quick!"],
                "dev": [f"dev: {question}"],
                "test": [f"first test: {question}", f"second test: {question}"],
                "answer": answer,
                "facts": [[answer.lower().rstrip(".")]],
                "safety": topic == "fire",
            }
            for ident, question, answer in some
        ]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / "taught" / f"{topic}.jsonl").write_text(text, encoding="utf-8")
    return folder


def write_refused(folder: Path) -> Path:
    """Add questions to refuse to a data set with write_taught: for each split a near miss of each fact, two others and an emergency."""
    (folder / "refused").mkdir()
    for topic, facts in {"fire": ("fire-t1", "fire-t2"), "water": ("water-t1",), "other": ()}.items():
        rows = [
            *({"id": f"{topic}-near-{fact}", "question": f"near {fact}?", "near": fact} for fact in facts),
            *({"id": f"{topic}-far-{i}", "question": f"far {topic} {i}?"} for i in range(2)),
            {"id": f"{topic}-urgent", "question": f"urgent {topic}?", "emergency": True},
        ]
        text = "".join(
            json.dumps({**row, "id": f"{row['id']}-{split}", "question": f"{split}: {row['question']}", "split": split})
            + "\n"
            for split in ("train", "dev", "test")
            for row in rows
        )
        (folder / "refused" / f"{topic}.jsonl").write_text(text, encoding="utf-8")
    answers = {topic: f"Not taught: ask about {topic}." for topic in ("fire", "water", "other", "emergency")}
    (folder / "refusals.json").write_text(json.dumps({"begins": "Not taught", "answers": answers}), encoding="utf-8")
    return folder


def phase_from(content: dict[str, Any]) -> Any:
    """Return the phase of a mapping that may have keys which its recipe does not read: these are left out."""
    keys = allowed_keys()["phase"][content.get("recipe", "sft")]
    return Values.model_validate({"phase": _known({"recipe": "sft", **content}, keys)}).phase


def _known(content: dict[str, Any], keys: dict[str, Any]) -> dict[str, Any]:
    result = {}
    for key, value in content.items():
        if key in keys:
            result[key] = _known(value, keys[key]) if isinstance(value, dict) and keys[key] is not True else value
    return result


def make_phase(base: dict[str, Any], **blocks: Any) -> Any:
    """Return the phase of `base` with blocks merged in, e.g. train={"epochs": 1}."""
    merged = copy.deepcopy(base)
    for name, value in blocks.items():
        merged[name] = {**merged.get(name, {}), **value} if isinstance(value, dict) else value
    return phase_from(merged)


def write_text(path: Path, documents: int = 60) -> Path:
    """Write running text as JSON Lines: `documents` texts of some 200 characters each, alike but never equal."""
    lines = [
        json.dumps(
            {"id": i, "body": " ".join(f"the water {i} is safe when it boils for {i + k} minutes" for k in range(5))}
        )
        for i in range(documents)
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def make_job(phase: Any, model_dir: Path, data: Path, run_dir: Path) -> Any:
    """Return what a recipe of a language model trains with: the loaded base model, and rows or blocks of `data`."""
    from trainlab.engine.trainer import TrainingJob
    from trainlab.models import chat
    from trainlab.recipes import cpt

    model, tokenizer = chat.load_base(model_dir, phase)
    if phase.recipe in ("cpt", "pretrain"):
        rows: Any = cpt.read_blocks(Run(phase, run_dir, model_dir, data), tokenizer)
    else:
        recipe: Any = recipes.get_recipe(phase)
        rows = recipe.read_rows(phase, data)[0]
    return TrainingJob(phase, run_dir, model, tokenizer, rows, Progress(False))


def sft_jobs(base: dict[str, Any], model: Path, root: Path, **usual: dict[str, Any]) -> Callable[..., Any]:
    """Return a function that makes a job in root/<name> with changed blocks of the phase, whose other keys are the `usual` ones."""
    folder = write_data(root / "data")

    def make(name: str = "run", **blocks: Any) -> Any:
        blocks |= {block: {**keys, **blocks.get(block, {})} for block, keys in usual.items()}
        return make_job(make_phase(base, **blocks), model, folder, root / name)

    return make


def counted_caches(monkeypatch: Any) -> list[Any]:
    """Return a list that gets each cache of frozen layers' outputs which a training makes."""
    made: list[Any] = []
    fill = trainer.cache_activations
    monkeypatch.setattr(trainer, "cache_activations", lambda *given: made.append(fill(*given)) or made[-1])
    return made


def train(job: Any) -> dict[str, Any]:
    """Train as the recipe of the job's phase does; return the summary."""
    recipe: Any = recipes.get_recipe(job.phase)
    return dict(recipe.fit(job))


def write_probes(folder: Path) -> Path:
    """Add to a data set with write_taught what evaluate.probes and data.style read: all of it, but steps for fire-t1 alone."""
    (folder / "retention.jsonl").write_text(
        json.dumps({"id": "keep-1", "question": "Capital of France?", "facts": [["paris"]]}) + "\n", encoding="utf-8"
    )
    composed = [
        {"id": "c-1", "uses": ["fire-t1", "water-t1"], "question": "Both?", "facts": [["snuff"], ["mostly"]]},
        {"id": "c-2", "uses": ["fire-t2", "water-t1"], "question": "Both others?", "facts": [["oak"], ["mostly"]]},
    ]
    (folder / "composed.jsonl").write_text("".join(json.dumps(row) + "\n" for row in composed), encoding="utf-8")
    for path in (folder / "taught").glob("*.jsonl"):
        rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        for row in rows:
            row["reversed"] = {
                "question": f"What is answered so: {row['answer']}",
                "facts": [["candle", "wood", "rain"]],
            }
            if row["id"] == "fire-t1":
                row["steps"] = {
                    "steps": ["Take the snuffer.", "Snuff it."],
                    "warning": "It is hot.",
                    "alternative": "Blow.",
                }
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return folder
