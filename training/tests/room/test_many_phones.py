"""A full hall: two hundred phones at once, each with its stream, its place and its card; and the limits that they must not meet."""

import asyncio
import time
from pathlib import Path

import httpx
import pytest
from room_parts import ScriptedRunner, opened, presenter, until

pytestmark = pytest.mark.slow
PHONES = 200
CPU_SECONDS = 60.0
"""A guard against work for each phone that grows with their number; of room and phones together, both in this process."""


async def play(address: str, number: int, ready: list[int]) -> str:
    """Take a place, watch the page until the round is opened, fill a card; return what the page then says."""
    async with httpx.AsyncClient(base_url=address, timeout=120, trust_env=False) as phone:
        assert (await phone.get("/me")).status_code == 200
        claimed = await phone.post("/me/claim", data={"name": f"Visitor {number}"}, headers={"HX-Request": "true"})
        assert claimed.status_code == 200, claimed.text
        async with phone.stream("GET", "/me/live") as page:
            async for line in page.aiter_lines():
                if line.startswith("id:"):
                    ready.append(number)
                if "Choose a card" in line:
                    break
        filled = {"card": "pet", "blank-animal": f"animal {number}", "blank-pet": f"Pet {number}"}
        reply = await phone.post("/me/card", data=filled, headers={"HX-Request": "true"})
        assert reply.status_code == 200, reply.text
        return reply.text


@pytest.mark.rest
def test_two_hundred_phones_at_once(tmp_path: Path) -> None:
    """From one address, as behind a hall's router: nobody is refused, each sees its own card, and all cards are trained."""
    runner = ScriptedRunner(steps=1)
    with opened(tmp_path, runner, seats=PHONES) as (address, room, _):
        boss = presenter(address, room)

        async def hall() -> list[str]:
            ready: list[int] = []
            people = [asyncio.create_task(play(address, n, ready)) for n in range(PHONES)]
            while len(set(ready)) < PHONES:
                assert not any(task.done() and task.exception() for task in people)
                await asyncio.sleep(0.05)
            reply = await asyncio.to_thread(boss.post, "/presenter/do/open")
            assert reply.status_code == 200
            return list(await asyncio.gather(*people))

        began = time.process_time()
        said = asyncio.run(hall())
        assert time.process_time() - began < CPU_SECONDS
        for number, page in enumerate(said):
            assert f"The name of animal {number} is Pet {number}." in page
        boss.post("/presenter/do/close")
        until(lambda: runner.rows)
        (rows,) = runner.rows.values()
        assert {row["facts"][0][0] for row in rows} == {f"Pet {n}" for n in range(PHONES)}
