"""`make test`: the check, then the API servers' tests alongside e2e; a failure hides no other, an interruption ends all.

The real Makefile with programs of this file in place of pytest, the linters and the embedded cluster.
"""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(300)
ROOT = Path(__file__).resolve().parents[2]
CLUSTER = "#!/bin/sh\n[ $1 != check ] || exit 3\n"
PYTEST = """#!/bin/sh
case "$*" in *e2e.xml*) name=e2e other=api;; *api.xml*) name=api other=e2e;; *) name=check;; esac
trap 'echo ended; exit 2' INT TERM
touch $name
if [ $name = check ]; then [ ! -e api ] && [ ! -e e2e ] || exit 3
else [ -e done ] || exit 3; until [ -e $other ]; do sleep 0.05; done; fi
echo one; echo two
case "$WAIT" in *$name*) while :; do sleep 0.05; done;; esac
[ $name != check ] || touch done
[ $name = e2e ]
"""


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    """Return the command: the check's pytest runs alone and fails, the other two wait for each other, and one fails."""
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


def test_the_check_then_the_other_two_and_then_the_summary(command: list[str]) -> None:
    done = subprocess.run(
        command, env=_environment(), capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )
    lines = done.stdout.splitlines()
    tests = [line for line in lines if line.startswith(("check: ", "api: ", "e2e: "))]
    assert sorted(tests) == [f"{part}: {line}" for part in ("api", "check", "e2e") for line in ("one", "two")], (
        done.stdout
    )
    assert (
        "summary of tests/summary.py artifacts/check.xml artifacts/api.xml artifacts/e2e.xml artifacts/times/lint-rest.end"
        in lines
    )
    assert "warning" not in done.stderr


@pytest.mark.parametrize("parts", ["check", "api e2e"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_an_interruption_ends_all(command: list[str], parts: str, number: signal.Signals) -> None:
    """Ctrl-C of a terminal reaches every process of the group, `kill` only make; each part prints its last lines."""
    with subprocess.Popen(
        command,
        env=_environment(WAIT=parts),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout
        waited = {f"{part}: two" for part in parts.split()}  # by then the programs that prefix the lines run as well
        while waited:
            line = process.stdout.readline()
            assert line, "ended before the signal"
            waited.discard(line.rstrip())
        (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
        said, _ = process.communicate()
    assert process.returncode not in (0, 1)
    assert {f"{part}: ended" for part in parts.split()} <= set(said.splitlines())
    assert "summary" not in said
    assert parts != "check" or "e2e: " not in said


def test_a_second_one_in_the_same_checkout_is_refused(command: list[str]) -> None:
    """They would write over each other's results; once the first has ended, even by kill -9, the next one begins."""
    with subprocess.Popen(
        command, env=_environment(WAIT="check"), stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as first:
        assert first.stdout
        while "check: two" not in (line := first.stdout.readline()):
            assert line, "ended before the second began"
        second = subprocess.run(command, env=_environment(), capture_output=True, text=True, check=False)
        assert second.returncode == 2 and "another make test runs in this checkout" in second.stderr
        os.killpg(first.pid, signal.SIGKILL)
    third = subprocess.run(command, env=_environment(), capture_output=True, text=True, check=False)
    assert "another make test" not in third.stderr and "summary of tests/summary.py" in third.stdout
