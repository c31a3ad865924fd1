"""TRAINLAB_PATIENCE multiplies every wait of the embedded cluster; an invalid value is refused with a message."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CLUSTER = Path(__file__).resolve().parents[2] / "cluster"


def limits(patience: str) -> subprocess.CompletedProcess[str]:
    """What a wait of 240 s becomes with this patience, in a process of its own."""
    code = "from embedded_cluster import patience; print(patience.seconds(240), patience.hint())"
    env = {**os.environ, "TRAINLAB_PATIENCE": patience}
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


def test_check_explains_a_wrong_patience() -> None:
    """The command line reports it as one line, not as a traceback."""
    env = {**os.environ, "TRAINLAB_PATIENCE": "soon"}
    done = subprocess.run(
        [sys.executable, str(CLUSTER), "status"], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: TRAINLAB_PATIENCE=soon: give a number") and "Traceback" not in done.stderr
