"""Runs that report to MLflow and Weights & Biases: what is refused, what is warned about, and that both get the numbers of the history."""

import contextlib
import getpass
import json
import os
import pwd
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from checkout import ROOT
from ports import WITH_ITS_WORKER, free_port
from tiny import make_phase
from trainlab.engine import trackers
from trainlab.errors import UserError
from trainlab.progress import Progress
from transformers import integrations
from workplace import Workplace

LOCKS = ROOT / "images" / "trainer"


def pinned(name: str) -> dict[str, str]:
    """Return {`package==version`: its entry} of a lock of the image."""
    entries = re.split(r"^(?=[a-zA-Z0-9])", (LOCKS / name).read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {entry.split()[0]: entry for entry in entries if entry.strip()}


def test_names_come_from_the_option_the_environment_or_the_site(monkeypatch: pytest.MonkeyPatch) -> None:
    assert trackers.chosen(None, ["wandb"]) == ("wandb",)
    monkeypatch.setenv("TRAINLAB_REPORT_TO", "mlflow, wandb,mlflow")
    assert trackers.chosen(None, ["wandb"]) == ("mlflow", "wandb")
    assert trackers.chosen("", ["wandb"]) == ()
    with pytest.raises(UserError, match="--report-to: comet is no tracker; take mlflow or wandb"):
        trackers.chosen("comet", [])


def test_a_missing_package_and_a_missing_secret_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(trackers.KNOWN, "mlflow", trackers.Known("MLflow", "no_such_package", "MLFLOW_TRACKING_URI"))
    with pytest.raises(
        UserError, match=r"site\.reportTo: mlflow, but this environment has no package no_such_package; build"
    ):
        trackers.check(["mlflow"])
    (tmp_path / "wandb.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(
        UserError, match=r"wandb, but WANDB_API_KEY is not set; make it a key of a Secret that site\.envSecrets names"
    ):
        trackers.check(["wandb"])
    monkeypatch.setenv("WANDB_MODE", "offline")
    trackers.check(["wandb"])


class Told(Progress):
    """Keeps what is said."""

    def __init__(self) -> None:
        super().__init__(False)
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        """Keep a line."""
        self.lines.append(text)


class Gone:
    """An integration whose server is gone, at the start or after the first step."""

    def __init__(self, begins: bool) -> None:
        self.begins = begins

    def on_train_begin(self, *_: Any) -> None:
        """Fail if so."""
        if not self.begins:
            raise ConnectionError("no route\nto host")

    def on_log(self, *_: Any, logs: Mapping[str, float]) -> None:
        """Fail."""
        raise ConnectionError(f"lost {logs}")


@pytest.mark.parametrize("begins", [False, True])
def test_a_tracker_that_is_gone_is_one_warning(
    tmp_path: Path, phase_dict: dict[str, Any], monkeypatch: pytest.MonkeyPatch, begins: bool
) -> None:
    monkeypatch.setattr(integrations, "MLflowCallback", lambda: Gone(begins))
    progress = Told()
    with trackers.reporting(["mlflow"], make_phase(phase_dict), tmp_path, progress):
        for step in range(3):
            progress.log(step, {"loss": 1.0, "owners": {"ada": 1.0}})
    why = "lost {'loss': 1.0}" if begins else "no route to host"
    said = f"warning: MLflow gets no more numbers: {why}; the training goes on, and training_history.json has all"
    assert progress.lines == [said]


def test_a_user_without_a_name_gets_one(
    tmp_path: Path, phase_dict: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as the UID of a pod, of which MLflow would warn."""
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "")
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    monkeypatch.setattr(integrations, "MLflowCallback", lambda: Gone(False))
    with trackers.reporting(["mlflow"], make_phase(phase_dict), tmp_path, Told()):
        assert getpass.getuser() == "trainlab"


def test_a_tracker_that_hangs_delays_no_step(
    tmp_path: Path, phase_dict: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()
    hanging = Gone(True)
    monkeypatch.setattr(hanging, "on_train_begin", lambda *_: answers.wait(600))
    monkeypatch.setattr(integrations, "WandbCallback", lambda: hanging)
    monkeypatch.setattr(trackers, "LAST", 0.1)
    progress = Told()
    with trackers.reporting(["wandb"], make_phase(phase_dict), tmp_path, progress):
        for step in range(100):
            progress.log(step, {"loss": 1.0})
    assert (
        len(progress.lines) == 1 and "Weights & Biases gets no more numbers: it did not take all" in progress.lines[0]
    )
    answers.set()


def test_the_lock_of_the_clients_is_what_the_image_lacks() -> None:
    image, ours = (
        {entry.partition("==")[0] for entry in pinned(name)} for name in ("requirements.lock", "tracking.lock")
    )
    assert {"mlflow-skinny", "wandb"} <= ours and not ours & image


def install(*arguments: str | Path) -> None:
    """Run pip; skip where it reaches no index."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", *arguments], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"pip: {done.stderr[-300:]}")


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what tracking.lock adds to the image."""
    folder = tmp_path_factory.mktemp("clients")
    install(
        "--no-deps", "--require-hashes", "--only-binary", ":all:", "--target", folder, "-r", LOCKS / "tracking.lock"
    )
    return folder


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path, "subprocess.Popen[bytes]"]]:
    """The address of a real MLflow server, its database, its process."""
    folder, port = tmp_path_factory.mktemp("mlflow"), free_port()
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    (client,) = [name for name in pinned("tracking.lock") if name.startswith("mlflow-skinny==")]
    python = folder / "venv" / "bin" / "python"
    done = subprocess.run(
        [python, "-m", "pip", "install", "-q", client.replace("-skinny", "")], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"pip: {done.stderr[-300:]}")
    address, database = f"http://127.0.0.1:{port}", folder / "runs.db"
    command = [python, "-m", "mlflow", "server", f"--port={port}", f"--backend-store-uri=sqlite:///{database}"]
    process = subprocess.Popen(
        [*WITH_ITS_WORKER, *command, "--workers=1"],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(f"{address}/health", timeout=5).read()
                break
            except OSError:
                assert process.poll() is None, "the server ended"
                threading.Event().wait(0.5)
        yield address, database, process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # with its workers, which outlive it
        process.wait()


@pytest.mark.rest
def test_a_run_reports_to_a_real_mlflow_and_to_wandb_offline(
    tmp_path: Path,
    tiny_model: Path,
    phase_dict: dict[str, Any],
    clients: Path,
    server: tuple[str, Path, "subprocess.Popen[bytes]"],
) -> None:
    shutil.copytree(tiny_model, tmp_path / "models" / "tiny")
    place = Workplace(tmp_path, make_phase(phase_dict))
    address, database, _ = server
    sources = os.pathsep.join([str(ROOT / "training" / "src"), str(clients)])
    env = {"PYTHONPATH": sources, "MLFLOW_TRACKING_URI": address, "WANDB_MODE": "offline", "HOME": str(tmp_path)}
    env["PATH"] = str(Path(sys.executable).parent)  # without git, as in a pod
    run = place.python("--run", "reported", "--processes", "2", "--report-to", "mlflow,wandb", **env)
    output = run.communicate()[0]
    assert run.returncode == 0 and "warning" not in output.lower(), output
    history = json.loads((tmp_path / "reported" / "training_history.json").read_text(encoding="utf-8"))
    with sqlite3.connect(database) as tables:
        assert tables.execute("select name, status from runs").fetchall() == [("reported", "FINISHED")]  # rank 0 alone
        losses = tables.execute("select step, value from metrics where key = 'loss' order by step").fetchall()
        (rate,) = tables.execute("select value from params where key = 'train.learning_rate'").fetchone()
    assert losses == [(entry["step"], entry["loss"]) for entry in history if "loss" in entry]
    assert float(rate) == place.phase.train.learning_rate
    (offline,) = (tmp_path / "reported" / "wandb").glob("offline-run-*/run-*.wandb")
    assert b"train/loss" in offline.read_bytes() and b"reported" in offline.read_bytes()


@pytest.mark.rest
def test_a_run_trains_without_the_mlflow_that_it_should_report_to(
    tmp_path: Path, tiny_model: Path, phase_dict: dict[str, Any], clients: Path
) -> None:
    shutil.copytree(tiny_model, tmp_path / "models" / "tiny")
    place = Workplace(tmp_path, make_phase(phase_dict))
    sources = os.pathsep.join([str(ROOT / "training" / "src"), str(clients)])
    gone = {"PYTHONPATH": sources, "MLFLOW_TRACKING_URI": f"http://127.0.0.1:{free_port()}", "HOME": str(tmp_path)}
    run = place.python("--run", "alone", "--report-to", "mlflow", **gone)
    output = run.communicate()[0]
    assert run.returncode == 0 and "Traceback" not in output, output
    assert output.count("warning: MLflow gets no more numbers: ") == 1, output
    assert (tmp_path / "alone" / "report.html").exists()
