"""Hugging Face's trainers for the recipes of language models: our checkpoints, what a phase sets, one fit from resume to result.

Checkpoints are marked when complete and rotated after that. The result is best_model/ or lora_adapter/.
"""

import contextlib
import statistics
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PrinterCallback,
    ProgressCallback,
    Trainer,
)
from transformers.integrations import TensorBoardCallback
from transformers.trainer_pt_utils import BatchRebalanceSampler
from trl import SFTTrainer

from trainlab import files
from trainlab.config import LanguagePhase, SftPhase
from trainlab.config.methods import CurriculumStep
from trainlab.config.phases import BatchPhase
from trainlab.engine import acceleration, checkpoints, compiled, dist
from trainlab.engine.activation_cache import ActivationCache
from trainlab.engine.answer_loss import answer_loss
from trainlab.engine.saving import Beside, BestWeights, RoundingGuard, SaveCallback, StepReporter
from trainlab.engine.stopping import Stop, StopCallback, Stopped
from trainlab.models import compute, export
from trainlab.models.layers import save_lora
from trainlab.progress import Progress

# TRL and PEFT use a name that transformers deprecated in 5.23; it warns once per rank.
warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)


@dataclass
class TrainingJob:
    """What a language model is trained with, the same on every rank; rows: list[TrainRow], or blocks of tokens."""

    phase: Any
    run_dir: Path
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    rows: Any
    progress: Progress
    validation: list[Any] | None = None
    """Rows of data.validation."""
    ends: contextlib.ExitStack | None = None
    """Closed once all of the training is on the volume: until then SIGTERM is held back. None: at the end of `fit`."""


class CheckpointedTrainer(compiled.CompiledTrainer):
    """Writes `complete.json` last into each checkpoint, and reports a full volume in a sentence."""

    keep = 1
    best: BestWeights | None = None
    reporter: StepReporter | None = None
    seconds = 0.0
    """Seconds of all steps, without the pass of the frozen layers before them."""

    def create_accelerator_and_postprocess(self) -> None:
        """As the Trainer's, with our precision under FSDP2: its settings have no key for it."""
        self._writer = Beside()
        acceleration.keep_digits(self.args)
        super().create_accelerator_and_postprocess()

    def _get_dataloader(self, *args: Any, **kwargs: Any) -> Any:
        """As the Trainer's. Its processes draw their seeds from a generator of their own: the model's dropout is that of an uninterrupted run
        after a resume, which starts them once more. They begin without this process's memory: of a fork, weights that train stay behind.
        """
        loader: Any = super()._get_dataloader(*args, **kwargs)  # accelerate's
        if self.args.dataloader_num_workers:
            loader.base_dataloader.generator = torch.Generator().manual_seed(self.args.seed)
            loader.base_dataloader.multiprocessing_context = "forkserver"
        return loader

    def _run_epoch(self, model: Any, epoch: int, train_dataloader: Any, *args: Any, **kwargs: Any) -> None:
        """As the Trainer's. Where an epoch is resumed on several ranks, one more sampler skips what was trained, and accelerate 1.15's set_epoch
        does not reach past it: in the second epoch the rest would be rows of the first.
        """
        sampler = getattr(train_dataloader, "batch_sampler", None)
        while sampler is not None:
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(epoch)
            sampler = getattr(sampler, "batch_sampler", None) or getattr(sampler, "sampler", None)
        super()._run_epoch(model, epoch, train_dataloader, *args, **kwargs)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Save, mark, rotate; of shards the last two follow later. Not SFTTrainer's own method, which adds a model card for the hub."""
        root = Path(str(self.args.output_dir))
        folder = root / f"checkpoint-{self.state.global_step}"

        def finish() -> None:
            if self.args.should_save:
                checkpoints.mark(folder)
                checkpoints.rotate(root, self.keep)

        self.written()
        with checkpoints.explained_if_full(root, folder.name):
            if self.is_fsdp_enabled:
                with self._writer.writing():
                    Trainer._save_checkpoint(self, model, trial)
            else:
                Trainer._save_checkpoint(self, model, trial)
            if self.best and self.args.should_save:
                self.best.write(folder)
            dist.barrier()  # every rank has written its random state
            self._writer.then(finish)

    def written(self) -> None:
        """Wait until the last checkpoint is complete."""
        with checkpoints.explained_if_full(Path(str(self.args.output_dir)), "a checkpoint"):
            self._writer.wait()


