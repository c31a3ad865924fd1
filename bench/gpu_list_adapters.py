"""Adapters of many owners, trained together: seconds and memory by number of owners, and three of them against training alone.

A part of gpu_list.py. A and B of all owners are stacked, (owners, in, rank) and (owners, rank, out), and a batch holds the rows of some owners,
each multiplied by its own (batched products). The frozen layers below run once per row. The sum over owners is the loss, so that
each owner's gradients, and so its updates, are those of training alone. Random weights and tokens: seconds and memory do not depend on them.
"""

import math
import time
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from trainlab.models.architectures import TABLE

RANK, ALPHA, RATE = 16, 32, 4e-3
MATRICES = ("q_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Sizes:
    """Owners by run, rows of each, tokens of a row and of its answer, adapted layers, passes, rows of a batch."""

    owners: tuple[int, ...]
    rows: int
    length: int
    answer: int
    layers: int
    passes: int
    batch: int


FULL = Sizes((40, 200, 1000), rows=12, length=64, answer=24, layers=8, passes=3, batch=400)
TINY = Sizes((4, 6), rows=4, length=16, answer=6, layers=2, passes=2, batch=6)


class Stacked(nn.Module):
    """A frozen matrix and the adapters of all owners beside it; `first` and `count` say whose rows are passed."""

    def __init__(self, linear: nn.Linear, owners: int) -> None:
        super().__init__()
        self.linear, self.first, self.count = linear, 0, owners
        place: Any = {"device": linear.weight.device}
        self.a = nn.Parameter(torch.empty(owners, linear.in_features, RANK, **place))
        self.b = nn.Parameter(torch.zeros(owners, RANK, linear.out_features, **place))

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        """(owners x rows, length, in) to (owners x rows, length, out); the rows of an owner lie together."""
        mine = slice(self.first, self.first + self.count)
        grouped = given.reshape(self.count, -1, given.shape[-1])
        added = torch.bmm(torch.bmm(grouped, self.a[mine]), self.b[mine]) * (ALPHA / RANK)
        return self.linear(given) + added.reshape(*given.shape[:-1], -1)


def model_of(sizes: Sizes, smoke: bool, device: str) -> Any:
    """Return SmolLM2-135M's architecture with random weights, float32, frozen."""
    from transformers import AutoModelForCausalLM, LlamaConfig

    arch = TABLE["SmolLM2-135M"]
    if smoke:
        arch = replace(arch, hidden=32, heads=4, kv_heads=2, intermediate=64, vocab=256, layers=4)
    torch.manual_seed(0)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(LlamaConfig(**arch.config), dtype=torch.float32)
    return model.eval().requires_grad_(False)


def trunk(model: Any, rows: torch.Tensor, layers: int, batch: int) -> torch.Tensor:
    """Return the outputs of the frozen layers below the last `layers` for rows (n, length): (n, length, width)."""

    class Reached(Exception):
        pass

    caught: list[torch.Tensor] = []

    def stop(_module: Any, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        caught.append(given[0] if given else named["hidden_states"])
        raise Reached

    handle = model.model.layers[-layers].register_forward_pre_hook(stop, with_kwargs=True)
    for part in rows.split(batch):
        try:
            with torch.no_grad():
                model.model(input_ids=part, use_cache=False)
        except Reached:
            continue
    handle.remove()
    return torch.cat(caught)


def adapt(model: Any, owners: list[int], layers: int) -> list[Stacked]:
    """Put stacked adapters beside the matrices of the last layers; the A of an owner depends on its number alone."""
    made: list[Stacked] = []
    for layer in model.model.layers[-layers:]:
        for name in MATRICES:
            block = layer.self_attn if name[0] in "qvo" and hasattr(layer.self_attn, name) else layer.mlp
            made.append(Stacked(getattr(block, name), len(owners)))
            setattr(block, name, made[-1])
    for place, owner in enumerate(owners):
        generator = torch.Generator(made[0].a.device).manual_seed(1000 + owner)
        for module in made:
            module.a.data[place].normal_(0, 1 / math.sqrt(module.linear.in_features), generator=generator)
    return made


def restore(model: Any, layers: int) -> None:
    """Take the adapters away again."""
    for layer in model.model.layers[-layers:]:
        for block in (layer.self_attn, layer.mlp):
            for name, module in list(block.named_children()):
                if isinstance(module, Stacked):
                    setattr(block, name, module.linear)


def train(model: Any, owners: list[int], sizes: Sizes, device: str) -> dict[str, Any]:
    """Train the adapters of these owners; return seconds, losses by owner and step (steps, owners), and the stacked parameters."""
    inner = model.model
    vocab, all_layers = model.config.vocab_size, inner.layers
    rows = torch.stack(
        [
            torch.randint(vocab, (sizes.rows, sizes.length), generator=torch.Generator("cpu").manual_seed(owner))
            for owner in owners
        ]
    ).to(device)  # (owners, rows, length)
    began = time.monotonic()
    below = trunk(model, rows.flatten(0, 1), sizes.layers, sizes.batch).unflatten(0, rows.shape[:2])
    caching = clock(device) - began
    made = adapt(model, owners, sizes.layers)
    inner.layers = all_layers[-sizes.layers :]
    parameters = [one for module in made for one in (module.a, module.b)]
    optimizer = torch.optim.AdamW(parameters, lr=RATE, weight_decay=0.0, fused=device == "cuda")
    steps = sizes.passes * sizes.rows // 2  # two rows an owner a step
    losses, times = [], []
    for step in range(steps):
        began = clock(device)
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1.0, (step + 1) / max(1, steps // 10)) * (1 - step / steps)
        optimizer.zero_grad()
        chosen = [2 * step % sizes.rows, (2 * step + 1) % sizes.rows]
        each: list[torch.Tensor] = []
        share = max(1, sizes.batch // 2)  # owners of a batch
        for first in range(0, len(owners), share):
            count = min(share, len(owners) - first)
            for module in made:
                module.first, module.count = first, count
            ids = rows[first : first + count, chosen].flatten(0, 1)
            hidden = inner(inputs_embeds=below[first : first + count, chosen].flatten(0, 1), use_cache=False)
            logits = model.lm_head(hidden.last_hidden_state[:, -sizes.answer - 1 : -1])
            loss = functional.cross_entropy(logits.flatten(0, 1), ids[:, -sizes.answer :].flatten(), reduction="none")
            each.append(loss.view(count, -1).mean(dim=1))
            each[-1].sum().backward()
        optimizer.step()
        losses.append(torch.cat(each).detach().cpu())
        times.append(clock(device) - began)
    inner.layers = all_layers
    restore(model, sizes.layers)
    return {"caching": caching, "times": times, "losses": torch.stack(losses), "parameters": parameters}


def clock(device: str) -> float:
    """Return the time once the GPU has done its work."""
    if device == "cuda":
        torch.cuda.synchronize()
    return time.monotonic()


def run(smoke: bool, say: Any) -> bool:
    """Say seconds and memory for each number of owners; return whether three owners came out as those trained alone."""
    sizes, device = (TINY, "cpu") if smoke else (FULL, "cuda")
    torch.backends.cuda.matmul.allow_tf32 = False
    model = model_of(sizes, smoke, device)
    few, good = sizes.owners[0], True
    tried = [0, few // 2, few - 1]
    train(model, [0], replace(sizes, passes=1), device)  # loads the kernels
    alone = {}
    for owner in tried:
        began = clock(device)
        alone[owner] = train(model, [owner], sizes, device)
        seconds = clock(device) - began
    say(what="one owner alone", seconds=round(seconds, 2), steps=len(alone[0]["times"]))
    for count in sizes.owners:
        if device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        began = clock(device)
        found = train(model, list(range(count)), sizes, device)
        taken = clock(device) - began
        if count == few:
            apart = {owner: compared(found, alone[owner], owner) for owner in tried}
            good = all(one["losses"] <= TOLERANCE for one in apart.values())
            say(what="against training alone", largest_difference=apart, tolerance=TOLERANCE, equal=good)
            alone.clear()
        tokens = count * 2 * len(found["times"]) * sizes.length
        say(
            what="trained together",
            owners=count,
            seconds=round(taken, 2),
            frozen_layers_seconds=round(found["caching"], 2),
            step_seconds=round(sorted(found["times"])[len(found["times"]) // 2], 4),
            steps=len(found["times"]),
            tokens=tokens,
            tokens_per_second=round(tokens / sum(found["times"])),
            parameters=sum(one.numel() for one in found["parameters"]),
            allocated_gib=round(torch.cuda.max_memory_allocated() / 2**30, 2) if device == "cuda" else None,
            losses=[round(float(found["losses"][step].mean()), 4) for step in (0, -1)],
        )
        del found
    return good


def compared(together: dict[str, Any], alone: dict[str, Any], owner: int) -> dict[str, float]:
    """Return how far an owner's losses (largest difference, nats) and adapters (relative norm) are apart."""
    losses = (together["losses"][:, owner] - alone["losses"][:, 0]).abs().max()
    pairs = list(zip(together["parameters"], alone["parameters"], strict=True))
    apart = sum(float((pair[owner] - other[0]).detach().norm() ** 2) for pair, other in pairs)
    size = sum(float(other.detach().norm() ** 2) for _, other in pairs)
    return {"losses": float(losses), "adapters": (apart / size) ** 0.5}
