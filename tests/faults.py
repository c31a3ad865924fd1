"""Applies the faults of tests/faults.yaml one after the other in a copy of the checkout: the tests that a fault names have to fail,
those among them that `make test` runs.

    PYTHONPATH=cluster:tests python tests/faults.py [ID ...]

A fault is caught when one of its tests fails with it and the same test passes without it. What was caught is not run again as long as
the faulty file and the tests are the same; AGAIN=1 starts anew. Exits with 1 if a fault was not caught.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from fresh import checkout
from ports import WITH_ITS_WORKER

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "tests" / "faults.yaml"
KNOWN = ROOT / "artifacts" / "faults"
"""Folder with a result for each fault; two runs of different faults may share it."""
SECONDS = 900
GATE = "not tier and not rest"
"""What `make test` leaves to other commands (CONTRIBUTING.md) catches nothing in time."""
CAUGHT, MISSED, BROKEN = "caught", "NOT CAUGHT", "ERROR"


@dataclass(frozen=True)
class Fault:
    """One row: `old` becomes `new` in `file`, so that `breaks` no longer holds."""

    id: str
    file: str
    old: str
    new: str
    breaks: str
    tests: tuple[str, ...]

    def problem(self, root: Path = ROOT) -> str:
        """Return why the row fits this checkout no longer, empty if it does."""
        if not (root / self.file).is_file():
            return f"{self.id}: file: {self.file} is not there; name the file that has the text now"
        times = (root / self.file).read_text(encoding="utf-8").count(self.old)
        if times != 1:
            return f"{self.id}: old: occurs {times} times in {self.file}; give a text that occurs once"
        missing = [test for test in self.tests if not (root / test).is_file()]
        return f"{self.id}: tests: {', '.join(missing)} is not there; name the tests that catch it" if missing else ""

    def digest(self) -> str:
        """Return what a result holds for: the row, the file, the tests."""
        parts = [repr(self).encode(), *((ROOT / name).read_bytes() for name in (self.file, *self.tests))]
        return hashlib.sha256(b"\0".join(parts)).hexdigest()


def faults() -> list[Fault]:
    """Return the rows of the table."""
    rows = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    return [Fault(**{**row, "tests": tuple(row["tests"])}) for row in rows]


def strike(fault: Fault, copy: Path) -> dict[str, Any]:
    """Run the tests of a fault in `copy` with it, and the first that fails without it; return {result, by, cpu, seconds}."""
    began, before = time.monotonic(), _cpu()
    file = copy / fault.file
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace(fault.old, fault.new), encoding="utf-8")
    try:
        code, said = _pytest(copy, [*fault.tests])
    finally:
        file.write_text(text, encoding="utf-8")
    result, by = {0: MISSED, 1: CAUGHT}.get(code, BROKEN), ""
    if result == CAUGHT:
        by = next(iter(re.findall(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", said, re.MULTILINE)), fault.tests[0])
        if _pytest(copy, [by])[0] != 0 and _pytest(copy, [by.partition("::")[0]])[0] != 0:
            result, by = BROKEN, f"{by} fails without the fault, too"
    elif result == BROKEN:
        by = f"pytest ended with {code}: {' '.join(said.split())[-200:]}"
    return {"result": result, "by": by, "cpu": round(_cpu() - before, 1), "seconds": round(time.monotonic() - began)}


def _pytest(copy: Path, tests: list[str]) -> tuple[int, str]:
    argv = [
        *WITH_ITS_WORKER,
        str(ROOT / ".venv/bin/python"),
        "-m",
        "pytest",
        "-q",
        "-x",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        "--tb=no",
        "-m",
        GATE,
    ]
    env = os.environ | {"PYTHONPATH": str(copy / "training/src"), "COLUMNS": "1000"}
    try:
        done = subprocess.run([*argv, *tests], cwd=copy, env=env, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return 124, f"no end after {SECONDS} s"
    return done.returncode, done.stdout + done.stderr


def _cpu() -> float:
    return sum(os.times()[2:4])


def main(arguments: list[str]) -> int:
    """Run the command line."""
    wanted = set(arguments)
    rows = faults()
    if unknown := wanted - {row.id for row in rows}:
        sys.exit(f"error: {', '.join(sorted(unknown))}: no such id in {TABLE.relative_to(ROOT)}")
    if problems := [problem for row in rows if (problem := row.problem())]:
        sys.exit("error: " + "\n".join(problems))
    chosen = [row for row in rows if row.id in wanted or not wanted]
    KNOWN.mkdir(parents=True, exist_ok=True)
    results: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="trainlab-faults-") as folder:
        copy = Path(folder) / "checkout"
        checkout.clone(copy, os.getuid())
        (copy / ".venv").symlink_to((ROOT / ".venv").resolve())
        for number, row in enumerate(chosen, 1):
            kept, digest = KNOWN / f"{row.id}.json", row.digest()
            found = (
                json.loads(kept.read_text(encoding="utf-8")) if kept.is_file() and not os.environ.get("AGAIN") else {}
            )
            if found.get("digest") != digest or found.get("result") != CAUGHT:
                found = strike(row, copy) | {"digest": digest}
                part = kept.with_suffix(".part")  # a killed run leaves no half of a result
                part.write_text(json.dumps(found, indent=1), encoding="utf-8")
                part.replace(kept)
            results[row.id] = found
            print(f"{number:3d} of {len(chosen)}  {found['result']:<10} {row.id}: {found['by']}", flush=True)
    print(f"\n{'fault':<26}{'result':<12}{'CPU-s':>7}{'s':>6}  breaks")
    for row in chosen:
        found = results[row.id]
        print(f"{row.id:<26}{found['result']:<12}{found['cpu']:7.1f}{found['seconds']:6d}  {row.breaks}")
    caught = sum(found["result"] == CAUGHT for found in results.values())
    print(f"{caught} of {len(chosen)} caught, {sum(found['cpu'] for found in results.values()):.0f} CPU-seconds in all")
    return 0 if caught == len(chosen) else 1


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the copy is removed
    sys.exit(main(sys.argv[1:]))
