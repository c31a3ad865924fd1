"""Counts of JUnit files, as pytest writes them; used by summary.py and tiers.py."""

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


def skipped(file: Path) -> list[str]:
    """Return why tests were skipped, each reason once."""
    reasons = (each.get("message", "") for each in ElementTree.parse(file).getroot().iter("skipped"))
    return list(dict.fromkeys(reasons))
