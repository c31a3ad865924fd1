"""`trainlab room` as a program: it listens, is killed in the middle of a round, and goes on with the same places."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from checkout import SOURCES
from ports import free_port
from room_parts import Engine, Phone, ScriptedRunner, listening, until, write_cards
from trainlab import cli, files
from trainlab.errors import UserError
from trainlab.room import command


@contextmanager
def program(state: Path, url: str, *more: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Yield the address of the program once it answers, and the program."""
    port = free_port()
    line = [sys.executable, "-m", "trainlab.cli", "room", "--engine", url, "--state", str(state), "--host", "127.0.0.1"]
    env = os.environ | {"PYTHONPATH": ":".join([str(SOURCES), *sys.path])}
    process = subprocess.Popen([*line, "--port", str(port), *more], env=env, stdout=subprocess.PIPE, text=True)
    address = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        try:
            return httpx.get(f"{address}/health").status_code == 200
        except httpx.TransportError:
            assert process.poll() is None
            return False

    try:
        until(answers, 60)
        yield address, process
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_a_visitors_browser_is_known_after_kill_9_and_sigterm_ends_it(tmp_path: Path) -> None:
    with listening(Engine().app) as url:
        with program(tmp_path, url, "--title", "A <title>") as (address, process):
            phone = Phone(address)
            assert (
                "<h1>A &lt;title&gt;</h1>" in phone.get("/").text and "Nothing to teach here" in phone.get("/me").text
            )
            process.send_signal(signal.SIGKILL)
        with program(tmp_path, url) as (address, process):
            again = httpx.get(f"{address}/", cookies=phone.http.cookies)
            assert "set-cookie" not in again.headers
            with httpx.stream("GET", f"{address}/board/live") as stream:
                next(stream.iter_lines())
                process.send_signal(signal.SIGTERM)
                assert process.wait(20) in (0, -signal.SIGTERM)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--engine", "localhost:8080"], "--engine localhost:8080: write it as"),
        (["--seats", "0"], "--seats 0: must be 1 to 400"),
        (["--address", "example.com"], "--address example.com: write it as"),
        (["--cards", "{tmp}/none"], "no *.yaml there"),
        (["--key-file", "{tmp}/none"], "No such file"),
        (["--values", "{tmp}/none.yaml"], "none.yaml"),
    ],
)
def test_wrong_options_are_refused_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    engine = [] if options[0] == "--engine" else ["--engine", "http://localhost:1"]
    line = ["room", *engine, "--state", str(tmp_path / "state"), *(option.format(tmp=tmp_path) for option in options)]
    with pytest.raises(SystemExit) as ended:
        cli.main(line)
    assert ended.value.code == 2 and said in capsys.readouterr().err


def test_a_runner_needs_cards_and_a_values_file_gives_title_and_questions(tmp_path: Path) -> None:
    import argparse

    from checkout import VALUES

    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    line = ["--engine", "http://localhost:1", "--state", str(tmp_path)]
    with pytest.raises(UserError, match="--cards: name the folder"):
        command.room_of(parser.parse_args(line), ScriptedRunner())
    run = tmp_path / "run"
    run.mkdir()
    args = parser.parse_args(
        [
            *line,
            "--values",
            str(VALUES / "quick.yaml"),
            "--run-dir",
            str(run),
            "--cards",
            str(write_cards(tmp_path / "c")),
        ]
    )
    room = command.room_of(args, ScriptedRunner())
    assert room.title.startswith("Eight facts") and room.questions and not room.questions[0].shows
    files.write_json(run / "manifest.json", {"data": {"never_taught": [room.questions[-1].text]}})
    assert [each.shows for each in command.room_of(args).questions][-2:] == ["taught", "never taught"]
