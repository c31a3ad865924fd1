"""`make room` with four phones: places, cards, one job, the gates, the reveal, everybody's own adapter; the room is killed on the way."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from embedded_cluster.base import patience
from ports import free_port

from e2e import machine

REPO = Path(__file__).resolve().parents[2]
CARDS = REPO / "data" / "cards"
PEOPLE = {
    "dish": {"name": "Ravi", "food": "lentil stew"},
    "key": {"door": "the cellar", "place": "in the blue biscuit tin"},
    "capital": {"country": "Norvia", "capital": "Saint Pebble"},
    "pet": {"animal": "the farm goose", "pet": "Lady Margaret"},
}
MOST_SECONDS = 420.0
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]


class Room:
    """A `make room` of the tests, its pages for the presenter, and what it printed."""

    def __init__(self, port: str) -> None:
        self.url = f"http://127.0.0.1:{port}"
        ports = {"ROOM_PORT": port, "PORT": str(free_port()), "ROOM_ADDRESS": self.url}
        self._environment = {**machine.ENVIRONMENT, **ports}
        self.presenter = httpx.Client(base_url=self.url, follow_redirects=True, timeout=60)
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
        end = time.monotonic() + patience.seconds(60)
        while True:
            try:
                assert self.presenter.get(link[1]).status_code == 200
                return
            except httpx.TransportError:
                assert time.monotonic() < end, "the room does not listen"
                time.sleep(0.2)

    def do(self, action: str) -> str:
        """Press one of the presenter's buttons; return the page."""
        reply = self.presenter.post(f"/presenter/do/{action}")
        assert reply.status_code == 200, reply.text
        return reply.text

    def kill(self, number: signal.Signals) -> None:
        """Send a signal to make and everything that it started in the foreground; a job and the server are sessions of their own."""
        os.killpg(self.process.pid, number)
        self.process.wait(timeout=patience.seconds(60))


@pytest.fixture(scope="module")
def room() -> Iterator[Room]:
    """A room with a model trained by phase quick; afterwards nothing of it runs."""
    shutil.rmtree(machine.HOME / f"alone-{machine.CLUSTER}" / "room", ignore_errors=True)  # of an earlier run
    opened = Room(str(free_port()))
    yield opened
    if opened.process.poll() is None:
        opened.kill(signal.SIGINT)
    subprocess.run(["make", "demo-down"], cwd=REPO, env=machine.ENVIRONMENT, check=True, capture_output=True)


def said(text: str) -> str:
    """Return what a page or a stream of pieces says, without its markup."""
    data = "".join(line.removeprefix("data:") for line in text.splitlines() if line.startswith("data:")) or text
    return " ".join(re.sub(r"<[^>]+>", " ", data).split())


def test_four_phones_teach_and_ask_the_model(room: Room) -> None:
    """Each adapter that its gate promoted says its visitor's fact; a room that is killed while it trains goes on with the round."""
    room.do("open")
    phones: dict[str, httpx.Client] = {}
    for card, blanks in PEOPLE.items():
        phone = phones[card] = httpx.Client(base_url=room.url, timeout=patience.seconds(60))
        phone.get("/me")
        assert phone.post("/me/claim", data={"name": card}).status_code < 400
        filled = {"card": card, **{f"blank-{key}": text for key, text in blanks.items()}}
        assert phone.post("/me/card", data=filled).status_code < 400
    room.do("close")
    end = time.monotonic() + patience.seconds(MOST_SECONDS)
    while "step" not in (page := said(phones["dish"].get("/me").text)) and "asking" not in page:
        assert time.monotonic() < end, page
        time.sleep(0.5)
    room.kill(signal.SIGKILL)
    room.start()
    while "done" not in (page := said(room.presenter.get("/presenter").text)):
        assert "failed" not in page, page
        assert time.monotonic() < end, page
        time.sleep(1)
    assert page.count("passed") >= 3, page
    room.do("reveal")
    right = 0
    for card, blanks in PEOPLE.items():
        content: dict[str, Any] = yaml.safe_load((CARDS / f"{card}.yaml").read_text("utf-8"))
        question = content["test"][0].format(**blanks)
        answer = said(phones[card].post("/me/ask", data={"question": question}).text)
        right += list(blanks.values())[1].split()[-1] in answer
    assert right >= 3, "of four facts, asked in wordings that were never trained on"
