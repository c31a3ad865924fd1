"""Training from the newest complete checkpoint to its results: best_model/ or lora_adapter/, history and summary."""

import time
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from trainlab import files
from trainlab.config import DpoPhase, LanguagePhase, SftPhase
from trainlab.engine import acceleration, checkpoints, dist
from trainlab.engine.activation_cache import ActivationCache
from trainlab.engine.stopping import Stop, StopCallback
from trainlab.engine.trainer import CheckpointedSftTrainer, CheckpointedTrainer, TrainingResult, outcome
from trainlab.engine.training_job import TrainingJob
from trainlab.errors import UserError
from trainlab.models import compute, export
from trainlab.models.layers import save_lora
from trainlab.plan import rounding


class RoundingGuard(TrainerCallback):
    """Refuses, before the first step, an update that saving the weights as bfloat16 would mostly undo."""

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Raise UserError on every rank alike."""
        if lost := rounding.lost(args.learning_rate, state.max_steps):
            raise UserError(lost)


def fit(job: TrainingJob[LanguagePhase, Any], trainer: CheckpointedTrainer) -> TrainingResult:
    """Train from the newest complete checkpoint; save the best one as the result, and training_history.json."""
    resume = checkpoints.last_good_everywhere(Path(str(trainer.args.output_dir)), job.progress.say)
    if resume:
        job.progress.say(f"resuming from {resume}")
    if compute.saved_dtype(job.phase) == torch.bfloat16 and not job.phase.adapter_rank:
        trainer.add_callback(RoundingGuard())
    began = time.monotonic()
    if isinstance(trainer, CheckpointedSftTrainer) and (layers := _frozen_below(job.phase)):
        trainer.activation_cache = cache_activations(job, trainer, layers)
    caching = time.monotonic() - began
    with Stop() as stop:
        trainer.add_callback(StopCallback(stop))
        done = trainer.train(resume_from_checkpoint=str(resume) if resume else None)
    seconds = time.monotonic() - began
    with job.progress.step(f"saving {result(job.phase)}/"):
        save_best(job, trainer)
    if dist.is_main():
        files.write_json(job.run_dir / "training_history.json", trainer.state.log_history)
    return TrainingResult(done.metrics, seconds, resume, caching)


def _frozen_below(phase: LanguagePhase) -> int:
    """Return how many last layers are trained on cached outputs of those below; 0 if nothing is cached."""
    if not isinstance(phase, SftPhase) or not phase.train.cache_frozen_activations:
        return 0
    return phase.lora.layers or 0 if phase.lora.rank else phase.unfreeze.layers


def cache_activations(
    job: TrainingJob[LanguagePhase, Any], trainer: CheckpointedSftTrainer, layers: int
) -> ActivationCache:
    """Return the outputs of the frozen layers, those below the last `layers`, for all training and validation rows."""
    cache = ActivationCache(job.model, layers, job.tokenizer.pad_token_id)
    sets: list[Any] = [trainer.train_dataset, trainer.eval_dataset]
    rows = [ids for part in sets if part is not None for ids in part["input_ids"]]
    with job.progress.step(f"running the frozen layers once over {len(rows)} rows"):
        cache.fill(rows, job.phase.train.batch_size, trainer.accelerator.autocast, job.progress.status)
    return cache


def result(phase: LanguagePhase) -> str:
    """Return the name of the folder that holds what was trained."""
    return "lora_adapter" if phase.adapter_rank else "best_model"


def save_best(job: TrainingJob[LanguagePhase, Any], trainer: CheckpointedTrainer) -> None:
    """Write the result (safetensors and tokenizer, in `model.saved_dtype`) from rank 0; all ranks wait for it."""
    whole = acceleration.whole_state(trainer, job.phase)  # every rank takes part if weights are sharded
    if dist.is_main():
        model: Any = trainer.accelerator.unwrap_model(trainer.model)
        name = result(job.phase)
        try:
            with files.atomic_folder(job.run_dir / name) as folder:
                if job.phase.adapter_rank:
                    save_lora(model, folder, job.phase, whole)
                else:
                    _save_whole(model, folder, compute.saved_dtype(job.phase), whole)
                    export.save_config(model, Path(job.tokenizer.name_or_path), folder)
                export.save_generation(model, folder, job.phase)
                export.save_tokenizer(job.tokenizer, folder, job.phase)
        except Exception as error:  # OSError or SafetensorError, depending on the file that hit the limit
            raise checkpoints.explain_full(error, job.run_dir / "checkpoints", name) or error from None
    dist.barrier()


def _save_whole(model: Any, folder: Path, dtype: torch.dtype, whole: dict[str, Any] | None = None) -> None:
    narrowed: dict[int, torch.Tensor] = {}  # keeps a tied head tied to the embedding: else both would be written
    state = {
        name: narrowed.setdefault(tensor.data_ptr(), tensor.detach().to(dtype))
        for name, tensor in (whole or model.state_dict()).items()
    }
    model.config.use_cache = True
    model.config.dtype = dtype
    model.save_pretrained(folder, state_dict=state, safe_serialization=True)


def summarize(
    phase: SftPhase | DpoPhase,
    trainer: CheckpointedTrainer,
    fitted: TrainingResult,
    counts: dict[str, float | int],
    rows: int,
    validation_rows: int,
) -> dict[str, Any]:
    """Return training_summary.json without the hardware, which run/worker.py adds."""
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
        "samples_per_second": round(seen / (seconds - fitted.caching), 2),
    }
