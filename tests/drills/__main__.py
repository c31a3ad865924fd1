"""Strike runs with faults at random steps, and compare what they trained with an undisturbed run, byte by byte.

    PYTHONPATH=cluster:tests python -m drills --count 20 --seed 1
    PYTHONPATH=cluster:tests python -m drills --together "rank killed,node stopped"

The table goes to artifacts/drills.json after every drill; the same command goes on where it ended.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tiers import Tiers, shown

from drills.faults import FAULTS, Fault, WrongError, installed
from drills.place import CHECKPOINTS, EPOCHS, OPERATORS, PATIENCE, REPO, Place

Row = dict[str, Any]


def main() -> int:
    """Run the drills that the table lacks; exit code 1 if one of them ended otherwise than it must, 2 if the table is older."""
    args = _arguments()
    table: Row = json.loads(args.table.read_text()) if args.table.exists() else {"undisturbed": {}, "drills": []}
    if refused := _older(table, args.table):
        print(f"error: {refused}", file=sys.stderr)
        return 2
    seed = table.setdefault("seed", args.seed if args.seed is not None else random.SystemRandom().randrange(10**6))
    print(f"seed {seed}", flush=True)
    args.table.parent.mkdir(parents=True, exist_ok=True)
    done = len(table["drills"])
    for number in range(done, done + 1 if args.together else args.count):
        dice = random.Random(f"{seed}-{number}")
        shape, name = turn(number)
        shape = Shape(args.api or shape.api, args.pods or shape.pods)
        place = Place(shape.api, shape.pods, args.site, epochs=args.epochs)
        if str(shape) not in table["undisturbed"]:
            table["undisturbed"][str(shape)] = drill(place, [], dice, 0)
            args.table.write_text(json.dumps(table, indent=1))
        plain = table["undisturbed"][str(shape)]
        names = args.together or [name]
        row = drill(place, names, dice, plain["steps"])
        row["ok"] = row["end"] == plain["end"] and row["weights"] == plain["weights"] and as_expected(names, row)
        table["drills"].append(row)
        args.table.write_text(json.dumps(table, indent=1))
    return 0 if all(row["ok"] for row in table["drills"]) else 1


@dataclass(frozen=True)
class Shape:
    """A kind of job, and in how many pods its two ranks run."""

    api: str
    pods: int

    def __str__(self) -> str:
        """Return the key of its undisturbed run."""
        return f"{self.api} of {self.pods}"


SHAPES = [Shape(api, pods) for pods in (2, 1) for api in OPERATORS]


def turn(number: int) -> tuple[Shape, str]:
    """Shape and fault of a drill by its number: the shapes take turns, and every fault meets each of them in four rounds."""
    rounds, at = divmod(number, len(FAULTS))
    return SHAPES[(rounds + at) % len(SHAPES)], list(FAULTS)[at]


def as_expected(names: list[str], row: Row) -> bool:
    """True if nothing in between was wrong, and the run started again as often as it must, each time as far on as it could."""
    whole = [step for name, step in zip(names, row["whole"], strict=True) for _ in range(FAULTS[name].restarts)]
    lost = list(itertools.pairwise(row["starts"]))
    return bool(
        not row["wrong"]
        and len(lost) == len(whole) == row["restarts"]
        and row["repeated"] == sum(before["reached"] - after["resumed"] for before, after in lost)
        and all(
            step <= after["resumed"] and _no_more(before["reached"], after["resumed"], row["every"])
            for step, (before, after) in zip(whole, lost, strict=True)
        )
    )


def _no_more(reached: int, resumed: int, every: int) -> bool:
    """True if only steps after the last checkpoint are repeated; that of the last step may not have been whole yet."""
    return reached - resumed < every or (reached - resumed == every and reached % every == 0)


def drill(place: Place, names: list[str], dice: random.Random, steps: int) -> Row:
    """Train once, with these faults one after the other at random steps; return the row of the table."""
    place.cordon("n1", False)  # a killed drill may have left it closed
    place.remove()
    faults = [FAULTS[name] for name in names]
    began = time.monotonic()
    what: list[str] = []
    wrong: list[str] = []
    with ExitStack() as stack:
        stack.enter_context(next((one.begun for one in faults if one.begun is not installed), installed)(place))
        targets = sorted(dice.sample(range(1, steps - 1), len(faults))) if faults else []
        struck = [_strike(place, *pair, dice, what, wrong) for pair in zip(faults, targets, strict=True)]
        wrong += [
            f"struck at step {at} of {steps}, which is not while it trains" for at, _ in struck if not 0 < at < steps
        ]
        end = place.end(PATIENCE)
        wrong += [said for one in faults if (said := one.ended(place))]
        folder = place.run_dir()
        manifest: Row = json.loads((folder / "manifest.json").read_text()) if folder and end != "Failed" else {}
        total = place.step()
        place.settled()
        row = {
            "job": place.api,
            "pods": place.pods_wanted,
            "fault": ", ".join(names) or "none",
            "what": "; ".join(what),
            "wrong": wrong,
            "step": [at for at, _ in struck],
            "whole": [whole for _, whole in struck],
            "starts": [{key: start.get(key) for key in ("resumed", "reached")} for start in place.starts()],
            "steps": total,
            "every": total // CHECKPOINTS,
            "end": end,
            "restarts": manifest.get("attempts", {}).get("restarts"),
            "repeated": manifest.get("attempts", {}).get("repeated_steps", 0),
            "seconds": round(time.monotonic() - began, 1),
            "weights": place.weights() if manifest else "",
            "hardware": "{cpu}, {cores} cores".format(**manifest["hardware"]) if manifest else "",
        }
    print(json.dumps(row), flush=True)
    return row


def _strike(
    place: Place, fault: Fault, target: int, dice: random.Random, what: list[str], wrong: list[str]
) -> tuple[int, int]:
    """Wait for a step and strike there; return the step that was reached, and the newest whole checkpoint's."""
    began = time.monotonic()
    while place.step() < target and time.monotonic() - began < PATIENCE:
        time.sleep(0.02)
    at, whole = place.step(), place.checkpoint()
    try:
        what.append(fault.strike(place, dice))
    except WrongError as error:
        wrong.append(str(error))
    return at, whole


def _older(table: Row, file: Path) -> str:
    """Why a table cannot go on: it began with other files than there are now, and 100 drills are of one state."""
    tiers = Tiers()
    now = subprocess.run(["git", "rev-parse", "HEAD"], cwd=REPO, check=True, capture_output=True, text=True).stdout
    began = table.setdefault("commit", now.strip())
    if not table["drills"] or not (changed := tiers.changed("test-drills", began)):
        return ""
    return f"{file} began with commit {began[:8]}; since then: {shown(changed)}; remove it, and the drills begin anew"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m drills", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=100, help="drills in all (default %(default)s)")
    parser.add_argument("--seed", type=int, default=None, help="of the faults and their steps (default: a new one)")
    parser.add_argument("--site", default="artifacts/site.yaml", help="as image.yml writes it (default %(default)s)")
    parser.add_argument("--table", type=Path, default=REPO / "artifacts" / "drills.json", help="(default %(default)s)")
    parser.add_argument(
        "--together",
        type=lambda text: text.split(","),
        help=f"instead of --count: one training that all of these strike, separated by commas: {', '.join(FAULTS)}",
    )
    parser.add_argument("--api", choices=OPERATORS, help="with --together: kind of job")
    parser.add_argument("--pods", type=int, choices=(1, 2), help="with --together: how many")
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="of three steps each (default %(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
