"""Each machine of cases.py on which something is missing, old, full or odd works, or ends with one sentence."""

from __future__ import annotations

import re

import pytest

from fresh.cases import CASES
from fresh.fresh_machine import booted
from fresh.watching import HANGS

pytestmark = pytest.mark.fresh
MAX_LENGTH = 500
"""Characters of a sentence."""
GATE = {
    "no network",
    "another Go",
    "Python 3.9 only",
    "HOME unset, a plain user",
    "a route to the cluster's own subnet",
    "macOS",
    "a TRAINLAB_HOME that is somebody else's",
}
"""One of each kind, for `make test`; `make test-fresh` has all."""


@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name in GATE else pytest.mark.tier) for name in CASES])
def test_machine(name: str) -> None:
    """It ends as its case specifies, with the case's messages, and never with a traceback."""
    case = CASES[name]
    with booted(case.machine) as fresh:
        ended = fresh.run(case.command, until=case.until, seconds=HANGS)
        asked = fresh.path("/asked")
        calls = asked.read_text(encoding="utf-8") if asked.exists() else ""
    assert "Traceback" not in ended.text, ended.shown()
    for pattern in case.says:
        assert re.search(pattern, ended.text, re.IGNORECASE), f"{pattern}\n{ended.shown()}"
    for pattern in case.never:
        assert not re.search(pattern, ended.text), f"{pattern}\n{ended.shown()}"
    assert not calls, f"a package manager that is not apt was run: {calls}"
    assert not ended.left, ended.shown()
    if case.until:
        assert ended.stopped, ended.shown()
    else:
        assert ended.code == case.code, ended.shown()
        told = [line for line in ended.err.splitlines() if line.startswith("error: ")]
        assert len(told) == (1 if case.code == 2 else 0), ended.shown()
        assert not told or len(told[0]) < MAX_LENGTH, told[0]
