"""Continued pre-training on running text: Hugging Face's Trainer and Accelerate under torchrun; called by cpt_recipe.py.

Every token of a block but its first counts in the loss. The best checkpoint by validation loss becomes best_model/.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset
from transformers import TrainingArguments, default_data_collator, set_seed
from transformers.utils import is_flash_attn_2_available

from trainlab.config import CptPhase, TextPhase
from trainlab.data.pack import Blocks
from trainlab.engine import acceleration, dist, training
from trainlab.engine.trainer import (
    CheckpointedTrainer,
    Schedule,
    StepReporter,
    TrainingResult,
    configure_callbacks,
    outcome,
    settings,
)
from trainlab.engine.training_job import TrainingJob
from trainlab.errors import UserError
from trainlab.models import compute
from trainlab.models.layers import everything, unfreeze
from trainlab.recipes.cpt.block_score import fuse

TextJob = TrainingJob[TextPhase, Blocks]


class BlockSet(Dataset[dict[str, torch.Tensor]]):
    """Blocks as the Trainer expects them: int64, (length,); labels are the same tokens, the model shifts them."""

    def __init__(self, blocks: Sequence[list[int]]) -> None:
        self._blocks = blocks  # prepared blocks are read from the volume one by one

    def __len__(self) -> int:
        """Blocks."""
        return len(self._blocks)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        """Return one block."""
        block = torch.tensor(self._blocks[index])
        return {"input_ids": block, "labels": block}


class BlockTrainer(CheckpointedTrainer):
    """The Trainer with the fused head, so that the logits of a whole block never exist (recipes/cpt/block_score.py)."""

    def compute_loss(self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """As the Trainer's, which scales the loss over ranks and accumulation."""
        return super().compute_loss(model, {**inputs, "fused_lm_head": True}, *args, **kwargs)


def train(job: TextJob, kind: Callable[..., BlockTrainer] = BlockTrainer) -> dict[str, Any]:
    """Train, leave best_model/ and training_history.json; return the summary (seconds, rates, losses, parameters)."""
    phase, folder = job.phase, job.run_dir / "checkpoints"
    set_seed(phase.seed)
    counts = trained(job)
    acceleration.prepare(job.model, phase, job.run_dir, job.progress.say)
    trainer = build(job, folder, kind)
    return summarize(job, trainer, training.fit(job, trainer), counts)


def prepare(model: Any, phase: TextPhase) -> Any:
    """Choose the attention and give the model the fused head. Raises UserError for blocks longer than its context."""
    context = int(model.config.get_text_config().max_position_embeddings)
    if phase.model.max_length > context:
        raise UserError(
            f"phase.model.max_length is {phase.model.max_length}: the model has {context} positions; lower it"
        )
    if flash(phase):
        model.set_attn_implementation("flash_attention_2")
    return fuse(model)


def flash(phase: TextPhase) -> bool:
    """True where flash-attention 2 can work: its package, bfloat16, compute capability 8.0 or more. Otherwise the model's default.

    Raises UserError for bfloat16 on a GPU that has none: float16 is no alternative, Gemma 3 overflows in it.
    """
    if not torch.cuda.is_available():
        return False
    if compute.dtype(phase) != torch.bfloat16:
        return False
    if not torch.cuda.is_bf16_supported(including_emulation=False):
        raise UserError(
            f"phase.model.dtype is {phase.model.dtype}: {torch.cuda.get_device_name()} has no bfloat16; set auto or float32"
        )
    return torch.cuda.get_device_capability() >= (8, 0) and bool(is_flash_attn_2_available())


def trained(job: TextJob) -> dict[str, float | int]:
    """Freeze what the phase does not train; return {trainable, total, share} in parameters. A tied head stays tied."""
    if isinstance(job.phase, CptPhase) and not job.phase.text.train_all:
        return unfreeze(job.model, job.phase)
    return everything(job.model)


def build(job: TextJob, folder: Path, kind: Callable[..., BlockTrainer] = BlockTrainer) -> BlockTrainer:
    """Return the trainer with checkpoints in `folder`."""
    phase, parts = job.phase, job.rows
    validate = bool(parts.validation.blocks)
    train = phase.train
    step_tokens = train.batch_size * train.gradient_accumulation * dist.world_size() * phase.model.max_length
    trainer = kind(
        model=fuse(job.model),
        args=config(phase, folder, validate),
        train_dataset=BlockSet(parts.train.blocks),
        eval_dataset=BlockSet(parts.validation.blocks) if validate else None,
        processing_class=job.tokenizer,
        data_collator=default_data_collator,  # all have the same length: no padding, so no attention mask
        callbacks=[Schedule(phase.train.checkpoints, validate), StepReporter(job.progress, step_tokens)],
    )
    configure_callbacks(trainer, phase, job.run_dir)
    return trainer


def config(phase: TextPhase, folder: Path, validate: bool) -> TrainingArguments:
    """Return the Trainer's settings for a phase; warm-up, validations and checkpoints are fractions of the steps."""
    return TrainingArguments(
        **settings(phase, folder, validate),
        remove_unused_columns=False,
    )


def summarize(
    job: TextJob, trainer: BlockTrainer, fitted: TrainingResult, counts: dict[str, float | int]
) -> dict[str, Any]:
    """Return training_summary.json without the hardware, which cpt_recipe.py adds."""
    phase, part = job.phase, job.rows.train
    done, seconds = outcome(phase, trainer, fitted), fitted.seconds
    share = 1 - done["resumed_from_step"] / done["steps"]
    seen = round(len(part) * phase.train.epochs * share) * phase.model.max_length
    return {
        **done,
        "parameters": counts,
        "rows": len(part),
        "validation_rows": len(job.rows.validation),
        "documents": part.documents,
        "text_tokens": part.tokens,
        "remainder_tokens": part.remainder,
        "tokens": seen,
        "tokens_per_second": round(seen / seconds, 1) if seconds else None,
        "attention": job.model.config._attn_implementation,
    }
