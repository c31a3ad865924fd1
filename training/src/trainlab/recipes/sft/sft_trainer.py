"""Supervised fine-tuning of the last layers and the head, or of LoRA adapters: TRL's SFTTrainer under torchrun; called by sft_recipe.py.

Only the answer and the end of its turn count in the loss. The best checkpoint by validation loss becomes best_model/, or, with
`lora.rank`, lora_adapter/.
"""

from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import set_seed
from trl import SFTConfig

from trainlab.config import SftPhase
from trainlab.data.chat_rows import TrainRow, split_by_question
from trainlab.engine import acceleration, training
from trainlab.engine.trainer import (
    CheckpointedSftTrainer,
    Schedule,
    StepReporter,
    configure_callbacks,
    settings,
)
from trainlab.engine.training_job import TrainingJob
from trainlab.models import chat
from trainlab.models.layers import add_lora, everything, unfreeze


def train(job: TrainingJob[SftPhase, list[TrainRow]]) -> dict[str, Any]:
    """Train, leave best_model/ (or lora_adapter/) and training_history.json; return the summary (seconds, rates, losses, parameters)."""
    phase, folder = job.phase, job.run_dir / "checkpoints"
    set_seed(phase.seed)
    if phase.lora.rank:
        job.model, counts = add_lora(job.model, phase)
    elif phase.stage:
        counts = everything(job.model)
    else:
        counts = unfreeze(job.model, phase)
    rows, validation = split_by_question(job.rows, phase.train.validation_fraction, phase.seed)
    acceleration.prepare(job.model, phase, job.run_dir, job.progress.say)
    trainer = build(job, rows, validation, folder)
    return training.summarize(phase, trainer, training.fit(job, trainer), counts, len(rows), len(validation))


def build(
    job: TrainingJob[SftPhase, list[TrainRow]], rows: list[TrainRow], validation: list[TrainRow], folder: Path
) -> CheckpointedSftTrainer:
    """Return the trainer: rows as tokens, answers masked in, checkpoints in `folder`."""
    phase = job.phase
    trainer = CheckpointedSftTrainer(
        model=job.model,
        args=config(phase, folder, bool(validation)),
        train_dataset=tokens(job, rows),
        eval_dataset=tokens(job, validation) if validation else None,
        processing_class=job.tokenizer,
        callbacks=[Schedule(phase.train.checkpoints, bool(validation)), StepReporter(job.progress)],
    )
    configure_callbacks(trainer, phase, job.run_dir)
    return trainer


def config(phase: SftPhase, folder: Path, validate: bool) -> SFTConfig:
    """Return TRL's settings for a phase."""
    # Activations of frozen layers are not kept, so there is nothing to recompute; a tied head needs all of them.
    tied = phase.unfreeze.tie_word_embeddings and not phase.lora.rank and not phase.stage
    return SFTConfig(
        **settings(phase, folder, validate, gradient_checkpointing=tied),
        # chat.encode refuses longer rows by name, so TRL cuts none (which would lose the end of the turn); packs have this length.
        max_length=phase.model.max_length if phase.train.packing else None,
        completion_only_loss=True,
        # The rows of a step stay the same; those of a rank are of about one length, so that little is padding. Compiled
        # layers want batches of one size.
        train_sampling_strategy="random" if phase.train.packing or phase.stage else "batch_rebalance",
        # Best fit, whole rows only; no padding mask, so positions that restart keep the rows of a pack apart (transformers'
        # masking_utils, with every attention implementation).
        packing=phase.train.packing,
        eval_packing=False,
    )


def tokens(job: TrainingJob[SftPhase, list[TrainRow]], rows: list[TrainRow]) -> Dataset:
    """Return the rows as {input_ids, completion_mask}; raises UserError with the id of a row that is too long."""
    return Dataset.from_list([chat.encode(job.tokenizer, job.phase, row) for row in rows])
