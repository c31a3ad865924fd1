"""`trainlab plan`: values files in, table or JSON out; exit code 0 if fine or warnings only, 1 if refused.

The CLI calls `add_arguments` and `from_args`; errors in the input raise UserError (the CLI prints it and exits 2).
"""

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from trainlab.config import ChatPhase, ResnetPhase, Values
from trainlab.config.loading import load_values, read_mapping
from trainlab.errors import UserError
from trainlab.models import architectures
from trainlab.plan import source, volumes
from trainlab.plan.checks import Finding, check, check_volumes, refuse, served_rank, warn
from trainlab.plan.device_memory import PARTS, Server
from trainlab.plan.devices import Device, UnknownDevice, find
from trainlab.plan.estimate import COMPILE, Cost, Plan, estimate, estimate_images
from trainlab.plan.job import Job, parse_node
from trainlab.plan.units import DEFAULT_NETWORK, DEFAULT_STORAGE, claim, count, gib, seconds, size
from trainlab.plan.units import network as link_speed
from trainlab.plan.units import storage as storage_speed
from trainlab.plan.volumes import preparation

OPTIONS = ("gpu", "nodes", "network", "rows", "tokens_per_row", "model_config", "hub", "storage", "node")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `trainlab plan`; the CLI itself adds FILE and -f/--overlay."""
    parser.add_argument("--gpu", metavar="GPU", help="GPU to plan for, e.g. L40S, A100-80GB, H100-80GB")
    parser.add_argument(
        "--node", metavar="NODE", help="node that each pod must fit, e.g. 8cpu,32GB or 8cpu,32GB,1xL40S"
    )
    parser.add_argument("--nodes", type=int, metavar="N", help="pods instead of phase.resources.nodes")
    parser.add_argument(
        "--network", default=DEFAULT_NETWORK, metavar="RATE", help="link between nodes (default %(default)s)"
    )
    parser.add_argument(
        "--storage", default=DEFAULT_STORAGE, metavar="RATE", help="speed of the volumes (default %(default)s)"
    )
    parser.add_argument("--rows", type=int, metavar="N", help="training rows, if the data set is not here")
    parser.add_argument("--tokens-per-row", type=float, metavar="N", help="mean tokens per row including its prompt")
    parser.add_argument("--model-config", type=Path, metavar="FILE", help="config.json of a model not in the table")
    parser.add_argument(
        "--hub",
        action="store_true",
        help="ask the hub of an hf: model for its files, their bytes and its chat template",
    )
    parser.add_argument("--json", action="store_true", help="print numbers and findings as JSON")


def command(
    files: Path,
    overlays: Sequence[Path] = (),
    gpu: str | None = None,
    nodes: int | None = None,
    network: str = DEFAULT_NETWORK,
    as_json: bool = False,
    *,
    rows: int | None = None,
    tokens_per_row: float | None = None,
    model_config: Path | None = None,
    hub: bool = False,
    storage: str = DEFAULT_STORAGE,
    node: str | None = None,
) -> int:
    """Print the plan of a values file; return 0, or 1 if something cannot work. Raises UserError on wrong input.

    For a GPU of a node selector that the table lacks it prints what does not depend on it, the volumes: the values are not at
    fault.
    """
    for option, value in (("--nodes", nodes), ("--rows", rows), ("--tokens-per-row", tokens_per_row)):
        if value is not None and value < 1:
            raise UserError(f"{option} {value}: must be 1 or more")
    paths = [files, *overlays]
    values = load_values(paths, os.environ)
    job = source.job_of(values, paths)
    where = parse_node(node) if node else None
    gpu = gpu or (where.gpu if where and job.on_gpu else None) or None
    job = replace(
        job,
        node=where,
        nodes=nodes or job.nodes,
        rows=rows or job.rows,
        tokens_per_row=tokens_per_row or job.tokens_per_row,
    )
    if model_config:
        name, content = model_config.resolve().parent.name, read_mapping(model_config)
        job = replace(job, arch=architectures.from_config(name, content, str(model_config)))
    of_template: list[Finding] = []
    if hub:
        job, template = source.listed(job)
        of_template = _check_template(values, template)
    try:
        job, device, device_from = source.device_of(values, job, gpu)
    except UnknownDevice as error:
        if gpu:
            raise
        plan = _estimate(values, job, find(source.DEFAULT_GPU), network, storage)
        findings = [*check_volumes(plan), *of_template, warn("not-planned", str(error))]
        lines = "\n".join(finding.line for finding in findings)
        print(json.dumps(not_planned(findings), indent=2) if as_json else lines)
        return _code(findings)
    plan = _estimate(values, job, device, network, storage)
    findings = check(plan) + of_template
    if as_json:
        print(json.dumps(as_mapping(plan, findings, device_from), indent=2))
    else:
        print(as_text(plan, findings, device_from))
    return _code(findings)


def _estimate(values: Values, job: Job, device: Device, network: str, storage: str) -> Plan:
    speeds = link_speed(network), storage_speed(storage)
    if isinstance(values.phase, ResnetPhase):
        return estimate_images(values.phase, job, device, *speeds)
    return estimate(job, device, *speeds)


def _check_template(values: Values, template: str | None) -> list[Finding]:
    """Return what the fetch would say of the model's chat template, and where it has no system role."""
    from trainlab.models import chat_template

    if not isinstance(values.phase, ChatPhase) or template is None:
        return []
    try:
        chat_template.check_text(template, values.phase)
    except UserError as error:
        return [refuse("chat-template", str(error))]
    if values.phase.data.system_prompt and chat_template.with_system_role(template) != template:
        text = "the model's chat template has no role system: phase.data.system_prompt goes before the question, in the first turn"
        return [warn("chat-template", text)]
    return []


