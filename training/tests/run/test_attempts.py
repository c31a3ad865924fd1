"""Restarts of a run: what is recorded, when a job has used them up, what was taken twice."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tiny import make_phase
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from trainlab.engine import checkpoints
from trainlab.errors import LOST_PEER, UserError
from trainlab.progress import Numbers, Progress
from trainlab.recipes.base import Run
from trainlab.run import attempts, launch
from trainlab.run.tracker import Tracker

OPERATOR = {"PET_NNODES": "2", "PET_NODE_RANK": "0"}


def train(run_dir: Path, last: int, whole: int) -> None:
    """Take steps up to `last`; the checkpoint of step `whole` is the newest one."""
    step = attempts.LastStep(run_dir)
    for number in range(1, last + 1):
        step(number)
    folder = run_dir / "checkpoints" / f"checkpoint-{whole}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "weights").write_text(str(whole), encoding="ascii")
    checkpoints.mark(folder)


def test_each_restart_says_where_it_goes_on_and_the_one_after_the_last_is_refused(tmp_path: Path) -> None:
    assert attempts.begin(tmp_path, 2) == ""
    train(tmp_path, 7, 5)
    assert attempts.begin(tmp_path, 2) == "restart 1 of 2: goes on at step 5, 2 steps are repeated"
    assert not attempts.is_last(tmp_path, 2)
    train(tmp_path, 11, 10)
    assert attempts.begin(tmp_path, 2) == "restart 2 of 2: goes on at step 10, 1 step is repeated"
    assert attempts.is_last(tmp_path, 2)
    with pytest.raises(attempts.UsedUp, match=r"phase.resources.restarts is 2: the job was started again 2 times"):
        attempts.begin(tmp_path, 2)
    assert attempts.summary(tmp_path) == {"restarts": 2, "repeated_steps": 3}
    # whoever starts it again after that has all restarts again
    assert attempts.begin(tmp_path, 2).startswith("started again: goes on at step 10")
    assert attempts.begin(tmp_path, 2).startswith("restart 1 of 2")


def test_a_start_after_an_end_with_an_error_is_no_restart(tmp_path: Path) -> None:
    attempts.begin(tmp_path, 1)
    attempts.end(tmp_path, 2)
    assert attempts.begin(tmp_path, 1) == "started again: goes on at step 0, 0 steps are repeated"
    assert attempts.begin(tmp_path, 1).startswith("restart 1 of 1")


def test_a_run_that_is_only_scored_again_repeats_no_step(tmp_path: Path) -> None:
    attempts.begin(tmp_path, 1)
    attempts.LastStep(tmp_path)(100)
    (tmp_path / "training_summary.json").touch()
    assert attempts.begin(tmp_path, 1) == "restart 1 of 1: goes on at step 100, 0 steps are repeated"


def test_where_nothing_restarts_it_nothing_is_refused(tmp_path: Path) -> None:
    for _ in range(5):
        attempts.begin(tmp_path, None)
    assert attempts.summary(tmp_path)["restarts"] == 4


def test_rank_0_leaves_its_last_step_on_the_volume(tmp_path: Path) -> None:
    progress = Progress(False)
    tracker = Tracker(progress, tmp_path)
    assert attempts.reached(tmp_path) == 0
    for step in (9, 10, 11):
        progress.at(Numbers(step, 20))
        assert attempts.reached(tmp_path) == step
    tracker.end()


@pytest.mark.parametrize(
    ("rank", "codes", "ends"),
    [
        ("0", [LOST_PEER, 137, LOST_PEER], [LOST_PEER, 137, 1]),  # two restarts, then the job has used them up
        ("0", [143, 143, 143], [143, 143, 143]),  # told to end, which counts nothing
        ("0", [2], [2]),  # an error of its own
        ("1", [LOST_PEER, 137, 139], [LOST_PEER, 137, 139]),  # the first pod counts
    ],
)
def test_a_pod_ends_so_that_its_operator_restarts_it_or_does_not(
    rank: str,
    codes: list[int],
    ends: list[int],
    tmp_path: Path,
    phase_dict: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    torchruns_handler: None,
) -> None:
    phase = make_phase(phase_dict, resources={"nodes": 2, "restarts": 2})
    for name, value in {**OPERATOR, "PET_NODE_RANK": rank}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(launch, "REPORTED_FIRST", 0.0)
    given = iter(codes)
    monkeypatch.setattr(launch, "_torchrun", lambda *_: next(given))
    args: Any = SimpleNamespace()
    assert [launch._attempt(Run(phase, tmp_path, tmp_path, tmp_path), args) for _ in codes] == ends
    recorded = [start.get("ended") for start in attempts.read(tmp_path)]
    assert recorded == ([code if code in (1, 2, 143) else None for code in ends] if rank == "0" else [])


@pytest.fixture
def torchruns_handler() -> Iterator[None]:
    """As torchrun leaves it, which ends whatever waits with an exception; the one of the tests comes back."""

    def handler(number: int, _: Any) -> None:
        raise SignalException(f"got signal: {number}", sigval=signal.Signals(number))

    before = signal.signal(signal.SIGTERM, handler)
    yield
    signal.signal(signal.SIGTERM, before)


def test_a_pod_deleted_while_it_waits_for_its_peers_end_says_nothing(
    tmp_path: Path, phase_dict: dict[str, Any], monkeypatch: pytest.MonkeyPatch, torchruns_handler: None
) -> None:
    """An operator that removes the pods of a failed job at once must not make a traceback of it."""
    for name, value in {**OPERATOR, "PET_NODE_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(launch, "_torchrun", lambda *_: LOST_PEER)
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
    args: Any = SimpleNamespace()
    phase = make_phase(phase_dict, resources={"nodes": 2, "restarts": 2})
    assert launch._attempt(Run(phase, tmp_path, tmp_path, tmp_path), args) == 128 + signal.SIGTERM


def test_without_an_operator_a_lost_rank_is_exit_code_1(
    tmp_path: Path, phase_dict: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("PET_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(launch, "_torchrun", lambda *_: LOST_PEER)
    args: Any = SimpleNamespace()
    assert launch._attempt(Run(make_phase(phase_dict), tmp_path, tmp_path, tmp_path), args) == 1


def test_the_first_container_leaves_its_error_to_the_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="no such model"), launch.report_fetch_error():
        raise UserError("no such model")
    monkeypatch.setenv(launch.FETCH_ERROR, str(tmp_path / "error"))
    launch.raise_fetch_error()
    with launch.report_fetch_error():
        raise UserError("no such model")
    with pytest.raises(UserError, match="no such model"):
        launch.raise_fetch_error()


@pytest.mark.parametrize(("ended", "code"), [(-signal.SIGKILL, 128 + signal.SIGKILL), (1, 1), (77, 1)])
def test_a_rank_that_a_signal_ended_lets_the_operator_make_the_pod_again(
    ended: int, code: int, phase_dict: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def failing(*_: Any) -> None:
        raise ChildFailedError("ranks", {0: ProcessFailure(local_rank=0, pid=1, exitcode=ended, error_file="none")})

    for name, value in {**OPERATOR, launch.RANK_THREADS: "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("torch.distributed.launcher.api.elastic_launch", lambda *_: failing)
    monkeypatch.setattr(launch.recipes, "get_recipe", lambda _: SimpleNamespace(preload=lambda: None))
    monkeypatch.setattr(launch.gc, "freeze", lambda: None)
    args: Any = SimpleNamespace(processes=None, argv=[], models=None)
    assert launch._torchrun(Run(make_phase(phase_dict), tmp_path, tmp_path, tmp_path), args) == code
