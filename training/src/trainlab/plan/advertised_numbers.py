"""Advertised numbers against computed ones: what a document or a slide says about a job, and whether it can be true.

`judge` takes a Plan and the numbers; `trainlab plan --advertised FILE` reads them from YAML. A figure that breaks arithmetic
or the GPU's peak is refused; one above everything published is a warning.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from trainlab.errors import UserError
from trainlab.plan import devices
from trainlab.plan.estimate import Plan, ring_bytes
from trainlab.plan.findings import Finding, refuse, warn
from trainlab.plan.units import count, gib, seconds, size

# A100 against H100, llm-foundry 7 B at 2,048 tokens on 8 GPUs: 4,641 and 10,643 tokens/s/GPU.
MEASURED_RATIO = {("A100-80GB", "H100-80GB"): 10643 / 4641}
FP8_GAIN = 1.28  # torchtitan Llama-3.1-8B on 8 x H100: 6,667 to 8,532 tokens/s, the highest published at this size
COMPILE_GAIN = 1.27  # torchtune Llama-3.2-3B on one A100, 7,075 to 8,998 tokens/s; torchtitan 8 B +15.7 %
PACKING_GAIN = (
    1.83  # measured: padding to the longest in a batch of 8 at a mean of 59 tokens; more only against pad-to-max
)


@dataclass(frozen=True)
class AdvertisedNumbers:
    """Numbers that somebody advertises; None = not stated. Times in seconds, memory in GB, gains as factors."""

    model: str | None = None  # hub id
    parameters: float | None = None  # "7B" is 7e9
    base_weights_gb: float | None = None
    memory_used_gb: float | None = None
    devices: int | None = None  # "fits on N"
    samples_per_second: float | None = None
    samples: float | None = None
    epochs: float = 1
    seconds_low: float | None = None
    seconds_high: float | None = None
    hours_by_gpu: Mapping[str, tuple[float, float]] | None = None
    hours_by_gpu_fp8: Mapping[str, tuple[float, float]] | None = None
    effective_batch: float | None = None
    learning_rate_factor: float | None = None  # relative to a run with ...
    reference_batch: float | None = None  # ... this effective batch
    memory_factor: float | None = None  # "N times the memory"
    speed_up: float | None = None
    survives_lost_worker: bool = False
    fp8_gain: float | None = None
    compile_gain: float | None = None
    packing_gain: float | None = None
    utilization_percent: float | None = None  # of nvidia-smi


def from_mapping(given: Mapping[str, Any], where: str) -> AdvertisedNumbers:
    """Return AdvertisedNumbers from a YAML mapping with the same keys. Raises UserError naming an unknown key."""
    known = {field.name for field in fields(AdvertisedNumbers)}
    for key in given:
        if key not in known:
            raise UserError(f"{where}: {key}: unknown key; known: {', '.join(sorted(known))}")
    values = dict(given)
    for key in ("hours_by_gpu", "hours_by_gpu_fp8"):
        if key in values:
            try:
                values[key] = {str(name): (float(low), float(high)) for name, (low, high) in values[key].items()}
            except (AttributeError, TypeError, ValueError):
                raise UserError(f"{where}: {key}: write it as GPU: [low, high], in hours") from None
    for key, value in values.items():
        plain = key not in ("model", "survives_lost_worker", "hours_by_gpu", "hours_by_gpu_fp8")
        if plain and (isinstance(value, bool) or not isinstance(value, (int, float))):
            raise UserError(f"{where}: {key} is {value!r}: must be a number")
    return AdvertisedNumbers(**values)


def judge(plan: Plan, advertised: AdvertisedNumbers) -> list[Finding]:
    """Return what is wrong with the numbers advertised for this plan, refusals first."""
    found = [finding for rule in RULES for finding in rule(plan, advertised)]
    return sorted(found, key=lambda finding: finding.level != "refuse")


def _throughput(plan: Plan, advertised: AdvertisedNumbers) -> Iterator[Finding]:
    rate = advertised.samples_per_second
    if rate and plan.cost and plan.job.tokens_per_row:
        peak = plan.device.bf16 * plan.job.world
        needed = rate * plan.job.tokens_per_row * plan.cost.flop_per_token
        share = needed / peak
        real = peak * plan.device.mfu_good / plan.job.tokens_per_row / plan.cost.flop_per_token
        text = (
            f"{rate:,.0f} samples/s of {plan.job.tokens_per_row:.0f} tokens are {needed / 1e15:.2f} PFLOP/s, {share:.1f} times "
            f"the dense BF16 peak of {plan.job.world} x {plan.device.name}; expect {real:,.0f} samples/s"
        )
        if share > 1:
            yield refuse("throughput-over-peak", text)
        elif share > plan.device.mfu_best:
            yield warn("throughput-unproven", text)
    if rate and advertised.samples and (advertised.seconds_low or advertised.seconds_high):
        low, high = advertised.seconds_low or 0.0, advertised.seconds_high or advertised.seconds_low or 0.0
        needs = advertised.samples * advertised.epochs / rate
        if not 0.9 * low <= needs <= 1.1 * high:
            yield refuse(
                "time-against-throughput",
                f"{advertised.samples:,.0f} samples x {advertised.epochs:g} epochs at {rate:,.0f} samples/s take {seconds(needs)}, "
                f"not {low:g}-{high:g} s",
            )


def _weights(plan: Plan, advertised: AdvertisedNumbers) -> Iterator[Finding]:
    arch = plan.job.arch
    if advertised.base_weights_gb and arch is not None:
        real = arch.parameters * 2 / 1e9
        if abs(advertised.base_weights_gb / real - 1) > 0.1:
            yield refuse(
                "base-weights",
                f"{advertised.base_weights_gb:g} GB for the base model: {arch.name} has {count(arch.parameters)} parameters, "
                f"{real:.1f} GB in 16 bits",
            )
    if advertised.parameters and arch is not None and abs(advertised.parameters / arch.parameters - 1) > 0.1:
        yield refuse(
            "parameter-name",
            f"called {count(advertised.parameters)}, this configuration has {count(arch.parameters)} parameters; name "
            "it accordingly",
        )
    if (
        advertised.model
        and advertised.model.startswith("google/gemma")
        and "-3-" not in advertised.model
        and "270m" in advertised.model
    ):
        yield refuse("model-id", f"{advertised.model}: no such model; the published id is google/gemma-3-270m")


def _memory(plan: Plan, advertised: AdvertisedNumbers) -> Iterator[Finding]:
    usable = plan.device.usable_gib * 2**30
    if advertised.memory_used_gb and advertised.memory_used_gb * 2**30 > usable:
        share = 100 * advertised.memory_used_gb / plan.device.reported_gib
        yield refuse(
            "memory-used",
            f"{advertised.memory_used_gb:g} of {plan.device.nominal_gib:g} GB: {plan.device.name} reports "
            f"{plan.device.reported_gib:.2f} GiB, so that is {share:.0f} % of it; plan for "
            f"{plan.device.usable_gib:.0f} GiB. Full memory is not speed",
        )
    if advertised.devices and plan.memory and not plan.job.sharded:
        fixed = plan.memory.weights + plan.memory.states
        if fixed > usable * advertised.devices:
            yield refuse(
                "optimizer-states",
                f"said to fit on {advertised.devices} x {plan.device.name}: weights, gradients and Adam alone are "
                f"{size(fixed)} ({gib(usable)} usable each); shard over at least {int(fixed // usable) + 1} or use 8 "
                "bytes per parameter",
            )
    if advertised.memory_factor and not plan.job.sharded and advertised.memory_factor > 1:
        right = plan.job.world
        sums = "" if advertised.memory_factor == right else f" {right} GPUs have {right} times the memory of one, and"
        yield refuse(
            "replicated-memory",
            f"{advertised.memory_factor:g} times the memory:{sums} data parallel training replicates the model, so each "
            f"copy still sees {plan.device.nominal_gib:g} GB",
        )


def _batch(plan: Plan, advertised: AdvertisedNumbers) -> Iterator[Finding]:
    job = plan.job
    if advertised.effective_batch and advertised.effective_batch != job.effective_batch:
        yield refuse(
            "effective-batch",
            f"effective batch {advertised.effective_batch:g}: {job.batch} x {job.accumulation} accumulated x {job.world} ranks "
            f"is {job.effective_batch}",
        )
    if advertised.learning_rate_factor and advertised.reference_batch:
        right = job.effective_batch / advertised.reference_batch
        if abs(advertised.learning_rate_factor / right - 1) > 0.2:
            yield refuse(
                "learning-rate",
                f"learning rate x {advertised.learning_rate_factor:g} for a larger batch: it went from {advertised.reference_batch:g} "
                f"to {job.effective_batch}, which is x {right:.2f}; keep the rate",
            )


def _scaling(plan: Plan, advertised: AdvertisedNumbers) -> Iterator[Finding]:
    cost, job = plan.cost, plan.job
    if advertised.speed_up and cost and advertised.speed_up > cost.speed_up * 1.1:
        yield refuse(
            "speed-up",
            f"{advertised.speed_up:g} times faster on {job.world} ranks: a step computes {seconds(cost.compute_seconds)} and "
            f"each rank sends {size(ring_bytes(job.world, (plan.trainable or 0) * job.gradient_bytes))} in "
            f"{seconds(cost.network_seconds)}, which gives {cost.speed_up:.2f} before overlap",
        )
    if advertised.survives_lost_worker:
        yield refuse(
            "lost-worker",
            "training does not continue without a lost rank: all ranks start again from the last complete checkpoint, as often "
            "as resources.restarts allows",
        )


def _hours(plan: Plan, advertised: AdvertisedNumbers) -> Iterator[Finding]:
    if plan.cost is None:
        return
    tables = (("bf16", advertised.hours_by_gpu), ("fp8", advertised.hours_by_gpu_fp8))
    for precision, hours in tables:
        for name, (low, high) in (hours or {}).items():
            device = devices.find(name)
            peak = device.fp8 if precision == "fp8" else device.bf16
            if peak == 0:
                yield refuse("hours-fp8", f"{low:g}-{high:g} h in FP8 on {device.name}: it has no FP8 tensor cores")
                continue
            shares = [100 * plan.cost.flop / (hour * 3600 * peak * plan.job.world) for hour in (high, low)]
            real = (
                plan.cost.flop / (device.bf16 * device.mfu_good * plan.job.world) / (1.25 if precision == "fp8" else 1)
            )
            text = (
                f"{low:g}-{high:g} h on {device.name} in {precision}: {plan.cost.flop:.2e} FLOP imply {shares[0]:.0f}-"
                f"{shares[1]:.0f} % of its peak; expect {seconds(real)}"
            )
            best = 30 if precision == "fp8" else 100 * device.mfu_best  # FP8: 25-30 % of peak is the best published
            if shares[0] > 100:
                yield refuse("hours-over-peak", text)
            elif shares[0] > 1.1 * best:
                yield warn("hours-unproven", text)
    stated = advertised.hours_by_gpu or {}
    for (slow, fast), right in MEASURED_RATIO.items():
        if slow in stated and fast in stated:
            ratio = sum(stated[slow]) / sum(stated[fast])
            if not 0.7 * right <= ratio <= 1.4 * right:
                yield refuse("gpu-ratio", f"{fast} {ratio:.2f} times {slow}: measured at 7 B it is {right:.2f}")


def _gains(plan: Plan, advertised: AdvertisedNumbers) -> Iterator[Finding]:
    if advertised.fp8_gain and advertised.fp8_gain > FP8_GAIN:
        yield warn(
            "fp8-gain", f"FP8 {advertised.fp8_gain:g} times faster: published at 7-8 B are 1.10 to {FP8_GAIN}; probe it"
        )
    if advertised.compile_gain and advertised.compile_gain > COMPILE_GAIN:
        yield warn(
            "compile-gain",
            f"torch.compile {advertised.compile_gain:g} times faster: published are 1.16 to {COMPILE_GAIN}",
        )
    if advertised.packing_gain and advertised.packing_gain > PACKING_GAIN:
        yield warn(
            "packing-gain",
            f"packing {advertised.packing_gain:g} times faster: only against padding to max_length; against padding to the "
            f"longest row of a batch 1.2 to {PACKING_GAIN}",
        )
    if advertised.utilization_percent:
        yield warn(
            "utilization",
            f"{advertised.utilization_percent:g} % utilization means that a kernel was running, not how fast; report "
            "MFU",
        )


RULES: tuple[Callable[[Plan, AdvertisedNumbers], Iterator[Finding]], ...] = (
    _throughput,
    _weights,
    _memory,
    _batch,
    _scaling,
    _hours,
    _gains,
)
