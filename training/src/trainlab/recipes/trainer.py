"""TRL's SFTTrainer with our checkpoints: marked when whole, spread evenly, rotated after the marker; used by sft."""

from pathlib import Path
from typing import Any

from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from trl import SFTTrainer

from trainlab import checkpoints, dist
from trainlab.progress import Numbers, Progress
from trainlab.recipes.steps import Eta, planned
from trainlab.recipes.trunk import TrunkCache


class CheckedTrainer(SFTTrainer):
    """Writes `complete.json` last into each checkpoint, and says in a sentence when the volume is full."""

    keep = 1
    trunk: TrunkCache | None = None

    def compute_loss(self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """As TRL's; with a trunk cache the frozen layers are skipped."""
        if self.trunk is None:
            return super().compute_loss(model, inputs, *args, **kwargs)
        with self.trunk.skipped():
            return super().compute_loss(model, self.trunk.inputs(inputs), *args, **kwargs)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Save, mark, rotate. Not SFTTrainer's own method: that adds a model card made for the hub."""
        root = Path(str(self.args.output_dir))
        folder = root / f"checkpoint-{self.state.global_step}"
        try:
            Trainer._save_checkpoint(self, model, trial)
            dist.barrier()  # every rank has written its random state
            if self.args.should_save:
                checkpoints.mark(folder)
                checkpoints.rotate(root, self.keep, self.state.best_model_checkpoint)
        except Exception as error:  # OSError, SafetensorError or torch's RuntimeError, by the file that met the end
            full = checkpoints.explain_full(error, root, folder.name)
            if full is None:
                raise
            raise full from None


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


class Talk(TrainerCallback):
    """Turns steps into lines and numbers: `step 12/120 loss 3.1 eta 85 s`."""

    def __init__(self, progress: Progress) -> None:
        self._progress, self._eta = progress, Eta()
        self._train: dict[str, float] = {}
        self._validation: dict[str, float] = {}

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Start the clock; a resumed run starts at its step."""
        self._eta = Eta(state.global_step)
        self._progress.say(f"training from step {state.global_step} to {state.max_steps}")

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Set where this step stands."""
        step, total = state.global_step, state.max_steps
        left, epochs = self._eta.left(step, total), float(state.num_train_epochs)
        self._progress.at(Numbers(step, total, left, state.epoch, epochs, self._train, self._validation))

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs: Any = None, **_: Any
    ) -> None:
        """Keep the newest numbers for the next line; say a validation loss at once."""
        logs = logs or {}
        if "loss" in logs:
            self._train = {name: float(logs[name]) for name in ("loss", "learning_rate", "grad_norm") if name in logs}
        if "eval_loss" in logs:
            self._validation = {"loss": float(logs["eval_loss"])}
            self._progress.say(f"step {state.global_step}/{state.max_steps} validation loss {logs['eval_loss']:.3f}")
