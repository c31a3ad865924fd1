"""Supervised fine-tuning of the last layers and the head, or of LoRA adapters: TRL's SFTTrainer under torchrun; called by worker.py.

Only the answer and its EOS count in the loss. The best checkpoint by validation loss becomes best_model/, or, with
`lora.rank`, lora_adapter/.
"""

import time
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import set_seed
from trl import SFTConfig

from trainlab import chat, checkpoints, compute, dist, files
from trainlab.config import DpoPhase, LanguagePhase, SftPhase
from trainlab.data import TrainRow, split_by_question
from trainlab.recipes import Job, adapters
from trainlab.recipes.layers import everything, unfreeze
from trainlab.recipes.trainer import (
    CheckpointedSftTrainer,
    CheckpointedTrainer,
    Schedule,
    StepReporter,
    TrainingResult,
    configure_callbacks,
    outcome,
    settings,
)
from trainlab.recipes.trunk import TrunkCache
from trainlab.staged import acceleration


def train(job: Job[SftPhase]) -> dict[str, Any]:
    """Train, leave best_model/ (or lora_adapter/) and training_history.json; return the summary (seconds, rates, losses, parameters)."""
    phase, folder = job.phase, job.run_dir / "checkpoints"
    set_seed(phase.seed)
    if phase.lora.rank:
        job.model, counts = adapters.add(job.model, phase)
    elif phase.stage:
        counts = everything(job.model)
    else:
        counts = unfreeze(job.model, phase)
    rows, validation = split_by_question(job.rows, phase.train.validation_fraction, phase.seed)
    acceleration.prepare(job.model, phase, job.progress.say)
    trainer = build(job, rows, validation, folder)
    return summarise(phase, trainer, fit(job, trainer), counts, len(rows), len(validation))


def fit(job: Job[LanguagePhase], trainer: CheckpointedTrainer) -> TrainingResult:
    """Train from the newest whole checkpoint on; leave the best one as result and training_history.json."""
    resume = checkpoints.last_good_everywhere(Path(str(trainer.args.output_dir)), job.progress.say)
    if resume:
        job.progress.say(f"resuming from {resume}")
    began = time.monotonic()
    if isinstance(trainer, CheckpointedSftTrainer) and (layers := _frozen_below(job.phase)):
        trainer.trunk = fill_trunk(job, trainer, layers)
    done = trainer.train(resume_from_checkpoint=str(resume) if resume else None)
    seconds = time.monotonic() - began
    with job.progress.step(f"saving {result(job.phase)}/"):
        save_best(job, trainer)
    if dist.is_main():
        files.write_json(job.run_dir / "training_history.json", trainer.state.log_history)
    return TrainingResult(done.metrics, seconds, resume)


def build(job: Job[SftPhase], rows: list[TrainRow], validation: list[TrainRow], folder: Path) -> CheckpointedSftTrainer:
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
    # Activations of a frozen trunk are not kept, so there is nothing to recompute; a tied head needs all of them.
    tied = phase.unfreeze.tie_word_embeddings and not phase.lora.rank and not phase.stage
    return SFTConfig(
        **settings(phase, folder, validate, recompute=tied),
        # chat.encode refuses longer rows by name, so TRL cuts none (which would lose the EOS); packs have this length.
        max_length=phase.model.max_length if phase.train.packing else None,
        completion_only_loss=True,
        # Best fit, whole rows only; no padding mask, so positions that restart keep the rows of a pack apart (transformers'
        # masking_utils, with every attention implementation).
        packing=phase.train.packing,
        eval_packing=False,
    )


def tokens(job: Job[SftPhase], rows: list[TrainRow]) -> Dataset:
    """Return the rows as {input_ids, completion_mask}; raises UserError with the id of a row that is too long."""
    return Dataset.from_list([chat.encode(job.tokenizer, job.phase, row) for row in rows])


def _frozen_below(phase: LanguagePhase) -> int:
    """Return how many last layers are trained on cached outputs of those below; 0 where nothing is cached."""
    if not isinstance(phase, SftPhase) or not phase.train.cache_frozen_activations:
        return 0
    return phase.unfreeze.layers


def fill_trunk(job: Job[LanguagePhase], trainer: CheckpointedSftTrainer, layers: int) -> TrunkCache:
    """Return the outputs of the frozen layers, those below the last `layers`, for all training and validation rows."""
    cache = TrunkCache(job.model, layers, job.tokenizer.pad_token_id)
    sets: list[Any] = [trainer.train_dataset, trainer.eval_dataset]
    rows = [ids for part in sets if part is not None for ids in part["input_ids"]]
    with job.progress.step(f"running the frozen layers once over {len(rows)} rows"):
        cache.fill(rows, job.phase.train.batch_size, trainer.accelerator.autocast, job.progress.status)
    return cache


def result(phase: LanguagePhase) -> str:
    """Return the name of the folder that holds what was trained."""
    return "lora_adapter" if phase.adapter_rank else "best_model"


def save_best(job: Job[LanguagePhase], trainer: CheckpointedTrainer) -> None:
    """Write the result (safetensors and tokenizer, in the phase's dtype) from rank 0; all ranks wait for it."""
    whole = acceleration.whole_state(trainer, job.phase)  # every rank takes part where weights are sharded
    if dist.is_main():
        model: Any = trainer.accelerator.unwrap_model(trainer.model)
        name = result(job.phase)
        try:
            with files.whole_folder(job.run_dir / name) as folder:
                if job.phase.adapter_rank:
                    adapters.save(model, folder, job.phase)
                else:
                    _save_whole(model, folder, compute.dtype(job.phase), whole)
                job.tokenizer.save_pretrained(folder)
        except Exception as error:  # OSError or SafetensorError, by the file that met the end
            raise checkpoints.explain_full(error, job.run_dir / "checkpoints", name) or error from None
    dist.barrier()


def _save_whole(model: Any, folder: Path, dtype: torch.dtype, whole: dict[str, Any] | None = None) -> None:
    narrowed: dict[int, torch.Tensor] = {}  # a tied head stays the embedding's tensor: else both would be written
    state = {
        name: narrowed.setdefault(tensor.data_ptr(), tensor.detach().to(dtype))
        for name, tensor in (whole or model.state_dict()).items()
    }
    model.config.use_cache = True
    model.config.dtype = dtype
    model.save_pretrained(folder, state_dict=state, safe_serialization=True)


def summarise(
    phase: SftPhase | DpoPhase,
    trainer: CheckpointedTrainer,
    fitted: TrainingResult,
    counts: dict[str, float | int],
    rows: int,
    validation_rows: int,
) -> dict[str, Any]:
    """Return training_summary.json without the hardware, which worker.py adds."""
    done, seconds = outcome(phase, trainer, fitted), fitted.seconds
    taken, history = done["steps"] - done["resumed_from_step"], trainer.state.log_history
    packed = isinstance(phase, SftPhase) and phase.train.packing
    seen = rows * phase.train.epochs * taken / done["steps"] if packed else taken * done["effective_batch"]
    return {
        **done,
        "parameters": counts,
        "rows": rows,
        "validation_rows": validation_rows,
        "tokens": next((int(e["num_tokens"]) for e in reversed(history) if "num_tokens" in e), 0),
        "samples_per_second": round(seen / seconds, 2) if seconds else None,
    }
