"""What Hugging Face's trainers keep and say while they train: best weights in memory, checkpoints beside the training, steps.

Used by engine/trainer.py; when a checkpoint is due, engine/checkpoints.py says.
"""

import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as td
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file, save_file
from torch import nn
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from trainlab.engine import checkpoints, dist
from trainlab.errors import UserError
from trainlab.plan import rounding, volumes
from trainlab.progress import Eta, Numbers, Progress

BEST = "best.safetensors"


class SaveCallback(TrainerCallback):
    """Saves when it is due."""

    def __init__(self, count: int) -> None:
        """`count`: train.checkpoints."""
        self._count = count

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: Any = None, **_: Any
    ) -> None:
        """Start the clock, now that steps and weights are known."""
        weights = list(model.parameters())
        trained = sum(weight.numel() for weight in weights if weight.requires_grad)
        frozen = 0 if hasattr(model, "peft_config") else sum(each.nbytes for each in weights if not each.requires_grad)
        self._clock = checkpoints.Clock(state.max_steps, self._count, volumes.TRAINED_BYTES * trained + frozen)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Save, on all ranks or on none."""
        if self._clock.due(state.global_step):
            control.should_save = True

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Count the time from here."""
        self._clock.saved()


class BestWeights(TrainerCallback):
    """Keeps the trained weights of the lowest validation loss: in rank 0's memory, and in a checkpoint that is of another step."""

    def __init__(self, model: nn.Module, resume: Path | None) -> None:
        """`resume`: the checkpoint that the training goes on from."""
        self._trained = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        self._resume, self._weights, self._loss, self._step = resume, dict[str, torch.Tensor](), math.inf, 0

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Take up what the checkpoint knows."""
        for entry in state.log_history:
            if entry.get("eval_loss", self._loss) < self._loss:
                self._loss, self._step = entry["eval_loss"], int(entry["step"])
        if self._step and dist.is_main():
            older = self._step < state.global_step and self._resume
            self._weights = load_file(self._resume / BEST) if older and self._resume else self._copied()

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, metrics: Any = None, **_: Any
    ) -> None:
        """Keep the weights if they are the best so far; after the last step they are in the model."""
        if metrics["eval_loss"] < self._loss:
            self._loss, self._step = metrics["eval_loss"], state.global_step
            self._weights = self._copied() if dist.is_main() and self._step < state.max_steps else {}

    def write(self, checkpoint: Path) -> None:
        """Add them to a checkpoint of a later step."""
        if self._weights and self._step < checkpoints.step(checkpoint):
            save_file(self._weights, checkpoint / BEST)

    def restore(self, steps: int) -> None:
        """Give every rank's model the best weights; every rank must call it after the last of the steps."""
        if not self._step or self._step == steps:
            return
        with torch.no_grad():
            for name, weight in self._trained.items():
                if dist.is_main():
                    weight.copy_(self._weights[name])
                if dist.world_size() > 1:
                    td.broadcast(weight.data, 0)

    def _copied(self) -> dict[str, torch.Tensor]:
        return {name: weight.detach().to("cpu", copy=True).contiguous() for name, weight in self._trained.items()}


class RoundingGuard(TrainerCallback):
    """Refuses, before the first step, an update that saving the weights as bfloat16 would mostly undo."""

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Raise UserError on every rank alike."""
        if lost := rounding.lost(args.learning_rate, state.max_steps):
            raise UserError(lost)


class Beside:
    """Writes the shards of a checkpoint from threads: the training waits for their copy in the pod's memory alone."""

    def __init__(self) -> None:
        """Nothing is being written."""
        self._shards, self._groups = list[Future[Any]](), list[Any]()
        self._last: Future[None] | None = None

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Replace the `save` of torch.distributed.checkpoint, which accelerate 1.15 calls, by its `async_save`.

        Each of its calls (weights, optimizer) has a group of its own: collectives of two threads in one group could meet each other.
        """
        save, self._shards = dcp.save, []

        def start(**named: Any) -> None:
            if len(self._groups) == len(self._shards):
                self._groups.append(td.new_group(backend="gloo"))
            group, stager = self._groups[len(self._shards)], DefaultStager(StagingOptions(False, False, False, False))
            written: Any = dcp.async_save(**named, process_group=group, async_stager=stager)
            written.add_done_callback(lambda _: stager.close())
            self._shards.append(written)

        vars(dcp)["save"] = start
        try:
            yield
        finally:
            vars(dcp)["save"] = save

    def then(self, finish: Callable[[], None]) -> None:
        """Call `finish` when every rank has written, now if that is so."""
        shards, self._shards = self._shards, []

        def end() -> None:
            for each in shards:
                each.result()  # rank 0's is done after every other rank's
            finish()

        if not shards:
            finish()
            return
        pool = ThreadPoolExecutor(1)
        self._last = pool.submit(end)
        pool.shutdown(wait=False)

    def wait(self) -> None:
        """Wait until the last checkpoint is complete; raise what writing it raised."""
        last, self._last = self._last, None
        if last is not None:
            last.result()


class StepReporter(TrainerCallback):
    """Turns steps into lines and numbers: `step 12/120 loss 3.1 900 tokens/s (31% MFU) eta 85 s`, MFU on GPUs alone.

    The numbers are also in each step's entry of the history, and so in TensorBoard and the trackers, with the use of the GPU and its seconds
    without validation and saving. Tokens are those of all ranks, since the first step of this process: TRL's count, else `step_tokens` a step.
    """

    def __init__(self, progress: Progress, step_tokens: int = 0) -> None:
        self._progress, self._eta, self._step_tokens = progress, Eta(), step_tokens
        self._first, self._began = 0, time.monotonic()
        self._step_began = self._began
        self._train: dict[str, float] = {}
        self._validation: dict[str, float] = {}
        self.mfu: float | None = None

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Start the clock; a resumed run starts at its step."""
        self._eta, self._first, self._began = Eta(state.global_step), state.global_step, time.monotonic()
        self._progress.gpu_use()
        self._progress.say(f"training from step {state.global_step} to {state.max_steps}")

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Start the clock of the step."""
        self._step_began = time.monotonic()

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
                self.mfu = self._train["mfu"] = self._train["tokens_per_second"] / self._progress.peak_tokens
            measured: dict[str, float] = {
                key: self._train[key] for key in ("tokens_per_second", "mfu") if key in self._train
            }
            # the loss was read: a GPU has ended the step
            measured["step_seconds"] = time.monotonic() - self._step_began
            measured |= self._progress.gpu_use()
            for entry in (logs, *state.log_history[-1:]):
                entry.update(measured)
        if "eval_loss" in logs:
            self._validation = {"loss": float(logs["eval_loss"])}
            self._progress.say(f"step {state.global_step}/{state.max_steps} validation loss {logs['eval_loss']:.3f}")
        self._progress.log(state.global_step, logs)
