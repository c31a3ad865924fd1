"""The plan as human-readable text and as a JSON-ready mapping; used by plan_command."""

from dataclasses import asdict
from typing import Any

from trainlab.plan.checks import served_rank
from trainlab.plan.device_memory import PARTS
from trainlab.plan.estimate import Plan
from trainlab.plan.findings import Finding
from trainlab.plan.server import Server
from trainlab.plan.units import claim, count, gib, seconds, size

WIDTH = 22


def as_text(plan: Plan, findings: list[Finding], device_from: str) -> str:
    """Return the readable table and the findings below it."""
    lines = [f"{plan.job.name}: {plan.job.model}"]
    lines += [f"  {name:<{WIDTH}}{value}" for name, value in _rows(plan, device_from)]
    return "\n".join([*lines, *(finding.line for finding in findings), verdict(findings)])


def verdict(findings: list[Finding]) -> str:
    """Return the last line of a plan."""
    refused = sum(finding.level == "refuse" for finding in findings)
    return f"{'refused' if refused else 'fine'}: {refused} refusals, {len(findings) - refused} warnings"


def as_mapping(plan: Plan, findings: list[Finding], device_from: str) -> dict[str, Any]:
    """Return the same as plain data: bytes, seconds, FLOP/s; `ok` is false with a refusal."""
    data = asdict(plan)
    if plan.memory:
        data["memory"] |= {"training": plan.memory.training, "total": plan.memory.total}
    data["device"] |= {"usable_gib": plan.device.usable_gib, "from": device_from}
    data["job"] |= {"world": plan.job.world, "effective_batch": plan.job.effective_batch}
    return {
        "ok": not any(finding.level == "refuse" for finding in findings),
        "verdict": verdict(findings),
        "findings": [_mapping(finding) for finding in findings],
        **data,
    }


def not_planned(findings: list[Finding]) -> dict[str, Any]:
    """Return what replaces the plan for a GPU that is not in the table: the findings that do not depend on it."""
    refused = any(finding.level == "refuse" for finding in findings)
    return {"ok": not refused, "verdict": "not planned", "findings": [_mapping(finding) for finding in findings]}


def _mapping(finding: Finding) -> dict[str, Any]:
    return {**asdict(finding), "key": finding.key, "line": finding.line}


def _rows(plan: Plan, device_from: str) -> list[tuple[str, str]]:
    job, device = plan.job, plan.device
    rows = [
        ("devices", f"{job.nodes} nodes x {job.devices_per_node} = {job.world} ranks; {device.name} ({device_from})")
    ]
    if plan.parameters is not None and plan.trainable is not None:
        share = 100 * plan.trainable / plan.parameters
        rows.append(("parameters", f"{count(plan.parameters)}, trained {count(plan.trainable)} ({share:.2f} %)"))
    if plan.memory is not None:
        used = plan.memory.total / 2**30
        rows.append(
            (
                "memory per device",
                f"{used:.2f} of {device.usable_gib:.2f} GiB usable ({100 * used / device.usable_gib:.0f} %)",
            )
        )
        held = {part: getattr(plan.memory, part) for part in PARTS}
        rows.append(("", ", ".join(f"{part} {gib(value)}" for part, value in held.items() if value)))
        if plan.memory.sharding:
            what = "weights in float32, twice with the reference" if job.reference else "weights in float32"
            rows.append(
                (
                    "before it is sharded",
                    f"{gib(plan.memory.sharding)}, in training {gib(plan.memory.training)}: {what}",
                )
            )
    batch = f"{job.batch} x {job.accumulation} x {job.world} = {job.effective_batch} rows per step"
    rows.append(("effective batch", batch))
    when = plan.schedule
    if when is not None:
        rows.append((f"{job.unit}s", f"{count(when.tokens)} total, {count(when.tokens_per_step)} per step"))
        rows.append(
            (
                "steps",
                f"{when.steps} ({when.steps_per_epoch} per epoch), warm-up {when.warmup}, evaluation and "
                f"checkpoint every {when.checkpoint_every}",
            )
        )
    if plan.cost is not None:
        cost = plan.cost
        rate = "on the requested cores" if device.is_cpu else f"at {100 * cost.mfu:.0f} % MFU"
        rows.append(
            (
                "work",
                f"{cost.flop:.2e} FLOP, {cost.flop_per_token / 1e9:.2f} GFLOP per {job.unit}",
            )
        )
        rows.append(("time", f"{seconds(cost.seconds)} {rate}, without start-up and scoring"))
        if job.world > 1:
            sent = f"{size(cost.bytes_per_step)} sent by each rank per step"
            if job.nodes > 1:
                sent += f", {seconds(cost.network_seconds)} at {plan.network * 8 / 1e9:g} Gbit/s"
            rows.append(("gradients", f"{sent}; step computes {seconds(cost.compute_seconds)}"))
            rows.append(("speed-up", f"{cost.speed_up:.2f} of {job.world} before overlap"))
    rooms = {volume.name: volume.bytes for volume in job.volumes}
    for need in plan.volumes:
        room = rooms.get(need.name)
        of = f"{claim(room)} ({size(room)})" if room is not None else "an existing claim"
        rows.append((f"{need.name} volume", f"{size(need.bytes)} of {of}: {', '.join(need.parts) or 'nothing'}"))
    if plan.server is not None:
        rows.append(("server", _server(plan.server, job.serve_tokens)))
    if job.trainable == "lora":
        rows.append(("serving", f"vLLM --max-lora-rank {served_rank(job.lora_rank)}"))
    return rows


def _server(need: Server, tokens: int) -> str:
    """Return what the inference server needs and has."""
    where = f"on each of {need.gpus} GPUs" if need.gpus > 1 else "on its GPU" if need.gpus else "in its pod"
    text = f"{gib(need.total)} of {gib(need.room)} {where}: weights {gib(need.weights)}, "
    if need.runtime == "trainlab":
        text += f"requests of {tokens:,} tokens answered at once {gib(need.cache)}"
        return text + (f", adapters of other runs {gib(need.others)}" if need.others else "")
    text += f"a request of {tokens:,} tokens {gib(need.cache)}"
    return text + (f", {need.requests:,} of them fit" if need.gpus else "")