class CheckpointedSftTrainer(CheckpointedTrainer, SFTTrainer):
    """TRL's trainer with our checkpoints, if the cache is filled with cached activations, on CPU with the loss of answers only."""

    activation_cache: ActivationCache | None = None
    _total_train_tokens: float  # TRL's

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
        before, by_trl = self._total_train_tokens, return_outputs or torch.cuda.is_available()
        if by_trl:
            loss = super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        else:
            head = self.accelerator.unwrap_model(model).get_output_embeddings()
            # `num_items_in_batch` counts every rank's tokens, and DDP averages gradients
            ranks = 1 if num_items_in_batch is None else self.accelerator.num_processes
            loss = ranks * answer_loss(model, head, inputs, num_items_in_batch)
        if model.training and (self.full_batch or not by_trl):  # TRL counts the padding of packed rows
            seen = self.accelerator.gather_for_metrics(compiled.real_tokens(inputs))
            self._total_train_tokens = before + int(seen.sum())
            self._metrics["train"]["num_tokens"] = [self._total_train_tokens]
        return loss


class BlockTrainer(CheckpointedTrainer):
    """The Trainer with the fused head, so that the logits of a whole block never exist (recipes/cpt.py).

    With a curriculum it trains on blocks cut to the length of the step, and validates on whole blocks.
    """

    curriculum: tuple[CurriculumStep, ...] = ()

    def compute_loss(self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """As the Trainer's, which scales the loss over ranks and accumulation.

        The count of predicted tokens follows the cut, since a sequence's first one is given.
        """
        if model.training and self.curriculum:
            length = length_at(self.curriculum, self.state.global_step, self.state.max_steps)
            block = inputs["input_ids"].shape[1]
            inputs = {name: tensor.view(-1, length) for name, tensor in inputs.items()}
            if kwargs.get("num_items_in_batch") is not None:
                kwargs["num_items_in_batch"] = (
                    kwargs["num_items_in_batch"] * (block // length * (length - 1)) / (block - 1)
                )
        return super().compute_loss(model, {**inputs, "fused_lm_head": True}, *args, **kwargs)


def length_at(curriculum: tuple[CurriculumStep, ...], step: int, total: int) -> int:
    """Return the sequence length of the optimizer step `step` (from 0) of `total`."""
    done = 0.0
    for part in curriculum:
        done += part.share
        if step < round(done * total):
            return part.length
    return curriculum[-1].length


def settings(phase: BatchPhase, folder: Path, validate: bool) -> dict[str, Any]:
    """Return the settings common to all trainers; warm-up, validations and saves are shares of the steps."""
    train, gpu = phase.train, torch.cuda.is_available()
    workers = train.dataloader_workers or 0
    gradient_checkpointing = acceleration.gradient_checkpointing(phase)
    share = 1 / train.checkpoints - 1e-9  # of the steps, rounded up; the last step is always validated
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
        "eval_strategy": "steps" if validate else "no",
        "eval_steps": share,
        "save_strategy": "no",  # SaveCallback says when
        "report_to": "none",
        "log_level": "error",  # a tied head is missing in every checkpoint, which is reported otherwise
        "log_level_replica": "error",
        "disable_tqdm": True,
        "dataloader_pin_memory": gpu,
        "dataloader_num_workers": workers,
        "dataloader_persistent_workers": workers > 0,
        "ddp_find_unused_parameters": False,
        "ddp_timeout": int(dist.wait_limit(phase.resources.timeout_minutes).total_seconds()),
        **acceleration.sharding(phase),
    }


def configure_callbacks(trainer: CheckpointedTrainer, job: TrainingJob, step_tokens: int = 0) -> None:
    """Set when checkpoints are written, report steps by our lines instead of the library's and to TensorBoard on rank 0."""
    trainer.keep, trainer.full_batch = job.phase.train.keep_checkpoints, compiled.batch_tokens(job.phase)
    trainer.add_callback(SaveCallback(job.phase.train.checkpoints))
    trainer.remove_callback(PrinterCallback)
    trainer.remove_callback(ProgressCallback)
    trainer.reporter = StepReporter(job.progress, step_tokens)
    trainer.add_callback(trainer.reporter)
    if dist.is_main():
        from torch.utils.tensorboard import SummaryWriter

        trainer.add_callback(TensorBoardCallback(SummaryWriter(str(job.run_dir / "tensorboard"))))


def fit(job: TrainingJob, trainer: CheckpointedTrainer) -> dict[str, Any]:
    """Train from the newest complete checkpoint; save the best one as the result, and training_history.json.

    Returns what every training_summary.json says about steps, losses and time.
    """
    with contextlib.ExitStack() as ends:
        return _fit(job, trainer, job.ends or ends)


def _fit(job: TrainingJob, trainer: CheckpointedTrainer, ends: contextlib.ExitStack) -> dict[str, Any]:
    resume = checkpoints.last_good_everywhere(Path(str(trainer.args.output_dir)), job.progress.say)
    if resume:
        job.progress.say(f"resuming from {resume}")
    if compute.saved_dtype(job.phase) == torch.bfloat16 and not job.phase.adapter_rank:
        trainer.add_callback(RoundingGuard())
    began = time.monotonic()
    if isinstance(trainer, CheckpointedSftTrainer) and (layers := _frozen_below(job.phase)):
        trainer.activation_cache = cache_activations(job, trainer, layers)
    if trainer.eval_dataset is not None and not acceleration.sharded(job.phase):
        trainer.best = BestWeights(job.model, resume)
        trainer.add_callback(trainer.best)
    stepping = time.monotonic()
    trainer.add_callback(StopCallback(ends.enter_context(Stop())))
    try:
        trainer.train(resume_from_checkpoint=str(resume) if resume else None)
    except Stopped:
        trainer.written()
        raise
    trainer.written()
    seconds, trainer.seconds = time.monotonic() - began, time.monotonic() - stepping
    if job.phase.train.save_final_model:
        with job.progress.step(f"saving {checkpoints.FINAL}/"):
            save_model(job, trainer, checkpoints.FINAL)
    if trainer.best:
        trainer.best.restore(trainer.state.global_step)
    with job.progress.step(f"saving {result(job.phase)}/"):
        save_model(job, trainer, result(job.phase))
    if dist.is_main():
        files.write_json(job.run_dir / "training_history.json", trainer.state.log_history)
    return _outcome(job.phase, trainer, seconds, checkpoints.step(resume) if resume else 0)


def _outcome(phase: BatchPhase, trainer: CheckpointedTrainer, seconds: float, resumed: int) -> dict[str, Any]:
    world, steps, history = dist.world_size(), trainer.state.global_step, trainer.state.log_history
    losses = [entry["loss"] for entry in history if "loss" in entry]
    evaluations = [entry for entry in history if "eval_loss" in entry]
    chosen = trainer.best and evaluations  # else the last step's weights are the result
    best = min(evaluations, key=lambda entry: float(entry["eval_loss"])) if chosen else None
    times = [entry["step_seconds"] for entry in history if "step_seconds" in entry]
    return {
        "recipe": phase.recipe,
        "world_size": world,
        "effective_batch": phase.train.batch_size * phase.train.gradient_accumulation * world,
        "epochs": phase.train.epochs,
        "steps": steps,
        "resumed_from_step": resumed,
        "seconds": round(seconds, 1),
        "step_seconds": statistics.median(times) if times else None,
        "step_parts": dist.step_parts(trainer.model_wrapped),
        "first_loss": losses[0] if losses else None,
        "last_loss": losses[-1] if losses else None,
        "validation_loss": best["eval_loss"] if best else None,
        "last_validation_loss": evaluations[-1]["eval_loss"] if evaluations else None,
        "best_step": best["step"] if best else steps,
        "final_model": bool(phase.train.save_final_model),
        "dtype": str(compute.dtype(phase)).removeprefix("torch."),
        "mfu": trainer.reporter.mfu if trainer.reporter else None,
    }


def summarize(
    phase: LanguagePhase, trainer: CheckpointedTrainer, done: dict[str, Any], rows: int, validation_rows: int
) -> dict[str, Any]:
    """Return the summary of a training on rows: `done`, which `fit` returned, their numbers, tokens and rows per second."""
    taken, history = done["steps"] - done["resumed_from_step"], trainer.state.log_history
    packed = isinstance(phase, SftPhase) and phase.train.packing
    seen = rows * phase.train.epochs * taken / done["steps"] if packed else taken * done["effective_batch"]
    return {
        **done,
        "rows": rows,
        "validation_rows": validation_rows,
        "tokens": next((int(e["num_tokens"]) for e in reversed(history) if "num_tokens" in e), 0),
        "samples_per_second": round(seen / trainer.seconds, 2),
    }


def _frozen_below(phase: LanguagePhase) -> int:
    """Return how many last layers are trained on cached outputs of those below; 0 if nothing is cached."""
    if not isinstance(phase, SftPhase) or not phase.train.cache_frozen_activations:
        return 0
    return phase.lora.layers or 0 if phase.lora.rank else phase.unfreeze.layers


def cache_activations(job: TrainingJob, trainer: CheckpointedSftTrainer, layers: int) -> ActivationCache:
    """Return the outputs of the frozen layers, those below the last `layers`, for all training and validation rows."""
    cache = ActivationCache(job.model, layers, int(job.tokenizer.pad_token_id))
    sets: list[Any] = [trainer.train_dataset, trainer.eval_dataset]
    rows = [ids for part in sets if part is not None for ids in part["input_ids"]]
    with job.progress.step(f"running the frozen layers once over {len(rows)} rows"):
        cache.fill(rows, job.phase.train.batch_size, trainer.accelerator.autocast, job.progress.status)
    return cache


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
