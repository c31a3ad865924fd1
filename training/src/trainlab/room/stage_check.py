"""The stage check: asks everything that a round needs, at once, and says what is not there."""

import asyncio
import shutil
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import httpx

from trainlab.errors import UserError
from trainlab.room.engine import Piece, Side
from trainlab.room.settings import Room
from trainlab.serve import client

SECONDS = 55.0
FREE_BYTES = 50_000_000
FIRST_BEAT_SECONDS = 3.0  # in which an unbuffered stream has brought something
VLLM_PURE = (0, 32)
"""The first vLLM whose adapters the drill may find kept apart: up to 0.25 one in flight is answered with another's, up to 0.30 from the
cache of an earlier one of that name (vllm issues 47724, 42125); training/tests/models/test_vllm.py tries 0.24 and this one.
"""


@dataclass(frozen=True)
class Row:
    """One thing that was looked at, and a sentence about it."""

    ok: bool
    what: str
    sentence: str


async def run(room: Room, address: str) -> list[Row]:
    """Return a row for each thing; none takes longer than SECONDS, as they are looked at alongside each other."""
    looks: list[tuple[str, Callable[[], Awaitable[str]]]] = [
        ("state", lambda: asyncio.to_thread(_state, room)),
        ("cards", lambda: _cards(room)),
        ("job", lambda: _job(room)),
        ("address", lambda: _address(address)),
        ("stream", lambda: _stream(address)),
        *((f"engine {url}", lambda url=url: _version(url, room)) for url in room.engines.urls),  # type: ignore[misc]
    ]
    rows: list[Row] = []
    try:
        sides = await room.engines.sides()
        looks += [(f"answer of {side.label}", lambda side=side: _answer(room, side)) for side in sides]  # type: ignore[misc]
    except UserError as error:
        rows.append(Row(False, "engine", str(error)))
    return [*rows, *await asyncio.gather(*(_look(what, look) for what, look in looks))]


async def _look(what: str, look: Callable[[], Awaitable[str]]) -> Row:
    try:
        return Row(True, what, await asyncio.wait_for(look(), SECONDS))
    except TimeoutError:
        return Row(False, what, f"no answer within {SECONDS:.0f} s")
    except (UserError, httpx.HTTPError, OSError) as error:
        return Row(False, what, str(error) or type(error).__name__)


def _state(room: Room) -> str:
    room.rounds.save()
    free = shutil.disk_usage(room.rounds.folder).free
    if free < FREE_BYTES:
        raise UserError(f"only {free / 1e6:.0f} MB are free; make room, or give --state another folder")
    return f"round {room.rounds.round.number} is {room.rounds.round.state}; a killed room goes on from there"


async def _cards(room: Room) -> str:
    count = len(room.rounds.offered())
    if room.runner is not None and not count:
        raise UserError("none is offered; show some again below")
    return f"{count} are offered, {room.rounds.seats} places"


async def _job(room: Room) -> str:
    now = room.rounds.round
    if room.runner is None:
        return "this room compares models only; nothing is trained"
    if now.problem:
        raise UserError(now.problem)
    if now.run is None:
        return "starts when a round is closed"
    status = await asyncio.to_thread(room.runner.status, now.run)
    return f"{now.run} is {status.state}"


def _as_a_phone(address: str) -> dict[str, Any]:
    """Return httpx's arguments: past a proxy or not, but neither the pod's token nor its authority, which are for engines."""
    return {key: value for key, value in client.request_options(address).items() if key == "trust_env"}


async def _address(address: str) -> str:
    began = time.monotonic()
    async with httpx.AsyncClient(timeout=10, **_as_a_phone(address)) as http:
        reply = await http.get(f"{address}/health")
    if reply.status_code != 200 or reply.json().get("room") is not True:
        raise UserError(f"{address} is not this room (HTTP {reply.status_code}); give --address what phones can open")
    return f"{address} leads here, in {time.monotonic() - began:.2f} s"


async def _stream(address: str) -> str:
    began = time.monotonic()
    client_of = httpx.AsyncClient(timeout=30, **_as_a_phone(address))
    async with client_of as http, http.stream("GET", f"{address}/board/live") as reply:
        if reply.status_code != 200:
            raise UserError(
                f"{address}/board/live answers HTTP {reply.status_code}, no stream; give --address what phones can open"
            )
        async for __ in reply.aiter_bytes():
            break
    took = time.monotonic() - began
    if took > FIRST_BEAT_SECONDS:
        raise UserError(f"the first bytes took {took:.0f} s: something before the room buffers streams")
    return f"not buffered: first bytes after {took:.2f} s"


async def _version(url: str, room: Room) -> str:
    """Refuse, where visitors get adapters, a vLLM that mixes them up; other engines have no /version."""
    async with httpx.AsyncClient(timeout=10, **client.request_options(url)) as http:
        reply = await http.get(f"{url}/version")
    if reply.status_code != 200:
        return "answers; not vLLM"
    try:
        version = str(reply.json()["version"])
        numbers = tuple(int(part) for part in version.split(".")[:2])
    except (ValueError, KeyError, TypeError):
        return "answers; its version is not known"
    if room.runner is not None and numbers < VLLM_PURE:
        least = ".".join(map(str, VLLM_PURE))
        raise UserError(
            f"vLLM {version} can answer with another visitor's adapter; use {least} or later, or trainlab's server"
        )
    return f"vLLM {version}"


async def _answer(room: Room, side: Side) -> str:
    last = Piece()
    async for piece in room.engines.ask(side, "Say hello."):
        last = piece
    if last.error:
        raise UserError(last.text)
    return f"complete after {last.seconds:.1f} s"
