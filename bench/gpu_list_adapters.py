"""Adapters of many owners by recipe adapters' own loop: seconds and memory by number of owners, and three of them against training alone.

A part of gpu_list.py. Random weights and tokens: seconds and memory do not depend on them.
"""

import gc
import random
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from trainlab.config import AdaptersPhase
from trainlab.config.loading import load_values
from trainlab.engine.owned_lora import OwnedLora
from trainlab.engine.owned_training import OwnedRow, OwnedTrainer
from trainlab.models.architectures import TABLE
from trainlab.progress import Progress

VALUES = Path(__file__).resolve().parents[1] / "values" / "room" / "adapters.yaml"
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Sizes:
    """Owners by run, rows of each in a pass, tokens of a row and of its answer, adapted layers, passes."""

    owners: tuple[int, ...]
    rows: int
    length: int
    answer: int
    layers: int
    passes: int


FULL = Sizes((40, 200, 1000), rows=16, length=64, answer=24, layers=8, passes=3)
TINY = Sizes((4, 6), rows=4, length=16, answer=6, layers=2, passes=6)


def model_of(sizes: Sizes, smoke: bool, device: str) -> Any:
    """Return SmolLM2-135M's architecture with random weights, float32."""
    from transformers import AutoModelForCausalLM, LlamaConfig

    arch = TABLE["SmolLM2-135M"]
    if smoke:
        arch = replace(arch, hidden=32, heads=4, kv_heads=2, intermediate=64, vocab=256, layers=4)
    torch.manual_seed(0)
    with torch.device(device):
        return AutoModelForCausalLM.from_config(LlamaConfig(**arch.config), dtype=torch.float32).eval()


def phase_of(sizes: Sizes) -> AdaptersPhase:
    """Return the room's phase with these sizes, in float32."""
    block = load_values([VALUES]).phase.model_dump(mode="json")
    block["model"]["dtype"] = "float32"
    block["lora"]["layers"] = sizes.layers
    block["train"] |= {"epochs": sizes.passes, "checkpoints": 1}
    return AdaptersPhase.model_validate(block)


def train(sizes: Sizes, smoke: bool, device: str, owners: Sequence[int]) -> dict[str, Any]:
    """Train the adapters of these owners; return seconds, tokens and the history."""
    model, phase, names = model_of(sizes, smoke, device), phase_of(sizes), [f"p{owner}" for owner in owners]
    rows: list[list[list[OwnedRow]]] = []
    for number, owner in enumerate(owners):
        chance = random.Random(owner)
        tokens = [tuple(chance.choices(range(3, model.config.vocab_size), k=sizes.length)) for _ in range(sizes.rows)]
        rows.append([[OwnedRow(number, ids, sizes.length - sizes.answer) for ids in tokens]] * sizes.passes)
    lora = OwnedLora(model, phase, names)
    trainer = OwnedTrainer(model, 0, phase, lora, rows)
    began = clock(device)
    trainer.prepare(Progress(False))
    prepared = clock(device)
    with tempfile.TemporaryDirectory() as folder:
        trainer.fit(Path(folder), names, Progress(False))
    ended = clock(device)
    return {
        "caching": prepared - began,
        "training": ended - prepared,
        "tokens": trainer.steps * phase.train.batch_size * len(owners) * sizes.length,
        "steps": trainer.steps,
        "history": trainer.history,
        "parameters": sum(weight.numel() for weight in lora.parameters()),
    }


def clock(device: str) -> float:
    """Return the time once the GPU has done its work."""
    if device == "cuda":
        torch.cuda.synchronize()
    return time.monotonic()


def run(smoke: bool, say: Any) -> bool:
    """Say seconds and memory for each number of owners; return whether three owners came out as those trained alone."""
    sizes, device = (TINY, "cpu") if smoke else (FULL, "cuda")
    torch.backends.cuda.matmul.allow_tf32 = False
    few, good = sizes.owners[0], True
    tried = [0, few // 2, few - 1]
    train(replace(sizes, passes=1), smoke, device, [0])  # loads the kernels
    alone = {owner: train(sizes, smoke, device, [owner]) for owner in tried}
    seconds = alone[0]["caching"] + alone[0]["training"]
    say(what="one owner alone", seconds=round(seconds, 2), steps=alone[0]["steps"])
    for count in sizes.owners:
        if device == "cuda":
            gc.collect()  # nothing of the training before counts
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        together = train(sizes, smoke, device, range(count))
        if count == few:
            apart = {owner: difference(together, alone[owner], f"p{owner}") for owner in tried}
            good = all(value <= TOLERANCE for value in apart.values())
            say(what="against training alone", largest_difference=apart, tolerance=TOLERANCE, equal=good)
        say(
            what="trained together",
            owners=count,
            seconds=round(together["caching"] + together["training"], 2),
            frozen_layers_seconds=round(together["caching"], 2),
            step_seconds=round(together["training"] / together["steps"], 4),
            steps=together["steps"],
            tokens=together["tokens"],
            tokens_per_second=round(together["tokens"] / together["training"]),
            parameters=together["parameters"],
            allocated_gib=round(torch.cuda.max_memory_allocated() / 2**30, 2) if device == "cuda" else None,
            losses=[round(together["history"][step]["loss"], 4) for step in (0, -1)],
        )
    return good


def difference(together: dict[str, Any], alone: dict[str, Any], name: str) -> float:
    """Return how far an owner's losses are apart, at most, in nats."""
    pairs = zip(together["history"], alone["history"], strict=True)
    return max(abs(first["owners"][name] - second["owners"][name]) for first, second in pairs)
