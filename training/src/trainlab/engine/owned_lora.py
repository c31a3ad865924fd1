"""LoRA adapters of many owners on one frozen model, trained in one batch: each row goes through its owner's A and B.

Used by recipes/adapters.py. Owners share nothing but the frozen weights: losses, clipping and AdamW are an owner's own, so that an
adapter becomes what it would become alone. The stacked products are those of Punica (Chen et al., arXiv 2310.18547) and mLoRA
(Ye et al., arXiv 2312.02515).
"""

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from trainlab.config.phases import AdaptersPhase
from trainlab.models import layers

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class OwnedLinear(torch.nn.Module):
    """A frozen linear layer with one low-rank update an owner: A [owners, in, rank], B [owners, rank, out]."""

    def __init__(self, linear: torch.nn.Linear, owners: Sequence[str], rank: int, scale: float, seed: str) -> None:
        super().__init__()
        self.linear, self.scale = linear, scale
        self.of_rows: tuple[torch.Tensor, torch.Tensor] | None = None
        bound = 1 / math.sqrt(linear.in_features)  # PEFT's: kaiming_uniform with a = sqrt(5)
        drawn = torch.empty(len(owners), linear.in_features, rank)
        for place, owner in zip(drawn, owners, strict=True):
            place.uniform_(-bound, bound, generator=_generator(f"{seed} {owner}"))
        device = linear.weight.device
        self.A = torch.nn.Parameter(drawn.to(device))
        self.B = torch.nn.Parameter(torch.zeros(len(owners), rank, linear.out_features, device=device))

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Return the layer's output; states: [rows, tokens, in]."""
        output: torch.Tensor = self.linear(states)
        if self.of_rows is None:
            return output
        into, out = self.of_rows
        return torch.baddbmm(output, torch.bmm(states, into), out, alpha=self.scale)


class OwnedLora:
    """The adapters of `owners` (names, in the order of their numbers) on `model`, whose linear layers it replaces in place."""

    def __init__(self, model: "PreTrainedModel", phase: AdaptersPhase, owners: Sequence[str]) -> None:
        """Raise UserError for a target or a layer that the model lacks."""
        self.owners, self.config = tuple(owners), layers.lora_config(model, phase)
        model.requires_grad_(False)
        scale = self.config.lora_alpha / self.config.r
        self._parts: dict[str, OwnedLinear] = {}
        for name in layers.lora_targets(model, self.config):
            parent: Any = model.get_submodule(name.rpartition(".")[0])
            part = OwnedLinear(
                parent.get_submodule(name.rpartition(".")[2]), owners, self.config.r, scale, f"{phase.seed} {name}"
            )
            setattr(parent, name.rpartition(".")[2], part)
            self._parts[name] = part

    @contextmanager
    def rows(self, owners: Sequence[int] | None) -> Iterator[None]:
        """Let the rows of the batches within go through the adapters of these owners, by number; None: the base alone.

        Each row's weights are gathered here, once for all tokens that are generated.
        """
        if owners is not None:
            parts = list(self._parts.values())
            numbers = torch.tensor(owners, device=parts[0].A.device)
            for part in parts:
                into, out = (weight[numbers].to(part.linear.weight.dtype) for weight in (part.A, part.B))
                part.of_rows = into, out
        try:
            yield
        finally:
            for part in self._parts.values():
                part.of_rows = None

    def parameters(self) -> list[torch.nn.Parameter]:
        """Return all weights that train, each [owners, ...]."""
        return [weight for part in self._parts.values() for weight in (part.A, part.B)]

    @torch.no_grad()
    def clip(self, max_norm: float) -> None:
        """Clip the gradient of each owner to `max_norm`, as torch.nn.utils.clip_grad_norm_ does for one model."""
        gradients = [weight.grad for weight in self.parameters() if weight.grad is not None]
        if not gradients:
            return  # a rank without rows of its own: more ranks than owners
        norms = torch.stack([gradient.flatten(1).norm(dim=1) for gradient in gradients]).norm(dim=0)
        factors = (max_norm / (norms + 1e-6)).clamp(max=1.0)
        for gradient in gradients:
            gradient.mul_(factors.view(-1, *[1] * (gradient.dim() - 1)))

    def adapter(self, owner: str) -> dict[str, torch.Tensor]:
        """Return an owner's adapter with PEFT's names and shapes: lora_A [rank, in], lora_B [out, rank]."""
        return {
            f"base_model.model.{name}.lora_{letter}.weight": weight[self.owners.index(owner)].detach().T
            for name, part in self._parts.items()
            for letter, weight in (("A", part.A), ("B", part.B))
        }

    @torch.no_grad()
    def load(self, owner: str, adapter: Mapping[str, torch.Tensor]) -> None:
        """Take an owner's adapter, as `adapter` returned it."""
        for name, part in self._parts.items():
            for letter, weight in (("A", part.A), ("B", part.B)):
                weight[self.owners.index(owner)].copy_(adapter[f"base_model.model.{name}.lora_{letter}.weight"].T)


def _generator(seed: str) -> torch.Generator:
    digest = hashlib.sha256(seed.encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7]))
