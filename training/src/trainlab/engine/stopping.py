"""A training that is told to end by SIGTERM: all ranks keep a checkpoint of the same step, then end with the code STOPPED.

Kueue's preemption, a suspended job and a drained node end pods so. Used by the training loops of the recipes.
"""

import signal
from types import FrameType
from typing import Self

import torch
import torch.distributed as td
from torch.distributed.distributed_c10d import _get_default_store  # torch has no public name for it
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from trainlab.engine import checkpoints
from trainlab.errors import STOPPED, UserError

KEY = "trainlab/stop"


class Stopped(UserError):
    """The training was told to end, and its checkpoint is complete."""

    code = STOPPED

    def __init__(self, step: int) -> None:
        """`step` is that of the checkpoint."""
        super().__init__(f"told to end by SIGTERM: the checkpoint of step {step} is kept; {checkpoints.RESUMES}")


class Stop:
    """Holds SIGTERM back while it is entered, until the ranks are at the step on which they agree, or what they trained is saved."""

    def __init__(self) -> None:
        """SIGTERM does what it did before."""
        self._asked, self._at = False, 0

    def __enter__(self) -> Self:
        """Hold SIGTERM back."""
        self._before = signal.signal(signal.SIGTERM, self._ask)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """SIGTERM does again what it did; one that came too late for the last step does it now."""
        signal.signal(signal.SIGTERM, self._before)
        if self._asked and kind is None:
            signal.raise_signal(signal.SIGTERM)

    def due(self, step: int) -> bool:
        """Tell, at the end of each step and on every rank, whether this is the step of the last checkpoint.

        A rank that was told at step n asks for step n + 1: no rank ends that step before this one has begun it.
        """
        if not td.is_initialized() or td.get_world_size() == 1:
            return self._asked
        if torch.cuda.is_available():
            torch.cuda.current_stream().synchronize()  # the end of the step, not of its start by the host
        if not self._at:
            store = _get_default_store()
            if self._asked:
                self._at = int(store.compare_set(KEY, "", str(step + 1)))
            elif store.check([KEY]):
                self._at = int(store.get(KEY))
        return step == self._at

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self._asked = True


class StopCallback(TrainerCallback):
    """The same for Hugging Face's trainers; added after whatever else sets `should_save`."""

    def __init__(self, stop: Stop) -> None:
        """`stop` is entered while the trainer trains and saves."""
        self._stop, self._step = stop, 0

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        """Save when it is time to end; after the last step the result is saved at once, which is smaller than a checkpoint."""
        if self._stop.due(state.global_step) and state.global_step < state.max_steps:
            self._step, control.should_save = state.global_step, True

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        """End, now that the checkpoint is complete."""
        if self._step:
            raise Stopped(self._step)
