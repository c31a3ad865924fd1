"""Hugging Face's trainers with our checkpoints: marked when complete, spread evenly, rotated after that; for sft, cpt, dpo."""

import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import (
    PrinterCallback,
    ProgressCallback,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from transformers.integrations import TensorBoardCallback
from transformers.trainer_pt_utils import BatchRebalanceSampler
from trl import SFTTrainer

from trainlab.config import LanguagePhase, Phase
from trainlab.engine import acceleration, checkpoints, dist
from trainlab.engine.activation_cache import ActivationCache
from trainlab.engine.answer_loss import answer_loss
from trainlab.engine.steps import Eta, planned
from trainlab.models import compute
from trainlab.progress import Numbers, Progress

# TRL and PEFT use a name that transformers deprecated in 5.23; it warns once per rank.
warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)


class CheckpointedTrainer(Trainer):
    """Writes `complete.json` last into each checkpoint, and reports a full volume in a sentence."""

    keep = 1

    def create_accelerator_and_postprocess(self) -> None:
        """As the Trainer's, with our precision under FSDP2: its settings have no key for it."""
        acceleration.keep_digits(self.args)
        super().create_accelerator_and_postprocess()

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Save, mark, rotate. Not SFTTrainer's own method: that adds a model card meant for the hub."""
        root = Path(str(self.args.output_dir))
        folder = root / f"checkpoint-{self.state.global_step}"
        try:
            Trainer._save_checkpoint(self, model, trial)
            dist.barrier()  # every rank has written its random state
            if self.args.should_save:
                checkpoints.mark(folder)
                checkpoints.rotate(root, self.keep, self.state.best_model_checkpoint)
        except Exception as error:  # OSError, SafetensorError or torch's RuntimeError, depending on the file
            full = checkpoints.explain_full(error, root, folder.name)
            if full is None:
                raise
            raise full from None


class CheckpointedSftTrainer(CheckpointedTrainer, SFTTrainer):
    """TRL's trainer with our checkpoints, if the cache is filled with cached activations, on CPU with the loss of answers only."""

    activation_cache: ActivationCache | None = None

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        """As the Trainer's; rows are shuffled by the phase's seed, where transformers 5.23 has 42."""
        sampler = super()._get_train_sampler(train_dataset)
        if isinstance(sampler, BatchRebalanceSampler):
            sampler.seed = self.args.seed
        return sampler

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """As TRL's; with cached activations the frozen layers are skipped."""
        if self.activation_cache is None:
            return self._loss(model, inputs, return_outputs, num_items_in_batch)
        with self.activation_cache.replacing(inputs):
            return self._loss(model, inputs, return_outputs, num_items_in_batch)

    def _loss(self, model: Any, inputs: dict[str, Any], return_outputs: bool, num_items_in_batch: Any) -> Any:
        if return_outputs or torch.cuda.is_available():
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        head = self.accelerator.unwrap_model(model).get_output_embeddings()
        loss = answer_loss(model, head, inputs, num_items_in_batch)
        if model.training:
            mask = inputs.get("attention_mask")  # none if packed
            seen = mask.sum() if mask is not None else torch.tensor(inputs["labels"].numel())
            self._total_train_tokens += int(self.accelerator.gather_for_metrics(seen).sum())
            self._metrics["train"]["num_tokens"] = [self._total_train_tokens]
        # `num_items_in_batch` counts every rank's tokens, and DDP averages gradients
        return loss if num_items_in_batch is None else loss * self.accelerator.num_processes


class Schedule(TrainerCallback):
    """Validates and saves at `count` evenly spread steps, the last step included."""

    def __init__(self, count: int, validate: bool) -> None:
        self._count, self._validate = count, validate

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        """Set the flags of this step."""
        due = state.global_step in planned(state.max_steps, self._count)
        control.should_save = due
        control.should_evaluate = due and self._validate
        return control


class StepReporter(TrainerCallback):
    """Turns steps into lines and numbers: `step 12/120 loss 3.1 900 tokens/s (31% MFU) eta 85 s`, MFU on GPUs alone.

    Tokens are those of all ranks, since the first step of this process: TRL's count, else `step_tokens` a step.
    """

    def __init__(self, progress: Progress, step_tokens: int = 0) -> None:
        self._progress, self._eta, self._step_tokens = progress, Eta(), step_tokens
        self._first, self._began = 0, time.monotonic()
        self._train: dict[str, float] = {}
        self._validation: dict[str, float] = {}

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Start the clock; a resumed run starts at its step."""
        self._eta, self._first, self._began = Eta(state.global_step), state.global_step, time.monotonic()
        self._progress.say(f"training from step {state.global_step} to {state.max_steps}")

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Report the progress at this step."""
        step, total = state.global_step, state.max_steps
        left, epochs = self._eta.left(step, total), float(state.num_train_epochs)
        self._progress.at(Numbers(step, total, left, state.epoch, epochs, self._train, self._validation))

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs: Any = None, **_: Any
    ) -> None:
        """Keep the newest numbers for the next line; print a validation loss at once."""
        logs = logs or {}
        if "loss" in logs:
            self._train = {name: float(logs[name]) for name in ("loss", "learning_rate", "grad_norm") if name in logs}
            tokens = logs.get("num_tokens", (state.global_step - self._first) * self._step_tokens)
            self._train["tokens_per_second"] = tokens / (time.monotonic() - self._began)
            if self._progress.peak_tokens:
                self._train["mfu"] = self._train["tokens_per_second"] / self._progress.peak_tokens
        if "eval_loss" in logs:
            self._validation = {"loss": float(logs["eval_loss"])}
            self._progress.say(f"step {state.global_step}/{state.max_steps} validation loss {logs['eval_loss']:.3f}")


