"""Runs side by side: step time, communication, efficiency, and what `trainlab plan` says of the same phase; `trainlab compare`.

The first run is what the others are measured against. Everything is read from the runs' JSON files.
"""

import argparse
import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from trainlab import files
from trainlab.config.loading import PHASE_FILE, leaves, load_values, trained
from trainlab.config.rule import shown
from trainlab.errors import UserError
from trainlab.plan.estimate import Plan
from trainlab.plan.source import plan_of
from trainlab.plan.units import DEFAULT_NETWORK
from trainlab.plan.units import network as link_speed
from trainlab.report import page

NEEDED = (PHASE_FILE, "manifest.json", "training_summary.json")
NO_VALUE = "-"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `trainlab compare`."""
    text = "run directories; the first is what the others are measured against"
    parser.add_argument("run_dirs", type=Path, nargs="+", metavar="RUN_DIR", help=text)
    text = "link between nodes to plan with (default %(default)s)"
    parser.add_argument("--network", default=DEFAULT_NETWORK, metavar="RATE", help=text)
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the page too, as HTML")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")


def from_args(args: argparse.Namespace) -> int:
    """Print the table of the runs, or JSON, and write the page to --out; return 0. Raises UserError as `collect` does."""
    content = collect(args.run_dirs, args.network)
    if args.out:
        files.write_text(args.out, render(content))
    print(json.dumps(content, indent=2) if args.json else as_text(content))
    if args.out and not args.json:
        print(f"\n{args.out}")
    return 0


def collect(folders: Sequence[Path], network: str = DEFAULT_NETWORK) -> dict[str, Any]:
    """Return {network, differs: keys, runs: [...]}; planned with nodes linked at `network`, a rate such as 10Gbit.

    Seconds and shares of 1; None where something was not measured. Raises UserError for one run, one twice, or one that has not ended.
    """
    if len(folders) < 2:
        raise UserError("one run cannot be compared; name two or more run directories")
    if twice := [str(folder) for folder in folders if folders.count(folder) > 1]:
        raise UserError(f"{twice[0]}: named twice; name each run directory once")
    speed = link_speed(network)
    runs = [_run(folder, speed) for folder in folders]
    keys = [dict(run.pop("leaves")) for run in runs]
    differs = sorted(key for key in set().union(*keys) if any(own.get(key) != keys[0].get(key) for own in keys))
    for run, own in zip(runs, keys, strict=True):
        run["values"] = {key: shown(own[key]) if key in own else "not set" for key in differs}
        run["efficiency"] = _efficiency(run, runs[0], run["rate"], runs[0]["rate"])
        planned, first = run["planned"], runs[0]["planned"]
        planned["efficiency"] = _efficiency(run, runs[0], planned["rate"], first["rate"])
    return {"network": network, "differs": differs, "runs": runs}


def as_text(content: Mapping[str, Any]) -> str:
    """Return the table for a terminal: a line for each quantity, a column for each run."""
    rows = table(content)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if not column else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


def table(content: Mapping[str, Any]) -> list[list[str]]:
    """Return the rows of the table, ready to print; the first one is its header."""
    runs, linked = content["runs"], f"plan at {content['network']}"

    def row(name: str, text: Callable[[Mapping[str, Any]], str]) -> list[str]:
        return [name, *map(text, runs)]

    def part(run: Mapping[str, Any], name: str) -> str:
        return _part(run["parts"][name], run["step_seconds"]) if run["parts"] else NO_VALUE

    def planned(run: Mapping[str, Any]) -> str:
        return _part(run["planned"]["network_seconds"], run["planned"]["step_seconds"])

    return [
        row("", lambda run: run["run"]),
        *([key, *(run["values"][key] for run in runs)] for key in content["differs"]),
        row("ranks", lambda run: str(run["ranks"])),
        row("link at the start", lambda run: f"{run['link_mb_s']:.0f} MB/s" if run["link_mb_s"] else NO_VALUE),
        row("steps", lambda run: str(run["steps"])),
        row("step", lambda run: _seconds(run["step_seconds"])),
        row("communication", lambda run: part(run, "communication")),
        row("of it hidden", lambda run: part(run, "overlapped")),
        row(f"{runs[0]['unit']}/s", lambda run: f"{run['rate']:,.1f}"),
        row("efficiency", lambda run: _share(run["efficiency"])),
        row(f"{linked}: step", lambda run: _seconds(run["planned"]["step_seconds"])),
        row(f"{linked}: communication", planned),
        row(f"{linked}: efficiency", lambda run: _share(run["planned"]["efficiency"])),
        row("last loss", lambda run: f"{run['last_loss']:.3f}" if run["last_loss"] is not None else NO_VALUE),
        row("gate", lambda run: run["gate"] or NO_VALUE),
    ]


def render(content: Mapping[str, Any]) -> str:
    """Return the page: one file, no script, no external resources, in the style of a run's report."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    reached = (value for run in content["runs"] for value in (run["efficiency"], run["planned"]["efficiency"]) if value)
    top = max([1.0, *reached])
    return environment.from_string(page.text("comparison.html.j2")).render(
        **content, rows=table(content), style=page.style(), top=top, share=_share
    )


