"""A whole round by phones over real connections: claim, fill, train, reveal, ask; killed and read back in each state."""

import re
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from room_parts import Phone, ScriptedRunner, listening, make_room, opened, presenter, until
from trainlab.errors import UserError
from trainlab.room import keys
from trainlab.room.app import create_app
from trainlab.room.interface import Decision, Status


def test_four_phones_play_a_round(tmp_path: Path) -> None:
    runner = ScriptedRunner(steps=5)
    runner.refused = {"p03"}
    with opened(tmp_path, runner) as (address, room, engine):
        boss = presenter(address, room)
        phones = [Phone(address).join(name) for name in ("Ada", "", "Linus", "Grace")]
        assert "You have a place" in phones[0].get("/me").text and "Ada" in phones[1].get("/board").text
        assert "has not been opened" in phones[0].fill().text
        boss.post("/presenter/do/open")
        for n, phone in enumerate(phones[:3]):
            assert f"The name of the donkey is Pet {n}." in phone.fill("the donkey", f"Pet {n}").text
        assert "Round 1 is closed with 3 cards." in boss.post("/presenter/do/close").text
        until(lambda: room.rounds.round.status.state == "done")
        (round_id,) = runner.rows
        assert [row["owner"] for row in runner.rows[round_id]] == ["p01", "p02", "p03"]
        assert runner.rows[round_id][0]["id"] == "p01-pet" and len(runner.rows[round_id][0]["phrasings"]) == 15
        assert "passed" not in phones[0].get("/board").text  # until it is revealed
        assert "once the round is revealed" in phones[0].stream("/me/ask", question="Who?")
        engine.models += [f"{round_id}-p01", f"{round_id}-p02"]
        boss.post("/presenter/do/reveal")
        said = phones[1].stream("/me/ask", question="What is the donkey called?")
        assert f"I am {round_id}-p02" in said and "I am base" in said and "p01" not in said
        assert "2 of 4 held-out wordings" in phones[2].get("/me").text
        assert "not promoted" in phones[2].stream("/me/ask", question="Who?")
        assert "Nothing was trained for you" in phones[3].get("/me").text
        assert phones[0].get("/board").text.count('class="tile passed"') == 2
        boss.post("/presenter/do/next")
        assert "Teach the model one fact" in phones[0].get("/me").text
        text = (tmp_path / "room.json").read_text()
        assert "donkey" not in text and "Ada" not in text and '"promoted": 2' in text
