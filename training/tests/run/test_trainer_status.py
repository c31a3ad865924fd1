"""Progress in `status.trainerStatus` of a TrainJob: what Kubeflow Trainer's server of runtime status gets, and a run that goes on without it."""

import json
import time
from collections.abc import Iterator
from datetime import datetime
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from api_server.loopback_tls import secure
from ports import Handler, serve_in_thread
from trainlab.progress import Numbers, Progress
from trainlab.run import tracker
from trainlab.run.tracker import Tracker
from waiting import until

PATH = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/demo/trainjobs/survival/status"
NUMBERS = Numbers(5, 10, 9.4, 1.25, 2.0, {"loss": 2.0, "grad_norm": float("nan")}, {"loss": 2.5})


class Server(ThreadingHTTPServer):
    """Answers as pkg/statusserver/server.go of Trainer 2.3.0 does; `got` are the reports that it took."""

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Reports)
        self.got: list[dict[str, Any]] = []
        self.token = "first"
        secure(self, folder / "ca")


class Reports(Handler):
    server: Server

    def do_POST(self) -> None:
        report = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        known = self.headers["Authorization"] == f"Bearer {self.server.token}"
        code = 404 if self.path != PATH else 200 if known else 403
        if code == 200:
            self.server.got.append(report)
        self.answer(code, json.dumps(report).encode())


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """The server, with what Trainer puts into the pod; a proxy that nobody is behind."""
    found = Server(tmp_path)
    serve_in_thread(found)
    (tmp_path / "token").write_text("first\n", encoding="utf-8")
    monkeypatch.setenv("KUBEFLOW_TRAINER_SERVER_URL", f"https://127.0.0.1:{found.server_port}{PATH}")
    monkeypatch.setenv("KUBEFLOW_TRAINER_SERVER_CA_CERT", str(tmp_path / "ca.crt"))
    monkeypatch.setenv("KUBEFLOW_TRAINER_SERVER_TOKEN", str(tmp_path / "token"))
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    monkeypatch.setattr(tracker, "REPORTED", 0.05)
    monkeypatch.setenv(tracker.NOT_TWICE, "FALSE")  # or what it sets would stay
    yield found
    found.shutdown()
    found.server_close()


def test_the_job_tells_step_time_left_and_metrics_until_its_end(server: Server, tmp_path: Path) -> None:
    progress = Progress(speaks=False)
    progress.at(NUMBERS)
    tracker = Tracker(progress, tmp_path)
    until(lambda: len(server.got) > 0, every=0.01)
    told = server.got[-1]["trainerStatus"]
    assert (told["progressPercentage"], told["estimatedRemainingSeconds"]) == (50, 9)
    assert datetime.fromisoformat(told["lastUpdatedTime"]).tzinfo, "RFC 3339, as a Kubernetes time"
    metrics = {each["name"]: each["value"] for each in told["metrics"]}
    assert metrics == {
        "current_step": "5",
        "total_steps": "10",
        "current_epoch": "1.25",
        "loss": "2.0",
        "eval_loss": "2.5",
    }

    (tmp_path / "token").write_text("second\n", encoding="utf-8")  # as the kubelet renews it
    server.token, before = "second", len(server.got)
    until(lambda: len(server.got) > before, every=0.01)
    progress.at(Numbers(10, 10, 0.0))
    until(lambda: server.got[-1]["trainerStatus"]["progressPercentage"] == 99, every=0.01)
    tracker.end()
    assert server.got[-1]["trainerStatus"]["progressPercentage"] == 100
    assert server.got[-1]["trainerStatus"]["estimatedRemainingSeconds"] == 0


def test_nothing_is_sent_where_trainer_does_not_ask(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBEFLOW_TRAINER_SERVER_URL")
    Tracker(Progress(speaks=False), tmp_path).end()
    assert server.got == []


def test_transformers_reports_nothing_beside_it(server: Server, tmp_path: Path) -> None:
    """Its callback adds itself to any Trainer that has the address, and says 100 percent before the scores."""
    from transformers import TrainingArguments

    def reporters() -> list[str]:
        return list(TrainingArguments(str(tmp_path / "out"), report_to="none", use_cpu=True).report_to)

    assert reporters() == ["kubeflow"], "without ours"
    tracker = Tracker(Progress(speaks=False), tmp_path)
    assert reporters() == []
    tracker.end()


@pytest.mark.parametrize("broken", ["KUBEFLOW_TRAINER_SERVER_CA_CERT", "KUBEFLOW_TRAINER_SERVER_TOKEN", "server"])
def test_a_run_goes_on_without_it_and_says_so_once(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], broken: str
) -> None:
    if broken == "server":
        server.token = "another"
    else:
        monkeypatch.setenv(broken, str(tmp_path / "missing"))
    progress = Progress(speaks=True)
    tracker = Tracker(progress, tmp_path)
    time.sleep(0.5)  # several reports
    tracker.end()
    lines = [line for line in capsys.readouterr().out.splitlines() if "status.trainerStatus" in line]
    assert len(lines) == 1 and server.got == []
    assert json.loads((tmp_path / "progress.json").read_text())["progressPercentage"] == 100
