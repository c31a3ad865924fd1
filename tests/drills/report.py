"""Write a table of drills as a page of the documentation: `python -m drills.report artifacts/drills.json > docs/evidence/drills.md`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

Row = dict[str, Any]
HEAD = """\
# Drills

What `make test-drills` wrote into artifacts/drills.json, made a page by `python -m drills.report` (tests/drills): {count} trainings of 12
steps with a checkpoint every third, each struck by a fault at a random step, on the embedded cluster with two nodes. {passed} of {count}
ended with the adapters of an undisturbed run, byte by byte, started again exactly as often as the fault makes it, and repeated nothing
before the newest whole checkpoint. Seed {seed}, commit {commit}, {hardware}, {date}.
"""


def page(table: Row, day: str) -> str:
    """Return the page: what it is, a summary by fault, the undisturbed runs, and each drill."""
    drills = table["drills"]
    passed = sum(row["ok"] for row in drills)
    told = {"count": len(drills), "passed": passed, "commit": table["commit"][:8], "date": day}
    machines = sorted({row["hardware"] for row in table["undisturbed"].values()})
    head = HEAD.format(**told, seed=table["seed"], hardware="; ".join(machines))
    by_fault = [
        [row for row in drills if row["fault"] == name] for name in dict.fromkeys(one["fault"] for one in drills)
    ]
    summary = _rows(
        ("fault", "drills", "passed", "started again", "steps repeated", "seconds (median)"),
        [
            (
                rows[0]["fault"],
                len(rows),
                sum(row["ok"] for row in rows),
                _span(rows, "restarts"),
                _span(rows, "repeated"),
                f"{median(row['seconds'] for row in rows):.0f}",
            )
            for rows in by_fault
        ],
    )
    plain = _rows(
        ("undisturbed", "steps", "seconds"),
        [(name, row["steps"], f"{row['seconds']:.0f}") for name, row in table["undisturbed"].items()],
    )
    each = _rows(
        (
            "drill",
            "job",
            "pods",
            "fault",
            "after step",
            "newest checkpoint",
            "started again",
            "steps repeated",
            "seconds",
        ),
        [
            (
                number,
                row["job"],
                row["pods"],
                row["fault"] if row["fault"] == "volume full" else f"{row['fault']}: {row['what']}",
                row["step"][0],
                row["whole"][0],
                "-" if row["restarts"] is None else row["restarts"],
                row["repeated"],
                f"{row['seconds']:.0f}{'' if row['ok'] else ', FAILED'}",
            )
            for number, row in enumerate(drills, 1)
        ],
    )
    return "\n".join([head, summary, plain, "Each of them:\n", each]).rstrip("\n") + "\n"


def _span(rows: list[Row], key: str) -> str:
    """The least and the most of a key, where the run came to tell."""
    found = sorted({row[key] for row in rows if row[key] is not None})
    return " to ".join(map(str, [found[0], found[-1]] if len(found) > 1 else found)) or "-"


def _rows(names: Sequence[str], rows: list[tuple[Any, ...]]) -> str:
    """A table of Markdown."""
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in (names, ["---"] * len(names), *rows)) + "\n"


if __name__ == "__main__":
    file = Path(sys.argv[1])
    print(page(json.loads(file.read_text()), date.fromtimestamp(file.stat().st_mtime).isoformat()), end="")
