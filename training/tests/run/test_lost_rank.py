"""A rank that is gone without a word: the others say so in a sentence, well before the job's own time is over."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from checkout import SOURCES
from ports import free_port
from tiny import make_phase
from trainlab.config import Phase
from trainlab.engine import dist
from trainlab.run.launch import ended

# Rank 1 joins, then hangs as in a node that lost its network; rank 0 waits for it.
RANK = """
import sys, time
from pathlib import Path
from types import SimpleNamespace
from trainlab.engine import dist
from trainlab.run import worker
worker.work = lambda *_: dist.gather(1) if dist.rank() == 0 else time.sleep(600)
phase = SimpleNamespace(resources=SimpleNamespace(timeout_minutes=0.1))
worker.rank_main(phase, *[Path()] * 4)
"""


@pytest.mark.whole
def test_the_others_say_that_a_rank_is_lost(tmp_path: Path) -> None:
    env = {
        **os.environ,
        **{"PYTHONPATH": str(SOURCES), "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        **{"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())},
    }
    ranks = [
        subprocess.Popen([sys.executable, "-c", RANK], env={**env, "RANK": str(i)}, stderr=subprocess.PIPE, text=True)
        for i in range(2)
    ]
    try:
        told = ranks[0].communicate(timeout=300)[1]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert ranks[0].returncode == 200 and "Traceback" not in told, told
    assert "error: rank 0: no answer from another rank for 0.05 minutes: its pod or node is gone, or hangs; see" in told


@pytest.mark.parametrize(("timeout_minutes", "minutes"), [(1, 0.5), (20, 10), (120, 30), (2880, 30)])
def test_ranks_wait_less_than_the_job_may_take(timeout_minutes: int, minutes: float) -> None:
    assert dist.patience(timeout_minutes).total_seconds() == minutes * 60


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
