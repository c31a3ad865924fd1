"""Compiled layers meet batches of one shape: the phase's, or one for each length of its curriculum.

Each new shape is compiled anew, about 7 s on an H100 (docs/evidence/benchmarks.md, One GPU). So rows are padded to the phase's length (TRL's
`pad_to_multiple_of`), and what has another shape is not compiled: validation, and a last batch that lacks rows.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from transformers import Trainer

from trainlab.config import DpoPhase, LanguagePhase, SftPhase


def padded_length(phase: LanguagePhase) -> int | None:
    """Return the tokens that each sequence of a batch is padded to, None where nothing is compiled; packed rows are one sequence."""
    if not (phase.stage_block and phase.stage_block.compile):
        return None
    packed = isinstance(phase, SftPhase) and phase.train.packing
    return phase.model.max_length * (phase.train.batch_size if packed else 1)


def batch_tokens(phase: LanguagePhase) -> int | None:
    """Return the tokens of a whole batch of one rank, padding included, None where nothing is compiled."""
    if padded_length(phase) is None:
        return None
    return phase.train.batch_size * phase.model.max_length * (2 if isinstance(phase, DpoPhase) else 1)


def uncompiled(now: bool = True) -> AbstractContextManager[Any]:
    """Return a context in which compiled layers run as they were written; no compiler is asked unless `now`."""
    return torch.compiler.set_stance("force_eager") if now else nullcontext()


def real_tokens(inputs: Mapping[str, Any]) -> torch.Tensor:
    """Return how many tokens of a batch are no padding, a number.

    Packed rows have no `attention_mask`, but `position_ids` from 0 in each row, which has two tokens or more, and 0 for padding: so each row
    has one 1, and its 0 is counted by that.
    """
    if "attention_mask" in inputs:
        return torch.as_tensor(inputs["attention_mask"].sum())
    positions = inputs["position_ids"]
    return torch.as_tensor((positions > 0).sum() + (positions == 1).sum())


class CompiledTrainer(Trainer):
    """The Trainer whose compiled layers see batches of `full_batch` tokens alone; None where nothing is compiled."""

    full_batch: int | None = None

    def training_step(self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """As the Trainer's; a batch that lacks rows runs uncompiled, with its backward pass, which may compute layers again."""
        with uncompiled(self.full_batch not in (None, inputs["input_ids"].numel())):
            return super().training_step(model, inputs, *args, **kwargs)

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """As the Trainer's, uncompiled and so without padding to one length: without gradients each shape would be one more graph."""
        if self.full_batch is None:
            return super().evaluate(*args, **kwargs)
        collator: Any = self.data_collator
        length = getattr(collator, "pad_to_multiple_of", None)  # blocks need none, and their collator has none
        try:
            if length:
                collator.pad_to_multiple_of = None
            with uncompiled():
                return super().evaluate(*args, **kwargs)
        finally:
            if length:
                collator.pad_to_multiple_of = length
