"""What JUnit files say, as pytest writes them; used by summary.py."""

import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable
from pathlib import Path


def counted(files: Iterable[Path]) -> dict[str, int]:
    """Return the attributes of every test suite of the files, summed."""
    total = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
    for file in files:
        for suite in ElementTree.parse(file).getroot().iter("testsuite"):
            for key in total:
                total[key] += int(suite.get(key, "0"))
    return total


def failed(files: Iterable[Path], lines: int = 4) -> list[str]:
    """Return a line for each test that failed: its name, where, and the first lines of what it says."""
    found = []
    for file in files:
        for case in ElementTree.parse(file).getroot().iter("testcase"):
            for fault in (*case.iter("failure"), *case.iter("error")):
                where = (fault.text or "").strip().rpartition("\n")[2]
                said = " | ".join(line.strip() for line in fault.get("message", "").splitlines()[:lines])
                found.append(f"failed: {case.get('classname')}::{case.get('name')}, {where}: {said}")
    return found
