"""TRAINLAB_PATIENCE, or a busy machine, multiplies every wait of the embedded cluster; an invalid value is refused."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from embedded_cluster.base import patience

CLUSTER = Path(__file__).resolve().parents[2] / "cluster"


def limits(factor: str) -> subprocess.CompletedProcess[str]:
    """What a wait of 240 s becomes with this patience, in a process of its own."""
    code = "from embedded_cluster.base import patience; print(patience.seconds(240), patience.hint())"
    env = {**os.environ, "TRAINLAB_PATIENCE": factor}
    return subprocess.run(
        [sys.executable, "-c", code], cwd=CLUSTER, env=env, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(("given", "seconds"), [("", "240.0"), ("1", "240.0"), ("2.5", "600.0")])
def test_patience_is_a_multiple(given: str, seconds: str) -> None:
    done = limits(given)
    assert done.stdout.startswith(seconds), done.stderr
    assert f"TRAINLAB_PATIENCE={2 * float(given or 1):g}" in done.stdout


@pytest.mark.parametrize("given", ["0.5", "0", "-3", "nan", "inf", "long"])
def test_wrong_patience_is_refused(given: str) -> None:
    done = limits(given)
    assert done.returncode
    assert f"TRAINLAB_PATIENCE={given}: give a number of at least 1" in done.stderr


@pytest.mark.parametrize(
    ("given", "tasks", "factor", "said"),
    [
        ("", 1.0, 1, ""),
        ("", 2.0, 1, ""),
        ("", 10.0, 5, "5 tasks share each processor: limits of waits are multiplied by 5 (TRAINLAB_PATIENCE)"),
        ("3", 10.0, 5, "5 tasks share each processor: limits of waits are multiplied by 5 (TRAINLAB_PATIENCE)"),
        ("6", 10.0, 6, ""),
        ("", 100.0, 10, "50 tasks share each processor: limits of waits are multiplied by 10 (TRAINLAB_PATIENCE)"),
        ("15", 100.0, 15, ""),
    ],
)
def test_a_busy_machine_raises_the_factor_and_says_so_in_one_line(
    given: str,
    tasks: float,
    factor: float,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Two processors; what somebody set is never lowered."""
    monkeypatch.setenv(patience.VARIABLE, given)
    monkeypatch.setattr(patience, "_floor", 1.0)
    patience.raise_for(tasks, processors=2)
    assert patience.factor() == factor and patience.seconds(240) == 240 * factor
    assert capsys.readouterr().out.strip() == said


def test_a_command_looks_at_the_machine_when_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also `down`, here refused for its user; a command whose output programs read says nothing of it."""
    code = """
import os, sys
from embedded_cluster import commands
from embedded_cluster.base import patience
from embedded_cluster.tasks import preflight
os.getloadavg, os.cpu_count = lambda: (14.0, 1.0, 1.0), lambda: 2
preflight.cannot_start = lambda: "no"
sys.argv = ["cluster", *sys.argv[1:]]
commands.main()
print(patience.factor())
"""
    monkeypatch.setenv(patience.VARIABLE, "2")
    for command, last in (("down", "7.0"), ("status", "2.0")):
        done = subprocess.run(
            [sys.executable, "-c", code, command], cwd=CLUSTER, capture_output=True, text=True, check=False
        )
        assert done.stdout.splitlines()[-1:] == [last], done.stderr
        assert ("7 tasks share each processor" in done.stdout) is (command == "down")


def test_check_explains_a_wrong_patience() -> None:
    """The command line reports it as one line, not as a traceback."""
    env = {**os.environ, "TRAINLAB_PATIENCE": "soon"}
    done = subprocess.run(
        [sys.executable, str(CLUSTER), "status"], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: TRAINLAB_PATIENCE=soon: give a number") and "Traceback" not in done.stderr


def test_a_wrong_name_is_all_that_a_busy_machine_says(monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import os; os.getloadavg = lambda: (500.0, 1.0, 1.0); from embedded_cluster import commands; import sys; "
    monkeypatch.setenv("TRAINLAB_CLUSTER", "No Name")
    command = [sys.executable, "-c", f"{code}sys.argv = ['cluster', 'down']; sys.exit(commands.main())"]
    done = subprocess.run(command, cwd=CLUSTER, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "") and done.stderr.startswith("error: TRAINLAB_CLUSTER=No Name")
