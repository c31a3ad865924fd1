"""Progress for others: the page OpenShift AI polls, progress.json, the termination message, `trainlab watch`."""

import json
import re
import socket
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from ports import free_port
from trainlab.cli import main
from trainlab.errors import UserError
from trainlab.progress import Numbers, Progress
from trainlab.run import tracker
from waiting import patience, until

NUMBERS = Numbers(5, 10, 9.4, 1.25, 2.0, {"loss": 2.0, "learning_rate": 1e-4}, {"loss": 2.5})
# Name -> type in Go, from red-hat-data-services/trainer, pkg/rhai/progression/progression.go, TrainerStatus.
FIELDS = {
    "progressPercentage": int,
    "estimatedRemainingSeconds": int,
    "currentStep": int,
    "totalSteps": int,
    "currentEpoch": float,
    "totalEpochs": int,
    "trainMetrics": dict,
    "evalMetrics": dict,
}


def said(argv: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Run the command line; return its exit code and what it printed."""
    with pytest.raises(SystemExit) as end:
        main(argv)
    captured = capsys.readouterr()
    return int(end.value.code or 0), captured.out + captured.err


def test_lines_by_itself_only_within_its_block(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else the lines of a run that has ended stand between those of whatever the process does next."""
    monkeypatch.setattr("trainlab.progress.INTERVAL", 0.0)
    with Progress(speaks=True) as progress:
        progress.status("waiting")
        [beat] = [thread for thread in threading.enumerate() if thread.name == "progress"]
        printed, begin = "", time.monotonic()
        while not re.search(r"^trainlab: waiting \([1-9]\d* s\)$", printed, re.MULTILINE):
            assert time.monotonic() - begin < 60 * patience(), printed
            beat.join(0.2)
            printed += capsys.readouterr().out
    beat.join(10)
    assert not beat.is_alive()


def test_page_has_the_fields_of_the_trainer() -> None:
    """Go refuses a float where it wants an int: types count."""
    progress = Progress(speaks=False)
    progress.at(NUMBERS)
    page = progress.page()
    assert {name: type(page[name]) for name in FIELDS} == FIELDS
    assert (page["progressPercentage"], page["currentStep"], page["estimatedRemainingSeconds"]) == (50, 5, 9)
    assert page["activity"] == "step 5/10 loss 2.000 eta 9 s"


def test_hundred_per_cent_only_at_the_end() -> None:
    """After the last step the scoring still goes on: the dashboard must not say complete yet."""
    progress = Progress(speaks=False)
    progress.at(Numbers(10, 10, 0.0))
    progress.status("scoring after training")
    page = progress.page()
    assert (page["progressPercentage"], page["estimatedRemainingSeconds"]) == (99, 1)
    progress.ended = True
    page = progress.page()
    assert (page["progressPercentage"], page["estimatedRemainingSeconds"], page["activity"]) == (100, 0, "done")


def test_page_is_json_without_nan() -> None:
    """A diverged run is still readable: Python would write NaN, which is not JSON."""
    progress = Progress(speaks=False)
    progress.at(Numbers(1, 2, 1.0, train={"loss": float("nan"), "grad_norm": float("inf")}))
    assert json.dumps(progress.page(), allow_nan=False)
    assert progress.page()["trainMetrics"] == {"loss": None, "grad_norm": None}


def test_served_watched_and_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A port answers /metrics and nothing else, and `watch` reads it, past a proxy that knows no such port."""
    progress, port = Progress(speaks=False), free_port()
    server = tracker.listen(progress, port, "127.0.0.1")
    progress.at(NUMBERS)
    url = f"http://127.0.0.1:{port}"
    with urllib.request.urlopen(f"{url}/metrics", timeout=5) as answer:
        assert json.load(answer) == progress.page()
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"{url}/etc/passwd", timeout=5)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    code, text = said(["watch", url, "--once"], capsys)
    assert (code, text) == (
        0,
        "[############............]  50 %  step 5/10 loss 2.000 eta 9 s, validation loss 2.500\n",
    )
    progress.ended = True
    code, text = said(["watch", url, "--json"], capsys)
    assert code == 0
    assert json.loads(text)["progressPercentage"] == 100
    server.shutdown()
    server.server_close()


def test_file_and_termination_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run directory has the numbers while it runs; the pod's message is written at a good end only."""
    message = tmp_path / "termination-log"
    message.touch()
    monkeypatch.setenv(tracker.MESSAGE_VARIABLE, str(message))
    monkeypatch.delenv(tracker.PORT_VARIABLE, raising=False)
    monkeypatch.setattr(tracker, "EVERY", 0.05)
    progress = Progress(speaks=False)
    one = tracker.Tracker(progress, tmp_path)
    progress.at(NUMBERS)
    state = tmp_path / tracker.FILE
    until(lambda: state.exists() and '"currentStep": 5' in state.read_text(), every=0.05)
    assert message.read_text() == ""
    assert "50 %" in said(["watch", str(tmp_path), "--once"], capsys)[1]
    one.end()
    assert json.loads(message.read_text())["progressPercentage"] == 100
    assert len(message.read_bytes()) < 4096  # Kubernetes cuts it there
    assert "100 %  done" in said(["watch", str(tmp_path)], capsys)[1]


def test_port_in_use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One sentence, with the variable that chooses another."""
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setenv(tracker.PORT_VARIABLE, str(port))
        with pytest.raises(UserError, match=f"TRAINLAB_PROGRESS_PORT is {port}: .*in use; choose another port"):
            tracker.Tracker(Progress(speaks=False), tmp_path)


def test_port_that_is_no_number(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The chart sets it; by hand anything can stand there."""
    monkeypatch.setenv(tracker.PORT_VARIABLE, "abc")
    with pytest.raises(UserError, match="TRAINLAB_PROGRESS_PORT is 'abc': not a number"):
        tracker.Tracker(Progress(speaks=False), tmp_path)


@pytest.mark.parametrize(
    "source", ["{tmp}", "http://127.0.0.1:{port}", "https://127.0.0.1:{port}", "http://localhost:PORT"]
)
def test_nothing_to_watch(source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong place is an error that says what a right one is."""
    code, text = said(["watch", source.format(tmp=tmp_path, port=free_port())], capsys)
    assert code == 2
    assert text.startswith("error: ") and "no progress there" in text and "port-forward" in text
    assert "Traceback" not in text


def test_broken_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Half a file, or another program's JSON."""
    for content in ('{"progressPer', "[1]", "{}"):
        (tmp_path / tracker.FILE).write_text(content)
        code, text = said(["watch", str(tmp_path)], capsys)
        assert code == 2 and "no progress there" in text, content