def _code(findings: list[Finding]) -> int:
    """Return the exit code."""
    return int(any(finding.level == "refuse" for finding in findings))


def from_args(args: argparse.Namespace) -> int:
    """Call `command` with parsed arguments (`file`, `overlay` and those of add_arguments)."""
    return command(args.file, args.overlay, as_json=args.json, **{name: getattr(args, name) for name in OPTIONS})


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
    text = preparation(plan.job, plan.storage)
    data["preparation"] = asdict(text) if text else None
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
    job, device, rows = plan.job, plan.device, list[tuple[str, str]]()

    def add(name: str, text: str) -> None:
        rows.append((name, text))

    add("devices", f"{job.nodes} nodes x {job.devices_per_node} = {job.world} ranks; {device.name} ({device_from})")
    if plan.parameters is not None and plan.trainable is not None:
        share = 100 * plan.trainable / plan.parameters
        add("parameters", f"{count(plan.parameters)}, trained {count(plan.trainable)} ({share:.2f} %)")
    if plan.memory is not None:
        used, usable = plan.memory.total / 2**30, device.usable_gib
        add("memory per device", f"{used:.2f} of {usable:.2f} GiB usable ({100 * used / usable:.0f} %)")
        held = {part: getattr(plan.memory, part) for part in PARTS}
        add("", ", ".join(f"{part} {gib(value)}" for part, value in held.items() if value))
        if plan.memory.sharding:
            what = "weights in float32, twice with the reference" if job.reference else "weights in float32"
            both = f"{gib(plan.memory.sharding)}, in training {gib(plan.memory.training)}"
            add("before it is sharded", f"{both}: {what}")
    if (text := preparation(job, plan.storage)) is not None:
        how = f"{job.prepare_cores:g} cores and no GPU, {gib(text.bytes)} of {claim(job.prepare_memory)}"
        add("text", f"{size(job.text_bytes)} prepared in {seconds(text.seconds)} before that, by a Job of {how}")
    batch = f"{job.batch} x {job.accumulation} x {job.world} = {job.effective_batch} rows per step"
    add("effective batch", batch)
    when = plan.schedule
    if when is not None:
        padded = when.computed_per_step > when.tokens_per_step
        computed = f", {count(when.computed_per_step)} computed with padding" if padded else ""
        add(f"{job.unit}s", f"{count(when.tokens)} total, {count(when.tokens_per_step)} per step{computed}")
        events = f"warm-up {when.warmup}, evaluation every {when.checkpoint_every}"
        add("steps", f"{when.steps} ({when.steps_per_epoch} per epoch), {events}")
    if plan.cost is not None:
        cost = plan.cost
        rate = "on the requested cores" if device.is_cpu else f"at {100 * cost.mfu:.0f} % MFU"
        add("work", f"{cost.flop:.2e} FLOP, {cost.flop_per_token / 1e9:.2f} GFLOP per {job.unit}")
        if cost.dispatch_seconds > cost.compute_seconds:
            rate = f"({seconds(cost.compute_seconds)} {rate})"
            rate = f"in steps of {seconds(cost.step_seconds)}, which wait for their kernels to be started {rate}"
        add("time", f"{seconds(cost.seconds)} {rate}, without start-up and scoring")
        if cost.graphs:
            graphs = f"{cost.graphs} graph{'s' * (cost.graphs > 1)}"
            each = "most of it timing kernels, which is assumed" if job.autotuned else f"{COMPILE:g} s each"
            add("compilation", f"{graphs}, {seconds(cost.compile_seconds)} computed, {each}")
        add("checkpoints", _checkpoint_row(plan, cost))
        if cost.load_seconds:
            add("base model", f"{seconds(cost.load_seconds)} at {size(plan.storage)}/s")
        if job.world > 1:
            sent = f"{size(cost.bytes_per_step)} sent by each rank per step"
            if cost.network_seconds:
                speed = f"{plan.network * 8 / 1e9:g} Gbit/s" if job.nodes > 1 else f"{size(device.link)}/s"
                sent += f", {seconds(cost.network_seconds)} at {speed}"
            add("gradients", f"{sent}; step takes {seconds(cost.step_seconds)}")
            add("speed-up", f"{cost.speed_up:.2f} times one rank, of {job.world}, before overlap")
    rooms = {volume.name: volume.bytes for volume in job.volumes}
    for need in plan.volumes:
        room = rooms.get(need.name)
        of = f"{claim(room)} ({size(room)})" if room is not None else "an existing claim"
        add(f"{need.name} volume", f"{size(need.bytes)} of {of}: {', '.join(need.parts) or 'nothing'}")
    if plan.server is not None:
        add("server", _server_row(plan.server, job.serve_tokens))
    if job.trainable == "lora":
        add("serving", f"vLLM --max-lora-rank {served_rank(job.lora_rank)}")
    return rows


def _checkpoint_row(plan: Plan, cost: Cost) -> str:
    """Return how many there are, and what they cost."""
    each = cost.checkpoint_bytes / plan.storage
    details = f"of {size(cost.checkpoint_bytes)}, {seconds(each)} at {size(plan.storage)}/s"
    if not cost.checkpoints:
        return f"none: one {details} needs {seconds(volumes.SHARE * each)} of training before it"
    waits = f"{seconds(cost.checkpoint_seconds)} in all" if cost.checkpoint_seconds else "beside the training"
    return f"{cost.checkpoints} {details} each, {waits}"


def _server_row(need: Server, tokens: int) -> str:
    """Return what the inference server needs and has."""
    where = f"on each of {need.gpus} GPUs" if need.gpus > 1 else "on its GPU" if need.gpus else "in its pod"
    text = f"{gib(need.total)} of {gib(need.room)} {where}: weights {gib(need.weights)}, "
    if need.runtime == "trainlab":
        text += f"requests of {tokens:,} tokens answered at once {gib(need.cache)}"
        return text + (f", adapters of other runs {gib(need.others)}" if need.others else "")
    text += f"a request of {tokens:,} tokens {gib(need.cache)}"
    return text + (f", {need.requests:,} of them fit" if need.gpus else "")
