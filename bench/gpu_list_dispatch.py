"""What a step of the adapters' phases waits for on one GPU: micro-batches by shape, eager and compiled, and scoring by rows.

A part of gpu_list.py. Random weights of SmolLM3-3B and Phi-3-mini in their real shapes, adapters as in phases survival and lyrics.
Of each shape: median seconds of forward and backward, kernels launched, seconds in which the GPU was busy. Scoring is generation, in seconds
a token, adapters apart and merged.
"""

import statistics
import time
from dataclasses import dataclass, replace
from typing import Any

import torch
from trainlab.engine import acceleration
from trainlab.models.architectures import TABLE

ROUNDS = 5


@dataclass(frozen=True)
class Kind:
    """An architecture with its adapters; `shapes` are (rows, length, tokens of the answer)."""

    arch: str
    config: str
    rank: int
    layers: int | None
    dropout: float
    packed: bool
    shapes: tuple[tuple[int, int, int], ...]


KINDS = (
    Kind("SmolLM3-3B", "SmolLM3Config", 32, 15, 0.0, False, ((8, 160, 40), (16, 160, 40), (32, 160, 40))),
    Kind("Phi-3-mini", "Phi3Config", 128, None, 0.05, True, ((1, 1024, 400), (1, 4096, 1600))),
)


def build(kind: Kind, smoke: bool) -> Any:
    """Return the model with its adapters and the fused head, bfloat16."""
    import transformers
    from peft import LoraConfig, get_peft_model
    from trl.trainer.utils import add_fused_lm_head

    arch, layers = TABLE[kind.arch], kind.layers
    if smoke:
        arch = replace(arch, hidden=arch.heads * 8, head_dim=8, intermediate=64, vocab=512, layers=4)
        layers = layers and 2
    config = getattr(transformers, kind.config)(**arch.config, pad_token_id=0, bos_token_id=1, eos_token_id=2)
    torch.manual_seed(0)
    with torch.device("cpu" if smoke else "cuda"):
        model: Any = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    add_fused_lm_head(model, outputs=("log_probs", "entropy", "is_top1"))
    head = model.get_output_embeddings()
    linear = {
        name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear) and module is not head
    }
    return get_peft_model(
        model,
        LoraConfig(
            task_type="CAUSAL_LM",
            r=8 if smoke else kind.rank,
            lora_alpha=2 * kind.rank,
            lora_dropout=kind.dropout,
            target_modules=sorted({name.rsplit(".", 1)[-1] for name in linear}),
            layers_to_transform=list(range(arch.layers))[-layers:] if layers else None,
        ),
    )


def now(gpu: bool) -> float:
    """Return the time once the GPU has done its work."""
    if gpu:
        torch.cuda.synchronize()
    return time.monotonic()


def micro_batch(model: Any, kind: Kind, shape: tuple[int, int, int]) -> dict[str, Any]:
    """Return seconds, launches and busy seconds of forward and backward of one micro-batch."""
    from torch.profiler import ProfilerActivity, profile

    device = next(model.parameters()).device
    gpu, (rows, length, answer) = device.type == "cuda", shape
    ids = torch.randint(3, 500, (rows, length), device=device)
    labels = torch.full_like(ids, -100)
    labels[:, -answer:] = ids[:, -answer:]
    more = {"attention_mask": torch.ones_like(ids)}
    if kind.packed:
        more = {"position_ids": (torch.arange(length, device=device) % 87)[None]}

    def once() -> None:
        with torch.autocast(device.type, torch.bfloat16):
            loss = model(input_ids=ids, labels=labels, fused_lm_head=True, **more).loss
        loss.backward()

    if gpu:
        torch.cuda.reset_peak_memory_stats()
    began = now(gpu)
    once()
    first, times = now(gpu) - began, []
    for _ in range(2 + ROUNDS):
        began = now(gpu)
        once()
        times.append(now(gpu) - began)
    with profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if gpu else [])]) as seen:
        once()
        now(gpu)
    events = seen.key_averages()
    launches = sum(event.count for event in events if "LaunchKernel" in event.key)
    kernels = [event for event in events if event.device_type == torch.autograd.DeviceType.CUDA]
    busy = sum(event.self_device_time_total for event in kernels if not event.is_user_annotation) / 1e6
    seconds = statistics.median(times[2:])
    return {
        "rows": rows,
        "length": length,
        "seconds": round(seconds, 4),
        "launches": launches,
        "microseconds_per_launch": round(seconds / launches * 1e6, 1) if launches else None,
        "gpu_busy_seconds": round(busy, 4),
        "tokens_per_second": round(rows * length / seconds),
        "first_seconds": round(first, 2),
        "allocated_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2) if gpu else None,
    }


def scoring(model: Any, rows: int, prompt: int, new: int) -> float:
    """Return seconds a token of greedy generation, the prompt included."""
    device = next(model.parameters()).device
    ids = torch.randint(3, 500, (rows, prompt), device=device)
    for _ in range(2):
        began = now(device.type == "cuda")
        with torch.inference_mode():
            model.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=new,
                min_new_tokens=new,
                do_sample=False,
            )
        seconds = now(device.type == "cuda") - began
    return round(seconds / new, 4)


def run(smoke: bool, say: Any) -> bool:
    """Say every row, what decides most first; nothing here has to be equal."""
    (first, second), models = KINDS, {}
    for kind in KINDS:
        models[kind] = build(kind, smoke)
        micro_batches("eager", kind, models[kind], smoke, say)
    answers(first, models[first], smoke, say)
    for kind in KINDS:
        acceleration.compile_layers(models[kind], backend="aot_eager" if smoke else "inductor")
        micro_batches("compiled layers", kind, models[kind], smoke, say)
    answers(second, build(second, smoke), smoke, say)
    return True


def micro_batches(how: str, kind: Kind, model: Any, smoke: bool, say: Any) -> None:
    """Say each shape."""
    for shape in ((2, 32, 8),) if smoke else kind.shapes:
        say(what=f"micro-batch, {how}", model=kind.arch, **micro_batch(model.train(), kind, shape))


def answers(kind: Kind, model: Any, smoke: bool, say: Any) -> None:
    """Say the scoring by rows, adapters apart and merged; they stay as they were."""
    new, prompt = (3, 8) if smoke else (16, 120)
    model.eval()
    for rows in (2,) if smoke else (16, 80):
        seconds = scoring(model, rows, prompt, new)
        say(what="scoring, adapters apart", model=kind.arch, rows=rows, seconds_per_token=seconds)
    model.merge_adapter()
    say(
        what="scoring, adapters merged", model=kind.arch, rows=rows, seconds_per_token=scoring(model, rows, prompt, new)
    )
    model.unmerge_adapter()
