"""docs/reference/sizing.md: what `trainlab plan` says about each values file."""

from __future__ import annotations

import contextlib
import io
import json
import math
import tempfile
from pathlib import Path
from typing import Any

from trainlab.config.loading import load_values
from trainlab.config.types import TOPICS
from trainlab.plan import plan_command
from trainlab.plan.units import gib, seconds
from trainlab.recipes import sft

from pages.markdown_table import code, table

ROOT = Path(__file__).resolve().parents[2]
VALUES = ROOT / "values"
PAGE = "docs/reference/sizing.md"
SCALES = {"Full scale": "", "One GPU": "demo", "The embedded cluster": "local"}
"""Each scale with its folder of overlays below values/."""
HARDWARE = {
    path: path.read_text("utf-8").partition(" --node ")[2].split()[0] for path in sorted(VALUES.glob("hardware/*.yaml"))
}
"""Each profile with its nodes, which its first line names."""
SHAPES: dict[str, dict[str, int | bool]] = {
    "survival": {"batch_size": 16, "gradient_accumulation": 1},
    "gemma": {"batch_size": 16, "gradient_accumulation": 2},
    "staged-pretrain": {"batch_size": 2, "gradient_accumulation": 16, "gradient_checkpointing": False},
}
"""Of a phase, other values of train with the same rows in a step, which the plan says to be faster."""
SHAPE_HEAD = ("phase", "batch x accumulation", "shape", "memory of a rank", "a step", "a step, measured")
HEAD = (
    *("phase", "pods", "GPUs of a pod", "memory of a rank", "a pod asks for", "RWX"),
    *("models volume", "runs volume", "training, computed", "limit", "served by", "page"),
)


def files(folder: str) -> list[list[Path]]:
    """Return the values files of a scale, each followed by its overlay."""
    if not folder:
        return [[path] for path in sorted(VALUES.glob("*.yaml"))]
    return [[VALUES / path.name, path] for path in sorted((VALUES / folder).glob("*.yaml"))]


def any_plan(paths: list[Path], node: str | None = None) -> dict[str, Any]:
    """Return what `trainlab plan --json` prints."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        plan_command.command(paths[0], paths[1:], as_json=True, node=node)
    planned: dict[str, Any] = json.loads(printed.getvalue())
    return planned


def fitting(profile: Path, node: str) -> list[str]:
    """Return the row of one profile: the phases that `trainlab plan` does not refuse on its nodes."""
    phases = [path.stem for (path,) in files("") if any_plan([path, profile], node)["ok"]]
    return [code(profile.relative_to(ROOT)), code(node), ", ".join(phases)]


def plan(paths: list[Path]) -> dict[str, Any]:
    """Return what `trainlab plan --json` prints; SystemExit with its findings if the plan is refused."""
    planned = any_plan(paths)
    if not planned["ok"]:
        raise SystemExit(f"error: {paths[-1].relative_to(ROOT)}: {planned['verdict']}; see `trainlab plan`")
    return planned


def all_topics(phase: Any) -> bool:
    """Return whether all of Python's manual is the text: each Python has another, and the page is the same for all."""
    return phase.data.source == TOPICS and phase.data.train_rows is None


def row(paths: list[Path]) -> list[str]:
    """Return the row of one values file."""
    planned, phase = plan(paths), load_values(paths, {}).phase
    job, device, resources = planned["job"], planned["device"], phase.resources
    needed = {volume["name"]: volume["bytes"] for volume in planned["volumes"]}
    asked = {volume["name"]: volume["bytes"] for volume in job["volumes"]}
    memory, cost = planned["memory"], planned["cost"]
    served = f"vLLM, {phase.serve.gpus} GPU" if phase.serve.runtime == "vllm" else "our server"
    return [
        code(paths[-1].relative_to(ROOT)),
        str(job["nodes"]),
        f"{resources.gpus_per_node} {device['name']}" if job["on_gpu"] else f"none, {job['devices_per_node']} ranks",
        f"{gib(memory['total'])} of {device['usable_gib']:.1f}",
        f"{resources.cpu} cores, {resources.memory}",
        "required" if job["nodes"] > 1 else "no",
        *(f"{gib(needed[name])} of {asked[name] / 2**30:.0f}" for name in ("models", "runs")),
        "by the size of Python's manual" if all_topics(phase) else seconds(cost["seconds"]),
        f"{resources.timeout_minutes:g} min",
        served,
        "no" if phase.serve.runtime == "vllm" else "yes",
    ]


