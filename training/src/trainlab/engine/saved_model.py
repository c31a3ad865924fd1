"""The weights of a training as a folder that can be served: safetensors, config, tokenizer; written by rank 0."""

from pathlib import Path
from typing import Any

import torch

from trainlab import files
from trainlab.config import LanguagePhase
from trainlab.engine import acceleration, checkpoints, dist
from trainlab.models import compute, export
from trainlab.models.layers import save_lora

FINAL = "final_model"
"""Folder of the last step's weights, with train.save_final_model."""


def result(phase: LanguagePhase) -> str:
    """Return the name of the folder that holds what was trained."""
    return "lora_adapter" if phase.adapter_rank else "best_model"


def save_model(job: Any, trainer: Any, name: str) -> None:
    """Write the trainer's weights into RUN/`name` (in `model.saved_dtype`; of adapters only these) from rank 0; all ranks wait for it.

    job: trainer.TrainingJob, trainer: trainer.CheckpointedTrainer.
    """
    state = acceleration.gathered_state(trainer, job.phase)  # every rank takes part if weights are sharded
    if dist.is_main():
        model: Any = trainer.accelerator.unwrap_model(trainer.model)
        target = job.run_dir / name
        with (
            checkpoints.explained_if_full(job.run_dir / "checkpoints", target.name),
            files.atomic_folder(target) as folder,
        ):
            if job.phase.adapter_rank:
                save_lora(model, folder, job.phase, state)
            else:
                _save_model(model, folder, compute.saved_dtype(job.phase), state)
                export.save_config(model, Path(job.tokenizer.name_or_path), folder)
            export.save_generation(model, folder, job.phase)
            export.save_tokenizer(job.tokenizer, folder, job.phase)
    dist.barrier()


def _save_model(model: Any, folder: Path, dtype: torch.dtype, sharded: dict[str, Any] | None) -> None:
    narrowed: dict[int, torch.Tensor] = {}  # keeps a tied head tied to the embedding: else both would be written
    state = {
        name: narrowed.setdefault(tensor.data_ptr(), tensor.detach().to(dtype))
        for name, tensor in (sharded or model.state_dict()).items()
    }
    model.config.use_cache = True
    model.config.dtype = dtype
    model.save_pretrained(folder, state_dict=state, safe_serialization=True)
