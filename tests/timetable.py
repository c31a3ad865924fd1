"""A table of where the time of `make test` went; printed by summary.py.

The stages of the Makefile record their start and end in artifacts/times, the tests their seconds in JUnit files, those of
the processors, too. Tests run in parallel, so the seconds of a folder may exceed those of its stage.
"""

import os
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

TIMES = Path("artifacts") / "times"
STAT = Path("/proc/stat")
DEAREST = 20
SLACK = 5
"""Seconds before the begin of a run in which a stage of it may have begun: make starts several at once."""
FOLDERS = 2
"""Leading folders of a test under which its time is listed: tests/api, training/tests."""
ALONE = {"tests.api.test_molecule": "molecule"}
"""A file that is listed under a name of its own."""


def clock(seconds: float) -> str:
    """Return seconds in readable form."""
    return f"{int(seconds) // 60} min {int(seconds) % 60:02d} s"


def stages(folder: Path = TIMES) -> dict[str, tuple[int, int]]:
    """Return start and end of each stage of this run that has both, in order of their start."""
    found = {}
    for file in _begun(folder):
        end = file.with_suffix(".end")
        if end.exists():
            first = file.read_text(encoding="ascii").splitlines()[0]
            found[file.stem] = (int(first), int(end.read_text(encoding="ascii")))
    found = {name: span for name, span in found.items() if span[1] >= span[0]}
    return dict(sorted(found.items(), key=lambda entry: entry[1]))


def _begun(folder: Path) -> list[Path]:
    """Return the files of stages that began in this run, whose own begin is run.begin; other days' stay in the folder."""
    run = folder / "run.begin"
    first = int(run.read_text(encoding="ascii").split()[0]) - SLACK if run.exists() else 0
    return [file for file in folder.glob("*.begin") if int(file.read_text(encoding="ascii").split()[0]) >= first]


def ran(file: Path) -> tuple[int, int]:
    """Return start and end of the tests of a JUnit file."""
    (suite,) = ElementTree.parse(file).getroot().iter("testsuite")
    begin = datetime.fromisoformat(suite.get("timestamp", "")).timestamp()
    return int(begin), int(begin + float(suite.get("time", "0")))


class Case(NamedTuple):
    """A test: its name, the name of its row, its seconds, and those of the processors (conftest.py)."""

    name: str
    row: str
    seconds: float
    cpu: float


def cases(file: Path) -> list[Case]:
    """Return the tests of a JUnit file."""
    result = []
    for case in ElementTree.parse(file).getroot().iter("testcase"):
        of = case.get("classname", "")
        cpu = sum(float(said.get("value", "0")) for said in case.iter("property") if said.get("name") == "cpu")
        row = ALONE.get(of) or "/".join(of.split(".")[:FOLDERS])
        name = case.get("name", "").rpartition("@")[0] or case.get("name", "")  # without the group of pytest-xdist
        result.append(Case(f"{of}::{name}", row, float(case.get("time", "0")), cpu))
    return result


def folders(tests: list[Case]) -> dict[str, tuple[int, float, float]]:
    """Return number, seconds and processor seconds of the tests by their row, the longest first."""
    count: Counter[str] = Counter()
    spent: Counter[str] = Counter()
    used: Counter[str] = Counter()
    for case in tests:
        count[case.row] += 1
        spent[case.row] += case.seconds
        used[case.row] += case.cpu
    return {row: (count[row], seconds, used[row]) for row, seconds in spent.most_common()}


def _ticks(stat: str) -> list[int]:
    """Return the ticks of all processors together since the machine started, by their kind, of the first line of proc_stat(5)."""
    return [int(word) for word in stat.split()[1:9]]


def cpu_seconds(stat: Path = STAT) -> float:
    """Return the seconds that all processors of the machine together have worked since it started, for whichever process."""
    ticks = _ticks(stat.read_text(encoding="ascii"))
    return (sum(ticks) - ticks[3] - ticks[4] - ticks[7]) / os.sysconf("SC_CLK_TCK")  # idle, waiting, steal


def processors(folder: Path = TIMES, now: Path = STAT) -> str:
    """Return how the processors spent their time since the first stage began, by the first line of proc_stat(5).

    Time that the hypervisor gave to other machines (steal) makes every row longer, through no fault of a test; a slow processor, too.
    """
    begun = [file.read_text(encoding="ascii").splitlines() for file in _begun(folder)]
    first = min((lines for lines in begun if len(lines) > 1), key=lambda lines: int(lines[0]), default=None)
    if first is None:
        return ""
    before, after = _ticks(first[1]), _ticks(now.read_text(encoding="ascii"))
    spent = [new - old for old, new in zip(before, after, strict=True)]
    whole, idle, stolen = sum(spent) or 1, spent[3] + spent[4], spent[7]
    shares = (whole - idle - stolen, idle, stolen)
    used = f"{shares[0] / os.sysconf('SC_CLK_TCK'):,.0f} CPU-seconds"
    parts = "{:.0%} used, {:.0%} idle, {:.0%} given to other machines (steal)".format(
        *(share / whole for share in shares)
    )
    return f"processors: {used}, {parts}; {additions():.2f} s for ten million additions in Python"


def additions() -> float:
    """Return the seconds that one processor takes for ten million additions of a loop, to compare machines."""
    begin, total = time.process_time(), 0
    for number in range(2_000_000):
        total += number
    return (time.process_time() - begin) * 5


def lines(files: list[Path], times: Path = TIMES) -> list[str]:
    """Return the table: stages in wall-clock time, below a stage of tests its folders by the sum of their tests, and the dearest tests."""
    results = {file.stem: file for file in files}
    tests = {name: cases(file) for name, file in results.items()}
    result, spans = [""], stages(times) | {name: ran(file) for name, file in results.items()}
    for name, (begin, end) in spans.items():
        result.append(f"{name:<24}{clock(end - begin):>14}")
        for row, (count, seconds, cpu) in folders(tests.get(name, [])).items():
            result.append(f"  {row:<22}{clock(seconds):>14}   {clock(cpu):>14} of a processor   in {count} tests")
    if spans:
        whole = max(end for _, end in spans.values()) - min(begin for begin, _ in spans.values())
        result += [f"{'all':<24}{clock(whole):>14}", processors(times)]
    dearest = sorted((case for of in tests.values() for case in of), key=lambda case: case.cpu, reverse=True)
    return result + [f"{case.cpu:6.0f} s of a processor: {case.name}" for case in dearest[:DEAREST] if case.cpu]