def shapes(name: str, other: dict[str, int | bool]) -> list[list[str]]:
    """Return the rows of a phase's own shape of a batch and of the other one, with what a GPU measured of the same shape."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        overlay = Path(folder) / "shape.json"
        for change in ({}, other):
            overlay.write_text(json.dumps({"phase": {"train": change}}), "utf-8")
            planned = any_plan([VALUES / f"{name}.yaml", overlay])
            job, cost, device = planned["job"], planned["cost"], planned["device"]
            shape = f"{job['batch']} x {job['accumulation']}"
            rows.append(
                [
                    code(f"values/{name}.yaml") if not change else "",
                    shape + ", recomputed" * job["checkpointing"],
                    "its own" if not change else "another",
                    f"{gib(planned['memory']['total'])} of {device['usable_gib']:.1f}, {device['name']}",
                    seconds(max(cost["compute_seconds"], cost["dispatch_seconds"])),
                    measured(name, shape),
                ]
            )
    return rows


def scoring(name: str, other: int) -> str:
    """Return how many batches of answers a rank of a phase has, with its own size of them and with another."""
    phase: Any = load_values([VALUES / f"{name}.yaml"], {}).phase
    own, rows = phase.evaluate.batch_size, len(sft.read_rows(phase, ROOT / "data" / name)[1])
    mine = math.ceil(rows / phase.resources.nodes)
    return (
        f"`values/{name}.yaml` has {mine} answers a rank to score: {math.ceil(mine / own)} batches with `phase.evaluate.batch_size` {own},\n"
        f"{math.ceil(mine / other)} with {other}, which is computed, not measured."
    )


def measured(name: str, shape: str) -> str:
    """Return the seconds of a step in batches of a shape that docs/evidence/benchmarks.md has of a phase, "no" if it has none."""
    page = (ROOT / "docs" / "evidence" / "benchmarks.md").read_text("utf-8")
    for line in page.splitlines():
        if line.startswith(f"| {name},") and f" {shape}," in line:
            steps, training, step = line.strip("| ").split(" | ")[3:6]
            took = f"{step} s" if step != "-" else f"{float(training) / int(steps):.2f} s with validation"
            return f"{took}, {'H200' if '(H200)' in line else 'H100'}"
    return "no"


def text() -> str:
    """Return the page."""
    parts = [f"## {title}\n\n{table(HEAD, map(row, files(folder)))}" for title, folder in SCALES.items()]
    return f"""# Sizing: GPUs, memory, volumes and minutes of each phase

Generated by `make gen` from `trainlab plan` with each values file and the chart's defaults. A test fails when this page is out
of date. All numbers but those of a column "measured" are computed. `trainlab plan FILE --gpu GPU` computes the same for other values
or another GPU ([the command](cli.md#plan)).

- **Memory of a rank**: planned, of what is usable on its GPU, or in its share of the pod.
- **RWX**: a StorageClass with ReadWriteMany. Where it is not required, set `accessMode: ReadWriteOnce` if the class has no other mode
  ([storage](../operate/storage.md)).
- **Volume**: what the phase writes, planned, of the size that the chart asks for.
- **Training**: steps only, planned, without start-up, compilation, downloads and scoring. Small batches leave a GPU waiting, and take longer:
  [measured times on a GPU](../evidence/benchmarks.md#one-gpu).
- **Limit**: `phase.resources.timeout_minutes`, after which the job ends.
- **Page**: the served model's own page for a browser, with both models' answers side by side. vLLM has no such page: ask it with
  `trainlab ask`.

{(chr(10) * 2).join(parts)}

## Shapes of batches

Memory and seconds of a step are computed for the phase's own GPU. The measured ones are of one GPU of another kind, on 2026-11-27
([One GPU](../evidence/benchmarks.md#one-gpu)). The other shape of a phase takes the same rows in a step. It is computed to be faster, and was
not measured; so it is not the default. Recomputed: `train.gradient_checkpointing`.

{table(SHAPE_HEAD, [line for each in SHAPES.items() for line in shapes(*each)])}

Scoring waits for the kernels of each token too. {scoring("survival", 80)}

## Nodes

Overlays for nodes that somebody has. `--node` says what a node has, 1 core and 2 GiB of it are left to its system (assumed).

{table(("overlay", "`trainlab plan --node`", "phases that fit"), [fitting(*each) for each in HARDWARE.items()])}
"""
