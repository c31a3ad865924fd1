"""Pods that are told to end by SIGTERM, as a queue that preempts a job does: a checkpoint is kept, nothing is counted."""

import json
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from ports import free_port
from slow import but_the_first
from tiny import make_phase
from trainlab.engine import checkpoints
from trainlab.run import attempts
from workplace import Workplace

TRAIN = {"epochs": 50, "batch_size": 1, "learning_rate": 0.01, "checkpoints": 2, "validation_fraction": 0.2}
JOBSET = {"JOB_COMPLETION_INDEX": "0"}


@pytest.fixture
def place(tmp_path: Path, tiny_model: Path, phase_dict: dict[str, Any]) -> Workplace:
    shutil.copytree(tiny_model, tmp_path / "models" / "tiny")
    return Workplace(tmp_path, make_phase(phase_dict, train=TRAIN, resources={"nodes": 2, "restarts": 1}))


def start(place: Workplace, run: str, **more: str) -> list[Any]:
    """Start both pods of the job as an operator does."""
    shared = {
        "PET_NNODES": "2",
        "PET_MASTER_ADDR": "127.0.0.1",
        "PET_MASTER_PORT": str(free_port()),
        "TRAINLAB_RUN": run,
    }
    return [place.start(**shared, **more, PET_NODE_RANK=str(rank)) for rank in range(2)]


def stopped(place: Workplace, run: str, told: list[int], **more: str) -> tuple[str, list[int]]:
    """Start the job, tell the pods `told` to end once it trains; return the first pod's output and both exit codes."""
    pods = start(place, run, **more)
    said = ""
    while "training from step" not in said:
        line = pods[0].stdout.readline()
        assert line, f"ended before it trained:\n{said}"
        said += line
    for each in told:
        pods[each].send_signal(signal.SIGTERM)
    outputs = [pod.communicate()[0] for pod in pods]
    return said + outputs[0], [pod.returncode for pod in pods]


def test_a_stop_counts_nothing_and_keeps_what_losses_have_counted(tmp_path: Path) -> None:
    attempts.begin(tmp_path, 1)
    for _round in range(5):
        attempts.end(tmp_path, attempts.STOPPED)
        assert attempts.begin(tmp_path, 1).startswith("started again: goes on at step")
        assert not attempts.is_last(tmp_path, 1)
    assert attempts.begin(tmp_path, 1).startswith("restart 1 of 1")  # a loss
    attempts.end(tmp_path, attempts.STOPPED)
    assert attempts.begin(tmp_path, 1).startswith("started again")
    assert attempts.is_last(tmp_path, 1)
    with pytest.raises(attempts.UsedUp):
        attempts.begin(tmp_path, 1)


@pytest.mark.rest
@pytest.mark.parametrize("job", [JOBSET, {}], ids=["trainjob", "pytorchjob"])
def test_more_preemptions_than_restarts_cost_none_and_no_step_and_end_in_the_same_bytes(
    place: Workplace, job: dict[str, str]
) -> None:
    """One restart is allowed; two rounds show it, and the count of five is above."""
    reached = 0
    for _round in range(2):
        said, codes = stopped(place, "preempted", [0, 1], **job)
        assert codes == [143, 143] and "Traceback" not in said, said
        good = checkpoints.last_good(place.root / "preempted" / "checkpoints", print)
        assert good is not None and checkpoints.step(good) > reached, said
        reached = checkpoints.step(good)
    for run in ("preempted", "alone"):
        pods = start(place, run, **job)
        outputs = [pod.communicate()[0] for pod in pods]
        assert [pod.returncode for pod in pods] == [0, 0], "\n".join(outputs)
    manifest = json.loads((place.root / "preempted" / "manifest.json").read_text())
    assert manifest["attempts"] == {"restarts": 2, "repeated_steps": 0}
    first, second = (
        (place.root / run / "best_model" / "model.safetensors").read_bytes() for run in ("preempted", "alone")
    )
    assert first == second


@pytest.mark.slow
@pytest.mark.parametrize("told", but_the_first([[1], [0]]), ids=["worker", "first"])
def test_one_pod_that_is_told_to_end_takes_the_others_along_with_a_checkpoint(
    place: Workplace, told: list[int]
) -> None:
    """A node that is drained, or a pod of a higher priority."""
    said, codes = stopped(place, "drained", told)
    assert codes == [143, 143], said
    assert re.search(r"rank 0: told to end by SIGTERM: the checkpoint of step \d+ is kept", said), said
    (only,) = attempts.read(place.root / "drained")
    assert only["ended"] == attempts.STOPPED
    assert checkpoints.last_good(place.root / "drained" / "checkpoints", print)
