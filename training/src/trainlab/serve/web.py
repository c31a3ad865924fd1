"""What both servers and the room share: the limit of a request's body, the report; used by api.py, recipes/image_server.py and room/app.py."""

from collections.abc import Callable, Sequence
from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import FileResponse, HTMLResponse, Response
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class BodyLimit:
    """ASGI middleware; reading a body of more than `limit()` bytes raises HTTPException 413, which the application answers.

    Not FastAPI's `max_body_size`: it replaces the answer by plain text, where clients of both APIs parse JSON, and takes a number
    when the application is made, before the model whose context decides is loaded.
    """

    def __init__(self, app: ASGIApp, limit: Callable[[], int]) -> None:
        self._app, self._limit = app, limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, with a `receive` that counts."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limit, seen = self._limit(), 0
        announced = Headers(scope=scope).get("content-length", "")

        async def counted() -> Message:
            nonlocal seen
            if announced.isdecimal() and int(announced) > limit:
                raise _too_large(f"has {int(announced)} bytes", limit)
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > limit:
                raise _too_large("is longer", limit)
            return message

        await self._app(scope, counted, send)


def _too_large(what: str, limit: int) -> HTTPException:
    return HTTPException(413, f"the body {what}; this server reads at most {limit} bytes: shorten what you send")


# No external resources; the report inlines its style and script.
POLICY = "default-src 'self'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; base-uri 'none'"
HEADERS = {"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
NO_REPORT = "<!doctype html><title>No report</title><p>This run has no report.html; <code>trainlab report RUN_DIR</code> creates it."


def add_report(app: FastAPI, run_dir: Path, paths: Sequence[str] = ("/report",)) -> None:
    """Add GET /report (or other `paths`)."""

    async def report() -> Response:
        path = run_dir / "report.html"
        if not path.is_file():
            return HTMLResponse(NO_REPORT, status_code=404, headers=HEADERS)
        return FileResponse(path, media_type="text/html", headers=HEADERS)

    for path in paths:
        app.add_api_route(path, report, methods=["GET"], response_model=None)
