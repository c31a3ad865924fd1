"""The loss over the answers' positions only; used by trainer.py on CPU, its head by scoring, too.

TRL 1.16 scores every position there, prompts and padding included (add_fused_lm_head compacts on Triton devices only), runs
the head again in the backward pass, and computes an entropy that nothing of ours reads. bench/answer_positions.py measures it.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.functional import cross_entropy

IGNORED = -100


def answer_loss(
    model: Any, head: torch.nn.Module, inputs: Mapping[str, Any], answer_tokens: torch.Tensor | int | None
) -> torch.Tensor:
    """Return the summed loss of a batch's answers over `answer_tokens` (None: the batch's own), as TRL's `nll`.

    inputs: as the collator makes them, with labels [rows, tokens] that are -100 outside of answers. `head` is the output
    embedding of `model`, which may be wrapped (DDP, PEFT).
    """
    rest = {name: value for name, value in inputs.items() if name != "labels"}
    labels = inputs["labels"][:, 1:]
    predicting = torch.zeros_like(inputs["labels"], dtype=torch.bool)
    predicting[:, :-1] = labels != IGNORED
    wanted = labels[predicting[:, :-1]]
    with only(head, predicting):
        logits = model(**rest, use_cache=False).logits
    total = cross_entropy(logits.float(), wanted, reduction="sum")
    return total / torch.as_tensor(len(wanted) if answer_tokens is None else answer_tokens).clamp(min=1)


@contextmanager
def only(head: torch.nn.Module, positions: torch.Tensor) -> Iterator[None]:
    """Let the head see `positions` ([rows, tokens]) only: the model's logits become [positions, vocabulary]."""
    hook = head.register_forward_pre_hook(lambda _, args: (args[0][positions],))
    try:
        yield
    finally:
        hook.remove()
