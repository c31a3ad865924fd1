"""What JUnit files say, as pytest writes them (summary.py), and what the tests add to them (conftest.py)."""

import os
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pytest
from _pytest.junitxml import xml_key  # pytest has a public name only for fixtures: record_testsuite_property

SELECTED = "selected"
BEFORE = pytest.StashKey[float]()


class Failure(NamedTuple):
    """A test that failed: its name as pytest takes it (empty where no file has it), and the line that says so."""

    nodeid: str
    line: str


def counted(files: Iterable[Path]) -> dict[str, int]:
    """Return the attributes of every test suite of the files, summed."""
    total = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
    for file in files:
        for suite in ElementTree.parse(file).getroot().iter("testsuite"):
            for key in total:
                total[key] += int(suite.get(key, "0"))
    return total


def failed(files: Iterable[Path], lines: int = 4) -> list[Failure]:
    """Return each failure of each test: its name, where, and the first lines of what it says."""
    result = []
    for file in files:
        for case in ElementTree.parse(file).getroot().iter("testcase"):
            for fault in (*case.iter("failure"), *case.iter("error")):
                where = (fault.text or "").strip().rpartition("\n")[2]
                said = " | ".join(line.strip() for line in fault.get("message", "").splitlines()[:lines])
                name, of = case.get("name", ""), case.get("classname", "")
                result.append(Failure(_nodeid(of, name), f"{of}::{name}, {where}: {said}"))
    return result


def _nodeid(classname: str, name: str) -> str:
    """`FILE::Class::test_c` of `tests.a.test_b.Class` and `test_c@group`, where that file exists here."""
    parts = classname.split(".")
    for count in range(len(parts), 0, -1):
        file = Path(*parts[:count]).with_suffix(".py")
        if file.is_file():
            return "::".join([str(file), *parts[count:], name.rpartition("@")[0] or name])
    return ""


def unfinished(file: Path) -> str:
    """Return how many of the selected tests a file has no result of; empty if it has all.

    A worker of pytest-xdist that crashes takes those with it that it had not begun, and a signal ends all.
    """
    (suite,) = ElementTree.parse(file).getroot().iter("testsuite")
    selected = sum(int(each.get("value", "0")) for each in suite.iterfind(f"properties/property[@name='{SELECTED}']"))
    results = len({(case.get("classname"), case.get("name")) for case in suite.iter("testcase")})
    if not selected:
        return "selected no test"
    return f"did not run to its end: {results} of {selected} tests have a result" if results < selected else ""


class Recorder:
    """Puts into the JUnit file how many tests were selected, and what each of them and its fixtures took of the processors."""

    def __init__(self) -> None:
        """Nothing is selected yet."""
        self._selected = 0

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Count the tests of a run in one process, or in a worker, which writes no file."""
        self._selected = len(session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """Count the tests of a run in several processes: each worker has collected all."""
        self._selected = len(ids)

    @pytest.hookimpl(tryfirst=True)  # before the file is written
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Note how many were selected."""
        if file := session.config.stash.get(xml_key, None):
            file.add_global_property(SELECTED, self._selected)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Note the processor time until now."""
        item.stash[BEFORE] = _processor_seconds()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        """Note the difference once all is torn down."""
        if call.when == "teardown":
            item.user_properties.append(("cpu", f"{_processor_seconds() - item.stash[BEFORE]:.1f}"))


def _processor_seconds() -> float:
    """Return what this process and its children took, those that run included; of their children those that have ended."""
    texts = [_text(path) for path in Path("/proc/self/task").glob("*/children")]
    stats = [_text(Path("/proc", child, "stat")) for text in texts for child in text.split()]
    ticks = sum(sum(map(int, text.rpartition(")")[2].split()[11:15])) for text in stats)  # utime to cstime: proc(5)
    return sum(os.times()[:4]) + ticks / os.sysconf("SC_CLK_TCK")


def _text(path: Path) -> str:
    """Return what /proc has there; nothing for what has ended meanwhile."""
    try:
        return path.read_text("utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return ""
