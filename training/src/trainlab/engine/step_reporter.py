"""What each step of Hugging Face's trainers says: a line, numbers for `trainlab watch`, an entry of the history."""

import time
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from trainlab.progress import Eta, Numbers, Progress


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
