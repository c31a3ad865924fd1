"""`make demo-alone` serves the run that it was asked for, ends its own server only, and prints a line that works behind a proxy."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from embedded_cluster.base import home, locks, paths
from embedded_cluster.base.say import UserError
from embedded_cluster.builds import pyenv
from embedded_cluster.tasks import alone
from ports import Handler, serve_in_thread
from trainlab.config.loading import load_values, run_name

REPO = Path(__file__).resolve().parents[2]
PROGRAM = """#!{python}
import json, os, sys
with open({calls!r}, "a") as calls:
    calls.write(json.dumps(sys.argv[1:]) + "\\n")
if "--json" in sys.argv:
    os.environ["PYTHONPATH"] = {sources!r}
    os.execv(sys.executable, [sys.executable, "-m", "trainlab.cli", *sys.argv[1:]])
"""
IDLE = "import sys, time; print('up', flush=True); time.sleep(60)"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What demo-alone writes."""
    monkeypatch.setattr(paths, "HOME", tmp_path)
    result = tmp_path / "alone"
    monkeypatch.setattr(alone, "FOLDER", result)
    monkeypatch.delenv("TRAINLAB_RUN", raising=False)
    return result


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A trainlab that only records what it is asked, except for the resolved values; returns its record."""
    program, record = tmp_path / "venv" / "bin" / "trainlab", tmp_path / "calls"
    program.parent.mkdir(parents=True)
    program.write_text(PROGRAM.format(python=sys.executable, calls=str(record), sources=str(REPO / "training" / "src")))
    program.chmod(0o755)
    monkeypatch.setattr(pyenv, "environment", lambda dev: tmp_path / "venv")
    monkeypatch.setattr(pyenv, "wheels", lambda: tmp_path)
    monkeypatch.setattr(alone, "_serve", lambda *_: None)
    monkeypatch.setattr(alone, "phase", lambda: "quick")
    monkeypatch.setenv("PORT", "18977")
    monkeypatch.chdir(REPO)
    return record


def _run(folder: Path, name: str, seconds: float) -> Path:
    made = folder / "runs" / name
    made.mkdir(parents=True)
    (made / "report.json").write_text("{}")
    (made / "phase.json").write_text(json.dumps({"phase": {"recipe": "resnet"}}))
    os.utime(made, (seconds, seconds))
    return made


def test_the_run_that_was_asked_for_is_served_and_not_the_newest(folder: Path, calls: Path) -> None:
    """After the values of run A, those of B, and A's again, which trains nothing."""
    phase = load_values([REPO / "values" / "quick.yaml", REPO / "values" / "local" / "quick.yaml"], {}).phase
    home.make(folder)
    asked = _run(folder, run_name(phase, {}), 1000.0)
    _run(folder, "quick-ffffffff", 2000.0)
    assert alone.run() == 0
    said = [json.loads(line) for line in calls.read_text().splitlines()]
    assert [words[1] for words in said if words[0] == "gate"] == [str(asked)]
    (trained,) = [words for words in said if words[0] == "run"]
    assert trained[trained.index("--run") + 1] == asked.name


def test_a_second_one_at_the_same_time_is_refused(tmp_path: Path, calls: Path) -> None:
    with (
        locks.waiting(tmp_path / "alone.lock", "never"),
        pytest.raises(UserError, match="another make demo-alone is running"),
    ):
        alone.run()
    assert not calls.exists()


@contextlib.contextmanager
def _process(*words: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-c", IDLE, *words], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline() == "up\n"
        yield process
        process.kill()


def test_only_our_own_server_is_ended(folder: Path) -> None:
    """After a reboot its pid may be that of any process, trainlab's among them."""
    home.make(folder)
    for words in (("serve", "values/quick.yaml"), ("trainlab", "run", "--models", f"{folder}/models"), ("trainlab",)):
        with _process(*words) as other:
            (folder / "server.pid").write_text(str(other.pid))
            assert not alone.end_server()
            assert other.poll() is None, words
    with _process("serve", "values/quick.yaml", "--models", f"{folder}/models") as own:
        (folder / "server.pid").write_text(str(own.pid))
        threading.Thread(target=own.wait).start()  # its parent, init, reaps it in truth
        assert alone.end_server()
    assert not alone.end_server()


def test_waits_have_patience(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRAINLAB_PATIENCE", "2")
    monkeypatch.setattr(alone, "READY_SECONDS", 0.5)
    monkeypatch.setattr(alone, "_answers", lambda _url: False)
    with _process() as server, pytest.raises(UserError) as late:
        alone._await_ready(server, tmp_path / "log", "http://127.0.0.1:9")
    assert str(late.value).startswith("the server was not ready within 1 s; ")
    assert "TRAINLAB_PATIENCE=4" in str(late.value)


class _Models(Handler):
    def do_GET(self) -> None:
        self.answer(200, b'{"name": "tuned"}')


def test_the_line_to_ask_by_works_behind_a_proxy(folder: Path) -> None:
    run_folder = _run(folder, "resnet-1", 1000.0)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Models) as server:
        serve_in_thread(server)
        line = alone._ask(None, run_folder, f"http://127.0.0.1:{server.server_port}")  # type: ignore[arg-type]
        kept = {key: value for key, value in os.environ.items() if key.lower() != "no_proxy"}
        env = {**kept, "http_proxy": "http://127.0.0.1:9"}
        done = subprocess.run(line, shell=True, env=env, capture_output=True, text=True, check=False)
        server.shutdown()
    assert done.stdout == '{"name": "tuned"}', done.stderr


def test_the_roles_line_is_asked_in_the_same_way(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_folder = _run(folder, "quick-1", 1000.0)
    (run_folder / "phase.json").write_text(json.dumps({"phase": {"recipe": "sft", "questions": ["Who's there?"]}}))
    ours = alone._ask(lambda *_words, **_more: None, run_folder, "http://localhost:8080")  # type: ignore[arg-type]
    roles = yaml.safe_load((REPO / "roles" / "serve" / "vars" / "main.yml").read_text(encoding="utf-8"))
    line = roles["__serve_result"]["ask"].replace("{{ __serve_url }}{{ __serve_ask }}", "")
    assert line and shlex.split(ours)[:5] == [*shlex.split(line), "http://localhost:8080/v1/chat/completions"]


def test_the_rooms_training_is_ended_and_nobody_elses(folder: Path) -> None:
    """`make demo-down` after Ctrl-C in `make room`; a pid of before a reboot is another program's."""
    jobs = folder / "room" / "jobs"
    jobs.mkdir(parents=True)
    started = []
    for name, models in (("r1", folder / "models"), ("r2", folder / "other")):
        command = [sys.executable, "-c", IDLE, "run", "--models", str(models)]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE))
        started[-1].stdout.readline()  # type: ignore[union-attr]
        (jobs / f"{name}.json").write_text(json.dumps({"run": name, "pid": started[-1].pid}), encoding="utf-8")
        (jobs / f"{name}.values.json").write_text("{}", encoding="utf-8")
    reaped = threading.Thread(target=started[0].wait)  # as init does
    reaped.start()
    assert alone.end_jobs() and not alone.end_jobs()
    reaped.join()
    assert started[0].returncode == -15 and started[1].poll() is None
    started[1].kill()
    started[1].communicate()
