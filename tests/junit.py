"""What JUnit files say, as pytest writes them; used by summary.py."""

import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


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
