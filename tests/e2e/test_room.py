"""`make room` with four phones: places, cards, one job, the gates, the reveal, everybody's own adapter; the room is killed on the way."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from embedded_cluster.base import patience
from ports import free_port

from e2e import machine, phones

REPO = Path(__file__).resolve().parents[2]
ROOMS = machine.HOME / f"alone-{machine.CLUSTER}" / "room"
pytestmark = [pytest.mark.e2e, pytest.mark.rest, pytest.mark.timeout(1500)]


class Room:
    """A `make room` of the tests, its pages for the presenter, and what it printed."""

    def __init__(self, port: str) -> None:
        self.url = f"http://127.0.0.1:{port}"
        ports = {"ROOM_PORT": port, "PORT": str(free_port()), "ROOM_ADDRESS": self.url}
        self._environment = {**machine.ENVIRONMENT, **ports}
        self.presenter = phones.Presenter(self.url)
        self.start()

    def start(self) -> None:
        """Start it, and enter the presenter's page by the link that it prints."""
        self.process = subprocess.Popen(
            ["make", "room"],
            cwd=REPO,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            process_group=0,
        )
        assert self.process.stdout is not None
        self.lines: list[str] = []
        for line in self.process.stdout:
            self.lines.append(line)
            if link := re.match(r"presenter +(\S+)", line):
                break
        else:
            raise AssertionError("".join(self.lines))
        self.presenter.enter(link[1])

    def kill(self, number: signal.Signals) -> None:
        """Send a signal to make and everything that it started in the foreground; a job and the server are sessions of their own."""
        os.killpg(self.process.pid, number)
        self.process.wait(timeout=patience.seconds(60))
        port, end = int(self.url.rpartition(":")[2]), time.monotonic() + patience.seconds(60)
        while listens(port):
            assert time.monotonic() < end, "the room outlived its make"
            time.sleep(0.1)


def listens(port: int) -> bool:
    """Whether somebody listens on this port of this machine."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def room() -> Iterator[Room]:
    """A room with a model trained by phase quick; afterwards nothing of it runs."""
    shutil.rmtree(ROOMS, ignore_errors=True)  # of an earlier run
    opened = Room(str(free_port()))
    yield opened
    if opened.process.poll() is None:
        opened.kill(signal.SIGINT)
    subprocess.run(["make", "demo-down"], cwd=REPO, env=machine.ENVIRONMENT, check=True, capture_output=True)


def test_four_phones_teach_and_ask_the_model(room: Room) -> None:
    """Each adapter that its gate promoted says its visitor's fact; a room that is killed while it trains goes on with the round."""
    room.presenter.do("open")
    people = [phones.Phone(room.url, card, blanks) for card, blanks in phones.FOUR.items()]
    for person in people:
        person.join()
    room.presenter.do("close")
    people[0].follow(phones.is_training)
    for how in (signal.SIGKILL, signal.SIGINT):
        room.kill(how)
        room.start()
    jobs = [json.loads(path.read_text()) for path in (ROOMS / "jobs").glob("*.json") if "values" not in path.name]
    assert [job["starts"] for job in jobs] == [1], "it was never stopped"
    page = room.presenter.trained()
    assert page.count("passed") >= 3, page
    room.presenter.do("reveal")
    assert sum(person.is_right() for person in people) >= 3, (
        "of four facts, asked in wordings that were never trained on"
    )
