"""`make demo-alone` to its end, with the fastest phase: trained in processes, served, queried as printed, stopped."""

from __future__ import annotations

import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from embedded_cluster.base import locks
from ports import free_port

from e2e import machine, stopping

REPO = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.e2e, pytest.mark.rest, pytest.mark.timeout(1500)]


def _make(target: str, **variables: str) -> str:
    done = subprocess.run(
        ["make", target],
        cwd=REPO,
        env={**machine.ENVIRONMENT, "PHASE": "resnet", **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def port() -> Iterator[str]:
    """A free port, and no run of an earlier version; afterwards the server has ended, and what it wrote is gone."""
    shutil.rmtree(machine.HOME / f"alone-{machine.CLUSTER}" / "runs", ignore_errors=True)
    yield str(free_port())
    _make("demo-down")


def _ended_at(line: str, number: signal.Signals, port: str) -> None:
    environment = machine.ENVIRONMENT | {"PHASE": "resnet", "PORT": port}
    ended = stopping.at(f"==> {line}", number, ["cluster/python", "cluster", "demo-alone"], environment)
    output = "".join(ended.lines)
    assert ended.code == 128 + number, output
    assert ended.lines[-1].startswith("error: ") and "Traceback" not in output, output
    assert [text for text in ended.lines if text.startswith("==> ")][-1].startswith(f"==> {line}"), output
    assert not ended.left
    assert not [file for file in machine.HOME.glob("*lock*") if locks.held(file) and "test" in file.name]


@pytest.mark.parametrize(
    ("line", "number"),
    [
        pytest.param("check", signal.SIGTERM, marks=pytest.mark.tier),
        pytest.param("base model", signal.SIGINT, marks=pytest.mark.tier),
        pytest.param("train, score", signal.SIGTERM),
    ],
)
def test_nothing_runs_on_after_a_signal(port: str, line: str, number: signal.Signals) -> None:
    """Nor is a lock held; the next test goes on from there."""
    _ended_at(line, number, port)


def test_it_trains_serves_and_answers_what_it_prints(port: str) -> None:
    said = _make("demo-alone", PORT=port)
    steps = [line for line in said.splitlines() if line.startswith("==> ")]
    assert [line.split(":")[0] for line in steps] == [
        "==> check",
        "==> base model",
        "==> train, score, gate, report",
        "==> server on 127.0.0.1",
    ]
    assert "trainlab: promoted: Test accuracy went from" in said
    rows = re.findall(r"^(accuracy|test accuracy) .* (?:better, )?\d+ images$", said, re.MULTILINE)
    assert rows == ["accuracy", "test accuracy"], "a line for each score"
    assert said.rstrip().endswith("No cluster was used: processes on this machine trained, and a local server answers.")
    asked = re.search(r"^ask +(curl .*)$", said, re.MULTILINE)
    assert asked is not None
    answer = subprocess.run(asked[1], shell=True, capture_output=True, text=True, check=True).stdout
    assert '"tuned"' in answer
    report = re.search(r"^report +(\S+)$", said, re.MULTILINE)
    assert report is not None and "<html" in Path(report[1]).read_text(encoding="utf-8")


def test_again_trains_nothing_and_takes_the_port_of_its_own_server(port: str) -> None:
    said = _make("demo-alone", PORT=port)
    assert "training from step" not in said and "No cluster was used" in said


def test_a_server_that_is_not_ready_ends_with_the_command(port: str) -> None:
    _ended_at("server on", signal.SIGINT, port)


def test_a_port_of_somebody_else_is_refused(port: str) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = str(other.getsockname()[1])
        env = {**machine.ENVIRONMENT, "PHASE": "resnet", "PORT": taken}
        done = subprocess.run(
            ["cluster/python", "cluster", "demo-alone"],
            cwd=REPO,
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr == (
        f"error: port {taken} on 127.0.0.1 is in use: stop what listens there or choose another: "
        f"PORT={int(taken) + 10} make demo-alone\n"
    )
