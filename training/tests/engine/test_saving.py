"""kill -9 at any moment: the same command ends with the weights of the run that nothing disturbed, those of the best step."""

import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import make_job, make_phase, write_data
from trained import weights
from trainlab.engine import checkpoints, saving, trainer
from trainlab.engine.trainer import CheckpointedSftTrainer
from trainlab.recipes import sft

TRAIN = {"epochs": 2, "batch_size": 4, "learning_rate": 0.01, "checkpoints": 5, "validation_fraction": 0.2}
LOSSES = {2: 5.0, 4: 1.0, 6: 3.0, 8: 4.0, 10: 2.0}
"""Step -> validation loss: the fourth step is the best one."""
PLACES: dict[str, Any] = {
    "step": CheckpointedSftTrainer,
    "mark": checkpoints,
    "rotate": checkpoints,
    "save_file": saving,
    "save_model": trainer,
}


def fit(model: Path, base: dict[str, Any], run_dir: Path, place: str = "", at: int = 0, after: bool = False) -> None:
    """Train; be killed at a call of a place, before or after it."""
    torch.set_num_threads(1)
    judge = CheckpointedSftTrainer.evaluation_loop

    def judged(self: Any, *args: Any, **named: Any) -> Any:
        output = judge(self, *args, **named)
        output.metrics["eval_loss"] = LOSSES[self.state.global_step]
        return output

    CheckpointedSftTrainer.evaluation_loop = judged  # type: ignore[method-assign]
    if place:
        name, calls = "training_step" if place == "step" else place, iter(range(1, 100))
        original = getattr(PLACES[place], name)

        def called(*args: Any, **named: Any) -> Any:
            last = next(calls) == at
            if last and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            result = original(*args, **named)
            if last:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        setattr(PLACES[place], name, called)
    phase = make_phase(base, train=TRAIN)
    summary = sft.fit(make_job(phase, model, run_dir.parent / "data", run_dir))
    assert (summary["best_step"], summary["validation_loss"]) == (4, 1.0)


def run(*args: Any) -> int | None:
    """Train in a process of its own; return its exit code."""
    process = multiprocessing.get_context("fork").Process(target=fit, args=args)
    process.start()
    process.join(120)
    return process.exitcode


MOMENTS = [
    *(("step", 5, False), ("mark", 2, False), ("rotate", 2, False), ("rotate", 3, True)),
    *(("save_file", 1, False), ("save_file", 1, True), ("step", 10, True), ("save_model", 1, False)),
]


@pytest.mark.slow
def test_killed_at_any_moment_it_ends_with_the_same_bytes(
    tiny_model: Path, phase_dict: dict[str, Any], tmp_path: Path
) -> None:
    write_data(tmp_path / "data")
    assert run(tiny_model, phase_dict, tmp_path / "whole") == 0
    expected = weights(tmp_path / "whole")
    for number, moment in enumerate(MOMENTS):
        folder = tmp_path / f"killed-{number}"
        assert run(tiny_model, phase_dict, folder, *moment) == -signal.SIGKILL, moment
        assert not (folder / "best_model").exists()
        assert run(tiny_model, phase_dict, folder) == 0, moment
        for name, tensor in weights(folder).items():
            assert torch.equal(tensor, expected[name]), (moment, name)