def settings(
    phase: LanguagePhase, folder: Path, validate: bool, gradient_checkpointing: bool = False
) -> dict[str, Any]:
    """Return the settings common to all trainers; warm-up, validations and saves follow the steps.

    `gradient_checkpointing` asks for activation checkpointing whatever `stage.gradient_checkpointing` says.
    """
    train, gpu = phase.train, torch.cuda.is_available()
    gradient_checkpointing = gradient_checkpointing or acceleration.gradient_checkpointing(phase)
    return {
        "output_dir": str(folder),
        "seed": phase.seed,
        "num_train_epochs": train.epochs,
        "per_device_train_batch_size": train.batch_size,
        "per_device_eval_batch_size": train.batch_size,
        "gradient_accumulation_steps": train.gradient_accumulation,
        "learning_rate": train.learning_rate,
        "warmup_steps": train.warmup_fraction,  # transformers 5 reads a value below 1 as a share of the steps
        "weight_decay": train.weight_decay,
        "max_grad_norm": train.max_grad_norm,
        "lr_scheduler_type": "cosine",
        **{key: beta for key in ("adam_beta1", "adam_beta2") if (beta := getattr(train, key)) is not None},
        "bf16": compute.dtype(phase) == torch.bfloat16,
        "use_cpu": not gpu,
        "activation_checkpointing": gradient_checkpointing,
        "activation_checkpointing_kwargs": {"use_reentrant": False} if gradient_checkpointing else None,
        "logging_steps": 1,
        "logging_first_step": True,
        "eval_strategy": "steps" if validate else "no",
        "save_strategy": "steps",
        "eval_steps": 10**9,  # Schedule decides
        "save_steps": 10**9,
        "load_best_model_at_end": validate and not acceleration.sharded(phase),
        "metric_for_best_model": "eval_loss" if validate else None,
        "greater_is_better": False if validate else None,
        "save_total_limit": None,  # CheckpointedTrainer rotates, after the marker is written
        "report_to": "none",
        "log_level": "error",  # a tied head is missing in every checkpoint, which is reported otherwise
        "log_level_replica": "error",
        "disable_tqdm": True,
        "dataloader_num_workers": 0,
        "dataloader_pin_memory": gpu,
        "ddp_find_unused_parameters": False,
        "ddp_timeout": int(dist.patience(phase.resources.timeout_minutes).total_seconds()),
        **acceleration.sharding(phase),
    }


def configure_callbacks(trainer: CheckpointedTrainer, phase: Phase, run_dir: Path) -> None:
    """Set how many checkpoints are kept, silence the library's own lines, and write TensorBoard's files on rank 0."""
    trainer.keep = phase.train.keep_checkpoints
    trainer.remove_callback(PrinterCallback)
    trainer.remove_callback(ProgressCallback)
    if dist.is_main():
        from torch.utils.tensorboard import SummaryWriter

        trainer.add_callback(TensorBoardCallback(SummaryWriter(str(run_dir / "tensorboard"))))


@dataclass(frozen=True)
class TrainingResult:
    """How a training went: the Trainer's metrics, seconds, and the checkpoint that it resumed from."""

    metrics: Mapping[str, float]
    seconds: float
    resume: Path | None
    caching: float = 0.0
    """Seconds of `seconds` in which the frozen layers ran, before the first step."""


def outcome(phase: Phase, trainer: CheckpointedTrainer, fitted: TrainingResult) -> dict[str, Any]:
    """Return what every training_summary.json says about steps, losses and time."""
    world, steps, history = dist.world_size(), trainer.state.global_step, trainer.state.log_history
    losses = [entry["loss"] for entry in history if "loss" in entry]
    evaluations = [entry for entry in history if "eval_loss" in entry]
    chosen = bool(trainer.args.load_best_model_at_end and evaluations)  # else the last step's weights are the result
    best = min(evaluations, key=lambda entry: float(entry["eval_loss"])) if chosen else None
    return {
        "recipe": phase.recipe,
        "world_size": world,
        "effective_batch": phase.train.batch_size * phase.train.gradient_accumulation * world,
        "epochs": phase.train.epochs,
        "steps": steps,
        "resumed_from_step": checkpoints.step(fitted.resume) if fitted.resume else 0,
        "seconds": round(fitted.seconds, 1),
        "first_loss": losses[0] if losses else None,
        "last_loss": losses[-1] if losses else None,
        "mean_loss": fitted.metrics.get("train_loss"),
        "validation_loss": best["eval_loss"] if best else None,
        "last_validation_loss": evaluations[-1]["eval_loss"] if evaluations else None,
        "best_step": best["step"] if best else steps,
        "dtype": str(compute.dtype(phase)).removeprefix("torch."),
    }
