"""Strike runs with faults at random steps, and compare what they trained with an undisturbed run, byte by byte.

    PYTHONPATH=cluster:tests python -m drills --count 20 --seed 1

The table goes to artifacts/drills.json after every drill; the same command goes on where it ended.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

from drills.faults import FAULTS
from drills.place import CHECKPOINTS, REPO, Place

PATIENCE = 900.0
"""Seconds for a run with its restarts."""
Row = dict[str, Any]


def main() -> int:
    """Run the drills that the table lacks; exit code 1 if one of them ended otherwise than it must."""
    parser = argparse.ArgumentParser(prog="python -m drills", description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100, help="drills in all (default %(default)s)")
    parser.add_argument("--seed", type=int, default=None, help="of the faults and their steps (default: a new one)")
    parser.add_argument("--site", default="artifacts/site.yaml", help="as image.yml writes it (default %(default)s)")
    parser.add_argument("--table", type=Path, default=REPO / "artifacts" / "drills.json", help="(default %(default)s)")
    args = parser.parse_args()
    table: Row = json.loads(args.table.read_text()) if args.table.exists() else {"undisturbed": {}, "drills": []}
    seed = table.setdefault("seed", args.seed if args.seed is not None else random.SystemRandom().randrange(10**6))
    print(f"seed {seed}", flush=True)
    args.table.parent.mkdir(parents=True, exist_ok=True)
    for number in range(len(table["drills"]), args.count):
        dice = random.Random(f"{seed}-{number}")
        names = list(FAULTS)
        name = names[number // 2 % len(names)]
        place = Place(("pytorchjob", "trainjob")[number % 2], args.site)
        if place.api not in table["undisturbed"]:
            table["undisturbed"][place.api] = drill(place, None, dice, 0)
            args.table.write_text(json.dumps(table, indent=1))
        plain = table["undisturbed"][place.api]
        row = drill(place, name, dice, plain["steps"])
        row["ok"] = row["end"] == plain["end"] and row["weights"] == plain["weights"] and as_expected(name, row)
        table["drills"].append(row)
        args.table.write_text(json.dumps(table, indent=1))
    return 0 if all(row["ok"] for row in table["drills"]) else 1


def as_expected(name: str, row: Row) -> bool:
    """True if the run started again as often as this fault must make it, and repeated less than a checkpoint's distance."""
    return bool(row["restarts"] == FAULTS[name].restarts and row["repeated"] < row["every"] + 1)


def drill(place: Place, fault: str | None, dice: random.Random, steps: int) -> Row:
    """Train once, with a fault at a random step; return the row of the table."""
    place.remove()
    place.install()
    began, at, what = time.monotonic(), 0, ""
    if fault:
        target = dice.randrange(1, steps - 1)
        while place.step() < target and time.monotonic() - began < PATIENCE:
            time.sleep(0.02)
        at, what = place.step(), FAULTS[fault].strike(place, dice)
    end = place.end(PATIENCE)
    folder = place.run_dir()
    manifest: Row = json.loads((folder / "manifest.json").read_text()) if folder and end != "Failed" else {}
    total = place.step()
    row = {
        "job": place.api,
        "fault": fault or "none",
        "what": what,
        "step": at,
        "steps": total,
        "every": total // CHECKPOINTS,
        "end": end,
        "restarts": manifest.get("attempts", {}).get("restarts"),
        "repeated": manifest.get("attempts", {}).get("repeated_steps", 0),
        "seconds": round(time.monotonic() - began, 1),
        "weights": place.weights() if manifest else "",
    }
    print(json.dumps(row), flush=True)
    return row


if __name__ == "__main__":
    sys.exit(main())
