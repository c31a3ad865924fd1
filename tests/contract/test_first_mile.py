"""What people type is what CI runs: CONTRIBUTING's command and the README's line of requirements."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_ci_runs_the_command_before_a_merge() -> None:
    """.ci/run runs `make test` and, until 40 minutes are over, what that leaves out: nothing is installed for it."""
    text = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    said = [word.strip() for line in lines for word in re.split(r"&&|;", line)]
    assert said == [
        *(
            'cd "$(dirname "$0")/.."',
            "until=$(($(date +%s) + 2400))",
            "make test || exit",
            '[ "$(date +%s)" -lt "$until" ] || exit 0 # the programs of what is left out take ten minutes',
            "rm -f artifacts/{rest,slow,more}.xml # of an earlier run, should a program of these not build",
            'make --keep-going -j2 test-api test-rest UNTIL="$until"',
        ),
        "exec .venv/bin/python tests/summary.py artifacts/{check,api,e2e,rest,slow,more}.xml",
    ]
    assert "`make test` before a merge; CI runs `.ci/run`" in CONTRIBUTING


def test_readme_has_one_line_of_needs() -> None:
    """The fresh machines of tests/fresh get exactly these packages."""
    match = re.findall(r"apt-get install --no-install-recommends ([a-z0-9 .+-]+)", README)
    assert match == ["git make python3 ca-certificates curl"]