def _run(folder: Path, network: float) -> dict[str, Any]:
    if lacking := [name for name in NEEDED if not (folder / name).is_file()]:
        raise UserError(f"{folder}: no {lacking[0]}; name the directory of a run that has ended, as artifacts/NAME")
    phase, manifest = load_values([folder / PHASE_FILE]).phase, files.read_json(folder / "manifest.json")
    summary, history = files.read_json(folder / "training_summary.json"), folder / "training_history.json"
    taken = summary["steps"] - summary["resumed_from_step"]
    if not taken or not summary["seconds"]:
        raise UserError(f"{folder}: no step was taken since the run resumed; train it again under another name")
    entries = files.read_json(history) if history.is_file() else []
    times = [entry["step_seconds"] for entry in entries if "step_seconds" in entry]
    step = statistics.median(times) if times else summary["seconds"] / taken
    tokens = summary.get("tokens")
    per_step = tokens / taken if tokens else float(summary["effective_batch"])
    gpus = manifest["hardware"]["gpus"]
    seen = summary["rows"] * summary["epochs"] * taken / summary["steps"]  # since a resume, as the tokens
    length = tokens / seen if tokens else None
    plan = plan_of(phase, gpus[0] if gpus else None, network, summary["rows"], length)
    gate = files.read_json(folder / "gate.json") if (folder / "gate.json").is_file() else None
    return {
        "run": manifest["run"],
        "leaves": list(leaves(trained(phase))),
        "ranks": manifest["world_size"],
        "link_mb_s": manifest["ranks"]["bandwidth_mb_s"],
        "steps": summary["steps"],
        "step_seconds": step,
        "parts": summary.get("step_parts"),
        "unit": "tokens" if tokens else "rows",
        "rate": per_step / step,
        "planned": _planned(plan),
        "last_loss": summary["last_loss"],
        "gate": None if gate is None else "promoted" if gate["promoted"] else "not promoted",
    }


def _planned(plan: Plan) -> dict[str, Any]:
    if plan.cost is None or plan.schedule is None:
        return {"step_seconds": None, "network_seconds": None, "rate": None}
    step = plan.cost.step_seconds + plan.cost.network_seconds
    return {
        "step_seconds": step,
        "network_seconds": plan.cost.network_seconds,
        "rate": plan.schedule.tokens_per_step / step,
    }


def _efficiency(
    run: Mapping[str, Any], first: Mapping[str, Any], rate: float | None, base: float | None
) -> float | None:
    """Return the rate of each rank as a share of that of the first run's ranks; None if one is unknown, or in another unit."""
    if not rate or not base or run["unit"] != first["unit"]:
        return None
    return float(rate / run["ranks"] / (base / first["ranks"]))


def _seconds(value: float | None) -> str:
    return NO_VALUE if value is None else f"{value:.3g} s"


def _part(value: float | None, step: float | None) -> str:
    return NO_VALUE if value is None or not step else f"{value:.3g} s ({value / step:.0%})"


def _share(value: float | None) -> str:
    return NO_VALUE if value is None else f"{value:.0%}"
