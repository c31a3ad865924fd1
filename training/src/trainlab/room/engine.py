"""Asks any OpenAI-compatible engine: which models there are, and an answer as it is generated."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from trainlab.errors import UserError
from trainlab.serve import client

READ_SECONDS, CONNECT_SECONDS, LINE_SECONDS = 60, 5, 180
"""Longest silence within an answer, wait for a connection, and time in a full line."""
MAX_ANSWER = 8000  # characters of an answer that are shown
LABELS = {"base": "before training", "tuned": "after training"}


@dataclass(frozen=True)
class Side:
    """One model to ask: its label on the page, the engine's address, the engine's name for it."""

    label: str
    url: str
    model: str


@dataclass(frozen=True)
class Piece:
    """What an answer consists of: text, or a note about waiting, or the end (`tokens` 0 where the engine counts none)."""

    text: str = ""
    note: str = ""
    ended: bool = False
    error: bool = False
    tokens: int = 0
    seconds: float = 0.0


def parse(option: str) -> tuple[str, str | None, str | None]:
    """Return (address, model, label) of `URL[#MODEL[ as LABEL]]`. Raises UserError."""
    match = re.fullmatch(r"(https?://[^\s#]+)(?:#(\S+?))?(?:\s+as\s+([\w.-]{1,24}))?", option.strip())
    if match is None:
        raise UserError(f"--engine {option}: write it as http://HOST:PORT, or 'http://HOST:PORT#MODEL as base'")
    if match[3] and not match[2]:
        raise UserError(f"--engine {option}: a label needs a model; write 'URL#MODEL as {match[3]}'")
    return match[1].rstrip("/").removesuffix("/v1"), match[2], match[3] or match[2]


class Line:
    """Lets `width` in at a time, first come, first served, and tells the others their place."""

    def __init__(self, width: int) -> None:
        self._width, self._queue, self._moved = width, list[object](), asyncio.Event()

    @asynccontextmanager
    async def enter(self, tell: Callable[[int], Awaitable[None]]) -> AsyncIterator[None]:
        """Wait for one's turn; `tell` gets the place in line whenever it changes."""
        ticket, last = object(), 0
        self._queue.append(ticket)
        try:
            while (place := self._queue.index(ticket) - self._width + 1) > 0:
                moved = self._moved
                if place != last:
                    last = place
                    await tell(place)
                await moved.wait()
            yield
        finally:
            self._queue.remove(ticket)
            self._moved.set()
            self._moved = asyncio.Event()


