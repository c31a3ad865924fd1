"""Streams of what changed: each page that watches gets its own rendering, when that differs from what it shows."""

import asyncio
import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Callable

from fastapi.sse import ServerSentEvent

from trainlab.room.cards import Refused

BEAT_SECONDS = 10.0
"""A comment after this much silence: routers cut streams that are idle, OpenShift's after 30 s."""
MAX_STREAMS = 6
"""Of one visitor at a time: some tabs."""


def digest(html: str) -> str:
    """Return the id of a rendering."""
    return hashlib.sha256(html.encode()).hexdigest()[:16]


class Live:
    """Wakes the streams when the room has changed."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()
        self._open: Counter[str] = Counter()

    def changed(self) -> None:
        """Have every stream render anew."""
        self._changed.set()
        self._changed = asyncio.Event()

    def check(self, who: str) -> None:
        """Raise Refused for a visitor who has as many streams as one may."""
        if self._open[who] >= MAX_STREAMS:
            raise Refused("This page is open too often here; close the other tabs.")

    async def watch(
        self, who: str, seen: str, render: Callable[[], str], extra: Callable[[], tuple[str, str] | None] = lambda: None
    ) -> AsyncIterator[ServerSentEvent]:
        """Yield `render()` whenever it is no longer `seen`, and `extra()`, a named event, whenever that is new; else a beat."""
        self._open[who] += 1
        last: tuple[str, str] | None = None
        try:
            while True:
                changed = self._changed
                html = render()
                if (now := digest(html)) != seen:
                    seen = now
                    yield ServerSentEvent(raw_data=html, id=now)
                named = extra()
                if named is not None and named != last:
                    last = named
                    yield ServerSentEvent(raw_data=named[1], event=named[0])
                while not changed.is_set():
                    try:
                        await asyncio.wait_for(changed.wait(), BEAT_SECONDS)
                    except TimeoutError:
                        yield ServerSentEvent(comment="beat")
        finally:
            self._open[who] -= 1
            if not self._open[who]:
                del self._open[who]
