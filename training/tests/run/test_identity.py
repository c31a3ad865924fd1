"""The same name is the same run: what would mix two experiments in one run directory is refused by naming what differs."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checkout import SOURCES
from tiny import make_phase, write_data
from trainlab import cli, files
from trainlab.config import Phase
from trainlab.errors import UserError
from trainlab.recipes.base import Run
from trainlab.run import results, tracker, worker

pytestmark = pytest.mark.slow
TRAIN = {"epochs": 1, "batch_size": 4, "checkpoints": 1}
Start = Callable[..., str]


@pytest.fixture
def phase(phase_dict: dict[str, Any]) -> Phase:
    return make_phase(phase_dict, train=TRAIN)


@pytest.fixture
def start(
    tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Start:
    """`trainlab run --run same` of a phase; returns its exit code and what it printed."""
    shutil.copytree(tiny_model, tmp_path / "models" / "tiny")
    write_data(tmp_path / "data")
    monkeypatch.delenv("TRAINLAB_RUN", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(SOURCES))

    def run(phase: Phase, *more: str) -> str:
        (tmp_path / "asked.json").write_text(json.dumps({"phase": phase.model_dump(mode="json")}), encoding="utf-8")
        folders = ["--models", str(tmp_path / "models"), "--data", str(tmp_path / "data"), "--out", str(tmp_path)]
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main(["run", str(tmp_path / "asked.json"), *folders, "--run", "same", *more])
        return f"{ended.value.code} {''.join(capsys.readouterr())}"

    return run


def work(phase: Phase, root: Path) -> None:
    """Run the only rank of a job."""
    worker.work(Run(phase, root / "same", root / "models" / "tiny", root / "data"))


@pytest.fixture
def interrupted(phase: Phase, start: Start, tmp_path: Path) -> Path:
    """A run that ended before its gate."""

    def end(*_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(results, "decide", end)
        work(phase, tmp_path)
    assert (tmp_path / "same" / "checkpoints").is_dir() and (tmp_path / "same" / "eval_before.json").exists()
    return tmp_path / "same"


def other(phase_dict: dict[str, Any]) -> Phase:
    train = {**TRAIN, "learning_rate": 0.2, "weight_decay": 0.5}
    return make_phase(phase_dict, train=train, seed=7, data={"system_prompt": "Answer like a pirate."})


def content(run_dir: Path) -> dict[str, bytes]:
    """All files but progress.json, which the thread of the run that ended in this process goes on writing."""
    return {str(path): path.read_bytes() for path in run_dir.rglob("*") if path.is_file() and path.name != tracker.FILE}


def test_an_unfinished_run_refuses_another_phase_and_stays_as_it_was(
    start: Start, interrupted: Path, phase_dict: dict[str, Any]
) -> None:
    before = content(interrupted)
    said = start(other(phase_dict))
    assert said.startswith("2 error: ") and said.count("error: ") == 1, said
    for change in (
        "phase.data.system_prompt was Be brief., now Answer like a pirate.",
        "phase.seed was 42, now 7",
        "phase.train.learning_rate was 5e-05, now 0.2",
        "phase.train.weight_decay was 0.0, now 0.5",
    ):
        assert change in said, said
    assert f"{interrupted}: " in said and "name a new run with --run" in said
    assert content(interrupted) == before


def test_a_finished_run_refuses_another_phase_and_other_data(
    start: Start, phase: Phase, phase_dict: dict[str, Any], tmp_path: Path
) -> None:
    work(phase, tmp_path)
    assert start(phase).startswith("0 ")
    renamed = make_phase(phase_dict, train=TRAIN, title="Another title")
    assert "is complete: nothing to do" in start(renamed)
    said = start(other(phase_dict))
    assert said.startswith("2 error: ") and "phase.seed was 42, now 7" in said, said
    path = tmp_path / "data" / "train" / "fire.jsonl"
    path.write_text(path.read_text().replace("boil 1", "boil 9"))
    said = start(phase)
    assert said.startswith("2 error: ") and "different data" in said, said


def test_another_number_of_ranks_is_refused(interrupted: Path, phase: Phase, tmp_path: Path) -> None:
    record = files.read_json(interrupted / "manifest.json")
    assert record["world_size"] == 1
    files.write_json(interrupted / "manifest.json", {**record, "world_size": 4})
    with pytest.raises(UserError, match=r"started with 4 ranks, now 1: .* --processes 4"):
        work(phase, tmp_path)


@pytest.mark.parametrize("used", [True, False])
def test_the_manifest_names_the_folders_that_were_used(
    used: bool, start: Start, phase: Phase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATA_DIR", str(tmp_path / "data" if used else tmp_path / "elsewhere"))
    monkeypatch.setenv("OUTPUT_DIR", str(tmp_path / "elsewhere"))
    work(phase, tmp_path)
    named = {"DATA_DIR": str(tmp_path / "data")} if used else {}
    assert files.read_json(tmp_path / "same" / "manifest.json")["environment_overrides"] == named


def test_other_questions_are_answered_before_and_after(
    interrupted: Path, phase_dict: dict[str, Any], tmp_path: Path
) -> None:
    """They are no part of what is trained, so the run goes on; but both sides must answer the same ones."""
    assert len(files.read_json(interrupted / "demo_outputs" / "before.json")) == 1
    asked = make_phase(phase_dict, train=TRAIN, questions=["Is rain safe?", "What burns?"])
    work(asked, tmp_path)
    for side in ("before", "after"):
        assert len(files.read_json(interrupted / "demo_outputs" / f"{side}.json")) == 2
