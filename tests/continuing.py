"""A slow tier goes on where it stopped: what passed with the files as they are is not run again (`pytest -p continuing --tier TIER`).

Tests of one file build on each other, so a file passes as a whole; where parameters are independent (mark `apart`), the tests of
each do. A change to any file that the tier covers (tiers.yaml), committed or not, starts it anew, as does `AGAIN=1`. When every
part has passed, the commit is written into tiers.yaml; a skipped test has not passed, and then the run has failed.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiers import Tiers, shown

FOLDER = Path("artifacts") / "tiers"


class Continuing:
    """Leaves out what passed, and writes down what passes as soon as it does: the next test may be the one that is killed."""

    def __init__(self, tier: str, root: Path, again: bool) -> None:
        """Read what passed with today's files."""
        self._tier, self._tiers, self._root = tier, Tiers(root), root
        self._file = root / FOLDER / f"{tier}.json"
        self._content = content(root, self._tiers.covered(tier))
        found = json.loads(self._file.read_text(encoding="utf-8")) if self._file.is_file() and not again else {}
        self._passed: list[str] = found.get("passed", []) if found.get("content") == self._content else []
        self._left: dict[str, set[str]] = defaultdict(set)
        self._skipped: dict[str, str] = {}
        self._verdict = ""

    @pytest.hookimpl(trylast=True)  # behind -m and -k
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out what passed."""
        done = [item for item in items if part(item) in self._passed]
        items[:] = [item for item in items if part(item) not in self._passed]
        config.hook.pytest_deselected(items=done)
        for item in items:
            self._left[part(item)].add(item.nodeid)
            if config.getoption("keyword") and not item.get_closest_marker("apart"):
                self._left[part(item)].add("what -k left out of the file")

    def pytest_report_collectionfinish(self) -> list[str]:
        """Say what is not run again."""
        return [f"passed with these files before (AGAIN=1 runs them again): {name}" for name in self._passed]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Notice a skipped test, which has not passed."""
        if report.skipped:
            self._skipped[report.nodeid] = str(report.longrepr[-1] if isinstance(report.longrepr, tuple) else "")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Write down the part whose last test this was, if all of its tests passed."""
        failed = item.session.testsfailed
        result = yield
        if item.nodeid not in self._skipped and item.session.testsfailed == failed:
            left = self._left[part(item)]
            left.discard(item.nodeid)
            if not left:
                self._passed.append(part(item))
                self._write()
        return result

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Note the commit if nothing is left; a part that has not run is no failure, a skipped test is."""
        if session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and self._passed:
            session.exitstatus = pytest.ExitCode.OK
        if session.exitstatus != pytest.ExitCode.OK or session.config.getoption("collectonly"):
            return
        if self._skipped:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
            reasons = dict.fromkeys(self._skipped.values())
            self._verdict = f"{self._tier}: not passed, tests were skipped: {'; '.join(reasons)}"
        elif session.config.getoption("keyword"):
            self._verdict = f"{self._tier}: not all of it, so not noted; without -k it goes on with the rest"
        elif self._content != content(self._root, self._tiers.covered(self._tier)):
            self._verdict = f"{self._tier}: passed, but not noted: files that it covers changed meanwhile"
        else:
            self._verdict = self._tiers.passed(self._tier)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say whether the tier passed."""
        if self._verdict:
            terminalreporter.write_line(self._verdict)
        elif self._passed:
            terminalreporter.write_line(f"{self._tier}: the same command goes on behind {shown(self._passed)}")

    def _write(self) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"content": self._content, "passed": self._passed}, indent=1)
        self._file.write_text(f"{text}\n", encoding="utf-8")


def part(item: pytest.Item) -> str:
    """Return what passes as a whole: the file, or file[parameters]."""
    file = item.nodeid.partition("::")[0]
    spec = getattr(item, "callspec", None)
    return f"{file}[{spec.id}]" if spec and item.get_closest_marker("apart") else file


def content(root: Path, files: list[str]) -> str:
    """Return the SHA-256 of names and contents."""
    digest = hashlib.sha256()
    for name in files:
        path = root / name
        digest.update(f"{name}\0".encode() + (hashlib.sha256(path.read_bytes()).digest() if path.is_file() else b""))
    return digest.hexdigest()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --tier."""
    parser.addoption("--tier", required=True, help="the tier of tests/tiers.yaml that is run")


def pytest_configure(config: pytest.Config) -> None:
    """Begin, or go on."""
    tier = config.getoption("tier")
    config.pluginmanager.register(Continuing(tier, config.rootpath, bool(os.environ.get("AGAIN"))))
