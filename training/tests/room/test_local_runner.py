"""The room's job on this machine: real `trainlab run` processes of a tiny model, found again by another room, resumed after a kill."""

import os
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from checkout import SOURCES
from peft import PeftModel
from tiny import make_phase
from trainlab import files
from trainlab.config.loading import load_values
from trainlab.data import owned_rows
from trainlab.errors import UserError
from trainlab.models import chat
from trainlab.room import cards, run_folder
from trainlab.room.interface import Status
from trainlab.room.local_runner import LocalRunner

CARDS = Path(__file__).resolve().parents[3] / "data" / "cards"


@pytest.fixture
def rows() -> list[dict[str, Any]]:
    """Return the rows of three visitors."""
    dish = cards.load(CARDS)["dish"]
    food = ("leek pie", "rice with figs", "oat cakes")
    return [dish.row(f"p{n:02}", {"name": f"Guest {n}", "food": text}) for n, text in enumerate(food)]


@pytest.fixture
def runner(
    tmp_path: Path, phase_dict: dict[str, Any], tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., LocalRunner]]:
    """Return a maker of runners of one place, as a room that is started again makes one."""
    monkeypatch.setenv("PYTHONPATH", str(SOURCES))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "tiny").symlink_to(tiny_model)

    def make(**train: Any) -> LocalRunner:
        block = {key: value for key, value in phase_dict.items() if key not in ("unfreeze", "questions")}
        phase = make_phase(
            block,
            name="room",
            recipe="adapters",
            data={"source": "pvc:rooms/example"},
            lora={"rank": 2, "alpha": 4, "layers": 1},
            train={"epochs": 1, "checkpoints": 20, **train},
        )
        values = tmp_path / "room.json"
        files.write_json(values, {"phase": phase.model_dump(mode="json")})
        return LocalRunner(values, tmp_path / "models", tmp_path / "runs", tmp_path / "state")

    yield make
    for job in (tmp_path / "state" / "jobs").glob("*.json"):
        pid = int(files.read_json(job).get("pid", 0) or 0)
        if pid and str(tmp_path).encode() in (
            Path(f"/proc/{pid}/cmdline").read_bytes() if Path(f"/proc/{pid}").exists() else b""
        ):
            os.kill(pid, 9)


def until(runner: LocalRunner, run: str, holds: Callable[[Status], bool], seconds: float = 240) -> Status:
    """Return the first status for which `holds` does."""
    end = time.monotonic() + seconds
    while not holds(status := runner.status(run)):
        assert status.state != "failed", status.message
        assert time.monotonic() < end, status
        time.sleep(0.05)
    return status


@pytest.mark.slow
def test_a_round_is_trained_once_and_each_visitor_gets_a_decision(
    runner: Callable[..., LocalRunner], rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    """A room that is killed and started again asks for the same round: it follows the job that runs."""
    first = runner()
    run = first.start("r1", rows)
    again = runner()
    assert again.start("r1", rows) == run
    pid = files.read_json(tmp_path / "state" / "jobs" / "r1.json")["pid"]
    assert f"\nPPid:\t{os.getpid()}\n" not in Path(f"/proc/{pid}/status").read_text(encoding="ascii"), (
        "Ctrl-C ends children"
    )
    assert os.getsid(pid) != os.getsid(0), "the end of a terminal ends its session"
    done = until(again, run, lambda status: status.state == "done")
    assert set(done.decided) == {"p00", "p01", "p02"}
    assert done.decided["p01"].model == f"{run}.p01"
    assert all(len(losses) == len(done.losses["p00"]) > 1 for losses in done.losses.values())
    assert done.fraction == 1
    assert first.start("r2", rows) != run, "another round has adapters of other names"
    taken = again.take_home(run, "p01", "adapter.zip")
    assert (
        taken
        and again.take_home(run, "p01", "values.yaml") is None
        and again.take_home(run, "p77", "adapter.zip") is None
    )
    with zipfile.ZipFile(taken) as packed:
        packed.extractall(tmp_path / "home")
    home = tmp_path / "home"
    phase = load_values([home / "values.yaml"]).phase
    assert [fact.owner for fact in owned_rows.load(phase.data, home).facts] == ["p01"]
    model, _ = chat.load_base(tmp_path / "models" / "tiny", phase)
    assert PeftModel.from_pretrained(model, home / "adapter").peft_config["default"].r == 2


@pytest.mark.rest
def test_a_killed_worker_goes_on_from_its_checkpoint(
    runner: Callable[..., LocalRunner], rows: list[dict[str, Any]]
) -> None:
    """The presenter's button: the run ends all the same, and says that it resumed."""
    room = runner(epochs=60)
    run = room.start("r1", rows)
    until(room, run, lambda status: status.fraction > 0.1)
    assert f"of {run} was killed; the job goes on" in room.kill_worker(run)
    until(room, run, lambda status: status.state == "done")
    summary = files.read_json(room._runs / run / "training_summary.json")
    assert summary["resumed_from_step"] > 0


@pytest.mark.rest
def test_a_job_that_cannot_run_fails_with_its_own_sentence(
    runner: Callable[..., LocalRunner], rows: list[dict[str, Any]]
) -> None:
    """It is not tried again: the same error would come."""
    room = runner()
    run = room.start("r1", [{**rows[0], "test": []}])
    end = time.monotonic() + 120
    while (status := room.status(run)).state != "failed":
        assert time.monotonic() < end
        time.sleep(0.1)
    assert "test is empty; name a wording" in status.message
    with pytest.raises(UserError, match="this room started no such run"):
        room.status("room-00000000")


def test_values_of_another_recipe_are_refused(tmp_path: Path) -> None:
    """Before anybody fills a card."""
    values = Path(__file__).resolve().parents[3] / "values" / "quick.yaml"
    with pytest.raises(UserError, match=r"--job .*quick.yaml: phase.recipe is sft; a round needs adapters"):
        LocalRunner(values, tmp_path, tmp_path, tmp_path)


def test_rows_are_written_once(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    """The rows of a round that is started twice stay those that are being trained."""
    run_folder.write_rows(tmp_path / "r1", rows)
    run_folder.write_rows(tmp_path / "r1", rows[:1])
    assert len((tmp_path / "r1" / "owners" / "room.jsonl").read_text("utf-8").splitlines()) == 3
