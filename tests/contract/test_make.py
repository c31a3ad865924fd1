"""`make test` runs the check, then e2e; a failure in the first hides nothing of the second, and an interruption ends all.

The real Makefile with programs of this file in place of pytest, the linters and the embedded cluster.
"""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CLUSTER = "#!/bin/sh\n[ $1 != check ] || exit 3\n"
PYTEST = """#!/bin/sh
case "$*" in *"-m e2e"*) name=e2e;; *) name=check;; esac
trap 'echo ended; exit 2' INT TERM
mkdir running || exit 3
echo one; echo two
[ "$WAIT" != $name ] || { while :; do sleep 0.05; done; }
rmdir running
[ $name = e2e ]
"""


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    """Return the command: each pytest refuses to run next to the other half, and that of the check fails."""
    programs = {
        "cluster": CLUSTER,
        "pytest": PYTEST,
        "python": "#!/bin/sh\necho summary of $*\n",
    }
    programs |= dict.fromkeys(("ruff", "lint-imports", "mypy", "yamllint", "ansible-lint", "shellcheck"), "#!/bin/sh\n")
    for name, text in programs.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "Makefile").symlink_to(ROOT / "Makefile")
    return ["make", "-C", str(tmp_path), "test", "BIN=.", "EMBEDDED_CLUSTER=./cluster"]


def _environment(**more: str) -> dict[str, str]:
    of_make = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")
    return {key: value for key, value in os.environ.items() if key not in of_make} | more


def test_one_half_after_the_other_and_then_the_summary(command: list[str]) -> None:
    done = subprocess.run(
        command, env=_environment(), capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, check=False
    )
    tests = [line for line in done.stdout.splitlines() if line.startswith(("check: ", "e2e: "))]
    assert sorted(tests) == ["check: one", "check: two", "e2e: one", "e2e: two"], done.stdout
    assert "summary of tests/summary.py artifacts/check.xml artifacts/e2e.xml" in done.stdout.splitlines()
    assert "warning" not in done.stderr


@pytest.mark.parametrize("half", ["check", "e2e"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_an_interruption_ends_all(command: list[str], half: str, number: signal.Signals) -> None:
    """Ctrl-C of a terminal reaches every process of the group, `kill` only make; the half prints its last lines."""
    with subprocess.Popen(
        command,
        env=_environment(WAIT=half),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout
        line = ""
        while line != f"{half}: two\n":  # by then the program that prefixes the lines runs as well
            line = process.stdout.readline()
            assert line, "ended before the signal"
        (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
        said, _ = process.communicate(timeout=30)
    assert process.returncode not in (0, 1)
    assert f"{half}: ended" in said.splitlines()
    assert "summary" not in said
    assert half == "e2e" or "e2e: " not in said
