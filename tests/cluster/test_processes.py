"""Commands in parallel: how they end, and what is printed by then."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from embedded_cluster.base import processes
from embedded_cluster.base.say import UserError

CLUSTER = Path(__file__).resolve().parents[2] / "cluster"
FLOODED = """
import sys
from embedded_cluster.base import ends, processes
sys.exit(ends.run(lambda: len(processes.together({"one": ["yes"], "two": ["yes"]}, "")), "go on"))
"""
TIMES = 10
"""A line is being printed in most of them when the signal comes."""


@pytest.mark.rest
def test_ended_while_lines_are_printed() -> None:
    """The sentence is the last line, and Python does not abort because one of its threads was printing."""
    for _ in range(TIMES):
        argv = [sys.executable, "-c", FLOODED]
        with subprocess.Popen(
            argv,
            env={"PYTHONPATH": str(CLUSTER), "PATH": "/usr/bin:/bin"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as flooded:
            assert flooded.stdout is not None
            flooded.stdout.read(1 << 16)
            flooded.terminate()
            _, said = flooded.communicate()
        assert (flooded.returncode, said) == (128 + signal.SIGTERM, b"error: ended by a signal; go on\n")


def test_the_first_that_fails_ends_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    commands = {"sleeps": ["sleep", "600"], "fails": ["sh", "-c", "echo before; echo error: why; exit 3"]}
    with pytest.raises(UserError, match=r"^fails: why; mend it$"):
        processes.together(commands, "mend it")
    assert capsys.readouterr().out == "fails     before\nfails     error: why\n"


def test_all_have_ended_when_it_returns() -> None:
    one, other = processes.together({"one": ["true"], "other": ["sh", "-c", "sleep 1; echo last"]}, "")
    assert (one.name, other.name, other.last) == ("one", "other", "last") and other.seconds >= 1
