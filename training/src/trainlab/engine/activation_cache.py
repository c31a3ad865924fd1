"""The frozen layers, run once per row: their outputs replace them in every epoch; used by sft.

Exact, because nothing below the first trained layer changes and they have no dropout in evaluation mode. Each rank runs
the frozen layers over its share of the rows, then all ranks hold all outputs (rows x tokens x hidden size x bytes per
number).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from transformers import PreTrainedModel

from trainlab.engine import dist
from trainlab.errors import UserError
from trainlab.models.layers import decoder_layers

Say = Callable[[str], None]


class _Reached(Exception):
    """Carries the input of the first trained layer out of a forward pass that can stop there."""


class ActivationCache:
    """Outputs of the frozen layers, keyed by the tokens of a row.

    Raises UserError for a model whose last layers take keys and values from layers below, which the cache does not run.
    """

    def __init__(self, model: PreTrainedModel, trained_layers: int, pad: int) -> None:
        if getattr(model.config.get_text_config(), "num_kv_shared_layers", 0):
            raise UserError(
                "phase.train.cache_frozen_activations is true: the last layers of this model, a "
                f"{type(model).__name__} with num_kv_shared_layers, take keys and values from layers below; set false"
            )
        self._model, self._pad = model, pad
        self._states: torch.Tensor | None = None
        layers = decoder_layers(model)
        self._first = layers[len(layers) - trained_layers]
        self._known: dict[bytes, torch.Tensor] = {}
        for layer in list(layers)[: len(layers) - trained_layers]:
            layer.forward = self._passing(layer.forward)
        self._first.register_forward_pre_hook(self._enter, with_kwargs=True)

    def fill(self, rows: Iterable[list[int]], batch: int, autocast: Any, say: Say) -> None:
        """Run the frozen layers over `rows` (token ids), `batch` at once, this rank's share; then exchange outputs."""
        # By length, to keep padding low; the longest first, so that running out of memory shows at once.
        unique = sorted({tuple(row) for row in rows}, key=len, reverse=True)
        own = unique[dist.rank() :: dist.world_size()]
        outputs: dict[bytes, torch.Tensor] = {}
        training = self._model.training
        self._model.eval()
        for start in range(0, len(own), batch):
            part = own[start : start + batch]
            length = len(part[0])
            ids = torch.tensor([[*row, *[self._pad] * (length - len(row))] for row in part])
            mask = torch.tensor([[1] * len(row) + [0] * (length - len(row)) for row in part])
            with autocast():
                hidden = self._run(ids, mask)
            for row, states in zip(part, hidden, strict=True):
                outputs[_key(torch.tensor(row))] = states[: len(row)].cpu().clone()
            say(f"frozen layers: {min(start + batch, len(own))} of {len(own)} rows of this rank")
        self._model.train(training)
        for share in dist.gather(outputs):
            self._known.update(share)

    @contextmanager
    def replacing(self, inputs: Mapping[str, Any]) -> Iterator[None]:
        """Let the model take the frozen layers' outputs of a batch (`input_ids`, `attention_mask`), which it does not run.

        They enter at the first trained layer, not as `inputs_embeds`: what a model does to its embeddings (Granite
        multiplies them) is in them already. Padding is zero, and nothing attends to it.
        """
        ids, mask = inputs["input_ids"], inputs["attention_mask"]
        rows = [self._known[_key(row[keep.bool()].cpu())] for row, keep in zip(ids, mask, strict=True)]
        states = torch.zeros((*mask.shape, rows[0].shape[-1]), dtype=rows[0].dtype)
        for place, row in zip(states, rows, strict=True):
            place[: len(row)] = row
        self._states = states.to(mask.device)
        try:
            yield
        finally:
            self._states = None

    @torch.no_grad()
    def _run(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the input of the first trained layer, [rows, tokens, hidden]."""

        def stop(__: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            raise _Reached(args[0] if args else kwargs["hidden_states"])

        hook = self._first.register_forward_pre_hook(stop, with_kwargs=True)
        device = self._model.device
        try:
            self._model.base_model(input_ids=ids.to(device), attention_mask=mask.to(device), use_cache=False)
        except _Reached as reached:
            hidden: torch.Tensor = reached.args[0]
            return hidden
        finally:
            hook.remove()
        raise RuntimeError("the first trained layer was not reached")

    def _passing(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        def either(hidden_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            return hidden_states if self._states is not None else forward(hidden_states, *args, **kwargs)

        return either

    def _enter(self, __: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Give the first trained layer the cached states, where there are any, as its input."""
        if self._states is None:
            return args, kwargs
        return ((self._states, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": self._states})


def _key(ids: torch.Tensor) -> bytes:
    return ids.to(torch.int64).numpy().tobytes()
