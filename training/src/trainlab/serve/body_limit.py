"""Refuses a request's body over a limit before it is read, whether its length is announced or not; used by both servers.

Not FastAPI's `max_body_size`: it replaces the answer by plain text, where clients of both APIs parse JSON, and takes a number
when the application is made, before the model whose context decides is loaded.
"""

from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class BodyLimit:
    """ASGI middleware; reading a body of more than `limit()` bytes raises HTTPException 413, which the application answers."""

    def __init__(self, app: ASGIApp, limit: Callable[[], int]) -> None:
        self._app, self._limit = app, limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, with a `receive` that counts."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        most, seen = self._limit(), 0
        announced = Headers(scope=scope).get("content-length", "")

        async def counted() -> Message:
            nonlocal seen
            if announced.isdecimal() and int(announced) > most:
                raise _too_large(f"has {int(announced)} bytes", most)
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > most:
                raise _too_large("is longer", most)
            return message

        await self._app(scope, counted, send)


def _too_large(what: str, most: int) -> HTTPException:
    return HTTPException(413, f"the body {what}; this server reads at most {most} bytes: shorten what you send")
