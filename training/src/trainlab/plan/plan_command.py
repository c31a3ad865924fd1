"""`trainlab plan`: values files in, table or JSON out; exit code 0 if fine or warnings only, 1 if refused.

The CLI calls `add_arguments` and `command`; errors in the input raise UserError (the CLI prints it and exits 2).
"""

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from trainlab.config import ChatPhase, ResnetPhase, Values
from trainlab.config.loading import load_values
from trainlab.config.yamlfile import read_mapping
from trainlab.errors import UserError
from trainlab.models import architectures
from trainlab.plan import source, table, vision_job
from trainlab.plan.checks import check, check_volumes
from trainlab.plan.devices import Device, UnknownDevice, find
from trainlab.plan.estimate import Plan, estimate
from trainlab.plan.findings import Finding, refuse, warn
from trainlab.plan.job import Job
from trainlab.plan.units import DEFAULT_NETWORK
from trainlab.plan.units import network as link_speed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `trainlab plan`; the CLI itself adds FILE and -f/--overlay."""
    parser.add_argument("--gpu", metavar="GPU", help="GPU to plan for, e.g. L40S, A100-80GB, H100-80GB")
    parser.add_argument("--nodes", type=int, metavar="N", help="pods instead of phase.resources.nodes")
    parser.add_argument(
        "--network", default=DEFAULT_NETWORK, metavar="RATE", help="link between nodes (default %(default)s)"
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
    job = replace(
        job,
        nodes=nodes or job.nodes,
        rows=rows or job.rows,
        tokens_per_row=tokens_per_row or job.tokens_per_row,
        arch=_arch(model_config) or job.arch,
    )
    of_template: list[Finding] = []
    if hub:
        job, template = source.listed(job)
        of_template = _check_template(values, template)
    try:
        job, device, device_from = source.device_of(values, job, gpu)
    except UnknownDevice as error:
        if gpu:
            raise
        plan = _estimate(values, job, find(source.DEFAULT_GPU), network)
        findings = [*check_volumes(plan), *of_template, warn("not-planned", str(error))]
        lines = "\n".join(finding.line for finding in findings)
        print(json.dumps(table.not_planned(findings), indent=2) if as_json else lines)
        return _code(findings)
    plan = _estimate(values, job, device, network)
    findings = check(plan) + of_template
    if as_json:
        print(json.dumps(table.as_mapping(plan, findings, device_from), indent=2))
    else:
        print(table.as_text(plan, findings, device_from))
    return _code(findings)


def _estimate(values: Values, job: Job, device: Device, network: str) -> Plan:
    if isinstance(values.phase, ResnetPhase):
        return vision_job.estimate(values.phase, job, device, link_speed(network))
    return estimate(job, device, link_speed(network))


def _check_template(values: Values, template: str | None) -> list[Finding]:
    """Return what the fetch would say of the model's chat template, and where it has no system role."""
    from trainlab.models import chat_template

    if not isinstance(values.phase, ChatPhase) or template is None:
        return []
    try:
        chat_template.check_text(template, values.phase)
    except UserError as error:
        return [refuse("chat-template", str(error))]
    if values.phase.data.system_prompt and not chat_template.has_system_role(template):
        told = "the model's chat template has no role system: phase.data.system_prompt goes before the question, in the first turn"
        return [warn("chat-template", told)]
    return []


def _code(findings: list[Finding]) -> int:
    """Return the exit code."""
    return int(any(finding.level == "refuse" for finding in findings))


def from_args(args: argparse.Namespace) -> int:
    """Call `command` with parsed arguments (`file`, `overlay` and those of add_arguments)."""
    return command(
        args.file,
        args.overlay,
        args.gpu,
        args.nodes,
        args.network,
        args.json,
        rows=args.rows,
        tokens_per_row=args.tokens_per_row,
        model_config=args.model_config,
        hub=args.hub,
    )


def _arch(path: Path | None) -> architectures.Architecture | None:
    return architectures.from_config(path.resolve().parent.name, read_mapping(path), str(path)) if path else None
