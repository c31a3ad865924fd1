"""A rank that is gone without a word: the others say so in a sentence, well before the job's own time is over."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import forked
import pytest
from checkout import SOURCES
from tiny import make_phase
from torch.distributed import DistBackendError, DistNetworkError
from trainlab.config import Phase
from trainlab.engine import dist
from trainlab.errors import LOST_PEER
from trainlab.recipes.base import Run
from trainlab.run import worker
from trainlab.run.launch import ended

# Rank 1 joins, then hangs as in a node that lost its network; rank 0 waits for it.
RANK = """
import sys, time
from pathlib import Path
from types import SimpleNamespace
from trainlab.engine import dist
from trainlab.recipes.base import Run
from trainlab.run import worker
worker.work = lambda *_: dist.gather(1) if dist.rank() == 0 else time.sleep(600)
phase = SimpleNamespace(resources=SimpleNamespace(timeout_minutes=0.1, gpus_per_node=0))
worker.rank_main(Run(phase, *[Path()] * 3))
"""


@pytest.mark.slow
def test_the_others_say_that_a_rank_is_lost(tmp_path: Path) -> None:
    program = tmp_path / "rank.py"
    program.write_text(RANK, encoding="utf-8")
    ranks = forked.ranks(program, [], {**os.environ, "CUDA_VISIBLE_DEVICES": ""})
    try:
        told, _ = ranks[0].communicate()
    finally:
        for rank in ranks:
            rank.send_signal(signal.SIGKILL)
    assert ranks[0].returncode == 200 and "Traceback" not in told, told
    assert "error: rank 0: no answer from another rank for 0.05 minutes: its pod or node is gone, or hangs; see" in told


DUPLICATE = """NCCL error in: ProcessGroupNCCL.cpp:3690, invalid usage (run with NCCL_DEBUG=WARN for details)
ncclInvalidUsage: This usually reflects invalid usage of NCCL library.
Last error:
Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000"""
GONE = """NCCL error in: ProcessGroupNCCL.cpp:3690, remote process exited or there was a network error, NCCL version 2.27.5
ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.
Last error:
socketProgress: Connection closed by remote peer pod-1<40338>"""
SOCKETS = "NCCL error in: NCCLUtils.cpp:94, internal error\nLast error:\nBootstrap : no socket interface found"


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (DistBackendError(GONE), True),
        (DistBackendError(DUPLICATE), False),
        (DistBackendError(SOCKETS), False),
        (RuntimeError("[gloo/transport/tcp/pair.cc:542] Connection closed by peer [127.0.0.1]:5062"), True),
        (RuntimeError("[gloo/transport/tcp/pair.cc:547] Read error [127.0.0.1]:8: Connection reset by peer"), True),
        (DistNetworkError("Connection was likely closed. Did the remote server shutdown or crash?"), True),
        (DistNetworkError("The server socket has failed to listen on any local network address. port: 29500"), False),
        (RuntimeError("shape mismatch"), False),
    ],
)
def test_only_a_connection_that_broke_is_a_lost_peer(error: Exception, lost: bool) -> None:
    assert worker.lost_peer(error) is lost


# One rank whose work ends with an error of torch.
FAILED = """
import sys
from pathlib import Path
from types import SimpleNamespace
from torch.distributed import DistBackendError
from trainlab.recipes.base import Run
from trainlab.run import worker
def work(*_):
    raise DistBackendError(sys.argv[1])
worker.work = work
worker.rank_main(Run(SimpleNamespace(resources=SimpleNamespace(timeout_minutes=1, gpus_per_node=0)), *[Path()] * 3))
"""


@pytest.mark.rest
@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (DUPLICATE, 1, "error: rank 0: the ranks cannot reach one another: NCCL error in"),
        (GONE, 200, "error: rank 0: another rank exited; see its own message (NCCL error in"),
    ],
)
def test_the_words_of_nccl_are_printed(text: str, code: int, said: str) -> None:
    env = {**{k: v for k, v in os.environ.items() if k not in ("WORLD_SIZE", "RANK")}, "PYTHONPATH": str(SOURCES)}
    command = [sys.executable, "-c", FAILED, text]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == code and "Traceback" not in done.stderr, done.stderr
    assert said in done.stderr and " ".join(text.splitlines()[-1].split()) in done.stderr


def test_a_rank_whose_peer_is_lost_at_the_end_of_a_complete_run_lets_the_operator_restart_it(
    gpus: Phase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1 would fail the job for good; the next start reads that the run is complete."""

    def leave() -> None:
        raise RuntimeError("Connection closed by peer [10.0.0.1]:2")

    monkeypatch.setattr(worker, "_name_process", lambda: None)  # of the tests' own process
    monkeypatch.setattr(worker.threading, "excepthook", worker.threading.excepthook)
    monkeypatch.setattr(worker, "work", lambda run: None)
    monkeypatch.setattr(worker.dist, "start", lambda *_: None)
    monkeypatch.setattr(worker.dist, "leave", leave)
    assert worker._run(Run(gpus, tmp_path, tmp_path, tmp_path)) == LOST_PEER
    assert "another rank exited" in capsys.readouterr().err


@pytest.mark.parametrize(("timeout_minutes", "minutes"), [(1, 0.5), (20, 10), (120, 30), (2880, 30)])
def test_ranks_wait_less_than_the_job_may_take(timeout_minutes: int, minutes: float) -> None:
    assert dist.wait_limit(timeout_minutes).total_seconds() == minutes * 60


@pytest.fixture
def gpus(phase_dict: dict[str, Any]) -> Phase:
    return make_phase(phase_dict, resources={"nodes": 2, "gpus_per_node": 1, "timeout_minutes": 120})


def test_torchs_watchdog_ends_a_rank_with_a_gpu_by_a_signal(gpus: Phase, phase_dict: dict[str, Any]) -> None:
    told = ended(1, -6, gpus)
    assert told.startswith(
        "rank 1 was ended by SIGABRT: with GPUs also the end of a wait of 30 minutes for another rank"
    )
    assert "another rank" not in ended(0, -6, make_phase(phase_dict))
    assert "phase.resources.memory" in ended(0, -9, gpus)
    assert ended(0, 2, gpus) == "rank 0 exited with code 2; see its message above"
