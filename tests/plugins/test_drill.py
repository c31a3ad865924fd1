"""playbooks/drill.yml up to the strike: what it refuses, and the script that waits and kills in a training pod."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 20
SCRIPT = yaml.safe_load((ROOT / "roles/train/vars/main.yml").read_text(encoding="utf-8"))["__train_drill_script"]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run directory before its first checkpoint; no other has its name, which is the folder's."""
    folder = tmp_path / f"drill-{os.getpid()}"
    (folder / "checkpoints" / "checkpoint-3").mkdir(parents=True)
    return folder


@pytest.fixture
def rank(run: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A rank, which forked a helper that inherits its name and environment."""
    named = run / "rank 1"  # the kernel calls a process by the file that it runs
    named.symlink_to("/bin/sh")
    own = {"PATH": os.environ["PATH"], "TRAINLAB_RUN": run.name}
    with subprocess.Popen([named, "-c", "(sleep 60; :) & wait"], env=own, start_new_session=True) as process:
        yield process
        os.killpg(process.pid, signal.SIGKILL)


LISTED = "/proc/[0-9]*"
"""The processes as the script walks them, in the order of their names: of a pod's 100 comes before 21."""


def struck(run: Path, drill: str, listed: str = LISTED) -> subprocess.Popen[str]:
    """Start the script as the playbook does, or with another order of the processes."""
    assert SCRIPT.count(LISTED) == 1
    return subprocess.Popen(
        ["/bin/sh", "-ec", SCRIPT.replace(LISTED, listed), "drill", str(run.parent), drill],
        env={"PATH": os.environ["PATH"], "TRAINLAB_RUN": run.name},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def checkpoint(run: Path) -> None:
    """Complete the first checkpoint; training has gone on for a step."""
    (run / "last_step").write_text(f"{4:12d}\n", encoding="ascii")
    (run / "checkpoints" / "checkpoint-3" / "complete.json").write_text("{}", encoding="ascii")


@pytest.mark.parametrize("listed", [LISTED, f"$(ls -rd {LISTED})"], ids=["rank-first", "helper-first"])
def test_a_rank_is_killed_after_the_first_checkpoint(run: Path, rank: subprocess.Popen[bytes], listed: str) -> None:
    """Not before it, and not the rank's helper, whose end would be an error of the rank's own."""
    waiting = struck(run, "rank", listed)
    time.sleep(0.5)
    assert waiting.poll() is None and rank.poll() is None
    checkpoint(run)
    out, err = waiting.communicate(timeout=SECONDS)
    assert (waiting.returncode, out.split("\n")) == (0, ["4", "rank 1", ""]), err
    assert rank.wait(SECONDS) == -signal.SIGKILL


def test_for_a_pod_it_only_waits(run: Path, rank: subprocess.Popen[bytes]) -> None:
    checkpoint(run)
    out, _err = struck(run, "pod").communicate(timeout=SECONDS)
    assert out == "4\n" and rank.poll() is None


def test_a_training_that_ends_without_a_checkpoint_ends_the_wait(run: Path, rank: subprocess.Popen[bytes]) -> None:
    waiting = struck(run, "rank")
    time.sleep(0.5)
    assert waiting.poll() is None
    (run / "training_summary.json").write_text("{}", encoding="ascii")
    out, err = waiting.communicate(timeout=SECONDS)
    assert (waiting.returncode, out, rank.poll()) == (1, "", None)
    assert (
        "without a checkpoint" in err
        and "more steps in values/PHASE.yaml" in err
        and err.endswith("nothing was struck\n")
    )


def test_no_rank_is_an_error(run: Path) -> None:
    checkpoint(run)
    waiting = struck(run, "rank")
    assert "no rank is there any more" in waiting.communicate(timeout=SECONDS)[1]
    assert waiting.returncode == 1