class Engines:
    """The models that the room compares; where an address names none, those that it lists, asked each time."""

    def __init__(self, options: Sequence[str], max_tokens: int = 128, at_once: int = 16) -> None:
        if not options:
            raise UserError("--engine: name the address of at least one served model")
        self._engines = [parse(option) for option in options]
        self._max_tokens = max_tokens
        self._lines = {url: Line(at_once) for url, __, __ in self._engines}

    @property
    def urls(self) -> list[str]:
        """The engines' addresses."""
        return list(self._lines)

    async def sides(self) -> list[Side]:
        """Return the models to compare, base first. Raises UserError where an engine that has to list them is away."""
        result: list[Side] = []
        for url, model, label in self._engines:
            names = [model] if model else await asyncio.to_thread(client.models, url, CONNECT_SECONDS)
            result += [Side(label or name, url, name) for name in names]
        return sorted(result, key=lambda side: side.label != "base")

    async def base(self) -> Side:
        """Return the model that has learned nothing here: the one labelled base, else the first. Raises UserError."""
        return (await self.sides())[0]

    async def ask(self, side: Side, question: str) -> AsyncIterator[Piece]:
        """Yield the greedy answer as it comes; the last piece has `ended`, of a failure with a sentence."""
        notes: asyncio.Queue[Piece] = asyncio.Queue()

        async def run() -> None:
            async def tell(place: int) -> None:
                await notes.put(Piece(note=f"place {place} in line"))

            try:
                async with self._lines[side.url].enter(tell):
                    async for piece in self._stream(side, question):
                        await notes.put(piece)
            except httpx.HTTPError as error:
                away = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
                sentence = "The engine cannot be reached." if away else "The connection to the engine was lost."
                await notes.put(Piece(sentence, ended=True, error=True))
            except UserError as error:
                await notes.put(Piece(str(error), ended=True, error=True))
            except ValueError:
                await notes.put(Piece("The engine sent no stream of the OpenAI API.", ended=True, error=True))
            except Exception as error:  # a stream always ends
                await notes.put(Piece(f"The room failed: {type(error).__name__}.", ended=True, error=True))
                raise

        task = asyncio.create_task(run())
        try:
            while True:
                piece = await notes.get()
                yield piece
                if piece.ended:
                    return
        finally:
            task.cancel()

    async def _stream(self, side: Side, question: str) -> AsyncIterator[Piece]:
        address = f"{side.url}/v1/chat/completions"
        body = {"model": side.model, "messages": [{"role": "user", "content": question}], "temperature": 0}
        body |= {"max_tokens": self._max_tokens, "stream": True, "stream_options": {"include_usage": True}}
        options = await asyncio.to_thread(client.request_options, address)
        timeout = httpx.Timeout(READ_SECONDS, connect=CONNECT_SECONDS)
        began = time.monotonic()
        async with httpx.AsyncClient(timeout=timeout, **options) as http:
            while True:
                async with http.stream("POST", address, json=body) as reply:
                    if reply.status_code == 200:
                        async for piece in _pieces(reply, time.monotonic()):
                            yield piece
                        return
                    wait = _wait(reply)
                    if wait is None or time.monotonic() - began + wait > LINE_SECONDS:
                        raise UserError(_refusal(side, reply, await _start(reply)))
                yield Piece(note=f"the line is full; next try in {wait} s")
                await asyncio.sleep(wait)


def _wait(reply: httpx.Response) -> int | None:
    """Return after how many seconds another try makes sense, None for never."""
    if reply.status_code not in (429, 503):
        return None
    after = reply.headers.get("retry-after", "")
    return min(int(after), 30) if after.isdecimal() else 5


async def _start(reply: httpx.Response) -> bytes:
    body = b""
    async for part in reply.aiter_bytes():
        body += part
        if len(body) > 16384:
            break
    return body


def _refusal(side: Side, reply: httpx.Response, body: bytes) -> str:
    try:
        message = str(json.loads(body)["error"]["message"])[:300]
    except (ValueError, KeyError, TypeError):
        message = f"HTTP {reply.status_code}"
    if reply.status_code == 404:
        return f"The engine does not serve {side.label} now ({message})."
    if reply.status_code in (429, 503):
        return f"The engine is busy ({message}). Ask again in a while."
    return f"The engine refused the question: {message}."


async def _pieces(reply: httpx.Response, began: float) -> AsyncIterator[Piece]:
    """Yield the pieces of a stream; raises UserError for one that reports an error or breaks off."""
    tokens, length, cut = 0, 0, False
    async for line in reply.aiter_lines():
        if line.startswith(": position "):
            yield Piece(note=f"place {line[11:][:8]} in line")
        if not line.startswith("data:"):
            continue
        data = line[5:].strip()
        if data == "[DONE]":
            yield Piece(" \u2026" if cut else "", ended=True, tokens=tokens, seconds=time.monotonic() - began)
            return
        chunk: dict[str, Any] = json.loads(data)
        if chunk.get("error"):
            raise UserError(f"The engine failed: {str(chunk['error'].get('message', ''))[:300]}")
        tokens = int((chunk.get("usage") or {}).get("completion_tokens") or tokens)
        choice = (chunk.get("choices") or [{}])[0]
        text = str((choice.get("delta") or {}).get("content") or "")[: MAX_ANSWER - length]
        length += len(text)
        cut = cut or choice.get("finish_reason") == "length"
        if text:
            yield Piece(text, seconds=time.monotonic() - began)
    raise UserError("The connection to the engine was lost before the answer ended.")
