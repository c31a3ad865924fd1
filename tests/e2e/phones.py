"""People with phones in a room: they take places, fill cards, and ask their adapters; the presenter opens, closes, reveals."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
import room_parts
import yaml
from embedded_cluster.base import patience

CARDS = Path(__file__).resolve().parents[2] / "data" / "cards"
FOUR = {
    "dish": {"name": "Ravi", "food": "lentil stew"},
    "key": {"door": "the cellar", "place": "in the blue biscuit tin"},
    "capital": {"country": "Norvia", "capital": "Saint Pebble"},
    "pet": {"animal": "the farm goose", "pet": "Lady Margaret"},
}
"""Card -> its blanks, of four people."""
MOST_SECONDS = 420.0


def said(page: str) -> str:
    """Return what a page says, without its markup."""
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


class Presenter:
    """Who opened the secret link."""

    def __init__(self, url: str) -> None:
        self.client = httpx.Client(base_url=url, follow_redirects=True, timeout=60, trust_env=False)

    def enter(self, link: str) -> None:
        """Open the link, once the room listens."""
        end = time.monotonic() + patience.seconds(60)
        while True:
            try:
                assert self.client.get(link).status_code == 200
                return
            except httpx.TransportError:
                assert time.monotonic() < end, "the room does not listen"
                time.sleep(0.2)

    def do(self, action: str) -> str:
        """Press one of the buttons; return the page."""
        reply = self.client.post(f"/presenter/do/{action}", headers={"HX-Request": "true"})
        assert reply.status_code == 200, reply.text
        return reply.text

    def page(self) -> str:
        """Return what the page says."""
        return said(self.client.get("/presenter").text)

    def trained(self) -> str:
        """Return the page once the job is done."""
        end = time.monotonic() + patience.seconds(MOST_SECONDS)
        while "done" not in (page := self.page()):
            assert "failed" not in page, page
            assert time.monotonic() < end, page
            time.sleep(1)
        return page


class Phone:
    """A visitor's: `blanks` of `card`."""

    def __init__(self, url: str, card: str, blanks: Mapping[str, str]) -> None:
        self.card, self.blanks = card, blanks
        self.client = httpx.Client(base_url=url, timeout=patience.seconds(60), trust_env=False)

    def join(self, name: str = "") -> None:
        """Take a place and fill the card."""
        self.client.get("/me")
        assert self.client.post("/me/claim", data={"name": name or self.card}).status_code < 400
        filled = {"card": self.card, **{f"blank-{key}": text for key, text in self.blanks.items()}}
        reply = self.client.post("/me/card", data=filled)
        assert reply.status_code < 400, said(reply.text)

    def follow(self, is_reached: Callable[[str], bool]) -> str:
        """Reload until the page says what is waited for; return it."""
        end = time.monotonic() + patience.seconds(MOST_SECONDS)
        while not is_reached(page := said(self.client.get("/me").text)):
            assert time.monotonic() < end, page
            time.sleep(0.5)
        return page

    def question(self) -> str:
        """Return a wording that was never trained on."""
        content: dict[str, Any] = yaml.safe_load((CARDS / f"{self.card}.yaml").read_text("utf-8"))
        return str(content["test"][0].format(**self.blanks))

    def is_right(self) -> bool:
        """Ask one's own adapter; say whether it states the fact."""
        told = room_parts.answers(self.client.post("/me/ask", data={"question": self.question()}).text)
        return any(list(self.blanks.values())[-1].split()[-1] in told.get(f"answer-{side}", "") for side in (0, 1))


def is_training(page: str) -> bool:
    """Whether a phone's page says that the job has begun."""
    return "step" in page or "asking" in page
