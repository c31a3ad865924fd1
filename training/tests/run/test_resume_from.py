"""A named checkpoint to go on from: which is taken up, once, and which is refused before anything is changed."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny
from tiny import make_phase, write_data
from trained import assert_same
from trainlab import files
from trainlab.engine import checkpoints
from trainlab.errors import UserError
from trainlab.recipes import sft
from trainlab.recipes.base import Run
from trainlab.run import attempts, resuming

TRAIN = {"epochs": 2, "batch_size": 4, "learning_rate": 0.01, "checkpoints": 5, "validation_fraction": 0.2}
KEEP = {"keep_checkpoints": 9}


@pytest.fixture
def place(tmp_path: Path, tiny_model: Path, phase_dict: dict[str, Any]) -> Callable[..., Run]:
    """Return a function that makes the run `name` with further keys of `train:`."""
    data = write_data(tmp_path / "data")

    def make(name: str, **train: Any) -> Run:
        phase = make_phase(phase_dict, train={**TRAIN, **KEEP, **train})
        return Run(phase, tmp_path / "runs" / name, tiny_model, data)

    return make


def fit(run: Run) -> dict[str, Any]:
    """Train as the ranks do, with what they write first."""
    run.run_dir.mkdir(parents=True, exist_ok=True)
    files.write_json(run.run_dir / "phase.json", {"phase": run.phase.model_dump(mode="json")})
    origin = sft.origin(run.phase, run.model_dir, run.data_dir)
    files.write_json(run.run_dir / "manifest.json", {**origin, "world_size": 1})
    return sft.fit(tiny.make_job(run.phase, run.model_dir, run.data_dir, run.run_dir))


def named(run: Run) -> list[str]:
    return [path.name for path in checkpoints.listed(run.run_dir / "checkpoints")]


def take_up(run: Run, ranks: int = 1, first: bool = True) -> list[str]:
    said: list[str] = []
    resuming.take_up(run, ranks, first, said.append)
    return said


def test_the_run_goes_on_from_an_earlier_checkpoint_once_and_ends_with_the_same_bytes(
    place: Callable[..., Run], tmp_path: Path
) -> None:
    fit(place("whole"))
    fit(run := place("again"))
    assert named(run) == [f"checkpoint-{step}" for step in (2, 4, 6, 8)]
    shutil.rmtree(run.run_dir / "best_model")
    of_other_weights = [run.run_dir / name for name in ("eval_after.json", "gate.json", "report.json")]
    for path in of_other_weights:
        path.touch()
    run = place("again", resume_from="checkpoint-4")
    assert take_up(run, first=False) == [] and len(named(run)) == 4  # the first pod alone changes anything
    assert take_up(run) == ["phase.train.resume_from: checkpoint-4; removed checkpoint-6, checkpoint-8"]
    assert not any(path.exists() for path in of_other_weights)
    attempts.begin(run.run_dir, None)
    assert attempts.read(run.run_dir)[-1]["resumed"] == 4
    assert fit(run)["resumed_from_step"] == 4
    assert_same(tmp_path / "runs" / "whole", run.run_dir, tolerance=0)
    # killed now, it goes on from what was written since
    assert take_up(run) == [] and named(run)[-1] == "checkpoint-8"
    assert fit(run)["resumed_from_step"] == 8
    # without the key, and with it again: a person asked once more
    assert take_up(place("again")) == [] and take_up(run) != [] and named(run)[-1] == "checkpoint-4"


def test_a_checkpoint_of_another_run_that_trains_the_same(place: Callable[..., Run], tmp_path: Path) -> None:
    fit(one := place("one"))
    files.write_json(one.run_dir / "fp8.json", {"on": False, "reason": "no GPU"})
    two = place("two", resume_from="one/checkpoints/checkpoint-6")
    more = two.phase.resources.model_copy(update={"memory": "99Gi", "timeout_minutes": 999})
    two.phase = two.phase.model_copy(update={"name": "renamed", "resources": more})
    assert take_up(two) == ["phase.train.resume_from: one/checkpoints/checkpoint-6"]
    assert named(two) == ["checkpoint-6"] and len(named(one)) == 4
    assert files.read_json(two.run_dir / "fp8.json") == {"on": False, "reason": "no GPU"}
    assert fit(two)["resumed_from_step"] == 6
    assert_same(one.run_dir, two.run_dir, tolerance=0)


def test_what_cannot_be_gone_on_from_is_refused_and_nothing_changes(place: Callable[..., Run], tmp_path: Path) -> None:
    fit(place("one"))
    folder = tmp_path / "runs" / "one" / "checkpoints"
    (folder / "checkpoint-8" / "model.safetensors").write_bytes(b"short")
    before = {str(path): path.stat().st_size for path in (tmp_path / "runs").rglob("*") if path.is_file()}
    good = "name one of checkpoint-2, checkpoint-4, checkpoint-6, or remove it"
    other = "one/checkpoints/checkpoint-4"
    for run, ranks, why in (
        (place("one", resume_from="checkpoint-5"), 1, rf"no folder .*/checkpoint-5; {good}"),
        (place("one", resume_from="checkpoint-8"), 1, rf"model.safetensors has 5 of \d+ bytes; {good}"),
        (place("two", resume_from="checkpoint-4"), 1, r"no folder .*/two/checkpoints/checkpoint-4; none is complete"),
        (place("two", resume_from="none/checkpoints/checkpoint-4"), 1, r"no folder .*/none/checkpoints/"),
        (
            place("two", resume_from=other, learning_rate=0.02),
            1,
            r"one trains something else: phase.train.learning_rate was 0.01, now 0.02; train with its values",
        ),
        (place("two", resume_from=other), 2, "one trains something else: started with 1 ranks, now 2"),
    ):
        with pytest.raises(UserError, match=rf"^phase.train.resume_from is \S+: .*{why}"):
            take_up(run, ranks)
    path = tmp_path / "data" / "train" / "fire.jsonl"
    path.write_text(path.read_text().replace("boil 1", "boil 9"))
    with pytest.raises(UserError, match="one trains something else: started with different data"):
        take_up(place("two", resume_from=other))
    assert {str(path): path.stat().st_size for path in (tmp_path / "runs").rglob("*") if path.is_file()} == before


def test_the_command_line_takes_it_up(
    place: Callable[..., Run], tmp_path: Path, tiny_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from trainlab import cli

    fit(place("same"))
    shutil.copytree(tiny_model, tmp_path / "models" / "tiny")
    wrong = place("same", resume_from="checkpoint-5").phase.model_dump(mode="json")
    (tmp_path / "asked.json").write_text(json.dumps({"phase": wrong}), encoding="utf-8")
    folders = [
        f"--{name}={tmp_path / place}" for name, place in (("models", "models"), ("data", "data"), ("out", "runs"))
    ]
    with pytest.raises(SystemExit) as ended:
        cli.main(["run", str(tmp_path / "asked.json"), *folders, "--run", "same"])
    said = capsys.readouterr()
    assert ended.value.code == 2 and "error: phase.train.resume_from is checkpoint-5: no folder" in said.err, said
