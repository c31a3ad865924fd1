"""What both servers share: the limit of a request's body, the pages for browsers; used by api.py and recipes/image_server.py."""

import html
import json
from collections.abc import Callable, Sequence
from importlib.resources import files as package_files
from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import FileResponse, HTMLResponse, Response
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trainlab import files
from trainlab.config import LanguagePhase


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


# No external resources; the pages inline their style and script.
POLICY = "default-src 'self'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; base-uri 'none'"
HEADERS = {"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
NO_REPORT = "<!doctype html><title>No report</title><p>This run has no report.html; <code>trainlab report RUN_DIR</code> creates it."


def page(phase: LanguagePhase, run_dir: Path | None = None) -> str:
    """Return the page for the audience, with the phase's title and questions filled in.

    Questions that the manifest of `run_dir` says were never taught are marked.
    """
    template = package_files("trainlab.serve").joinpath("page.html").read_text(encoding="utf-8")
    manifest = run_dir / "manifest.json" if run_dir else None
    data = files.read_json(manifest).get("data", {}) if manifest and manifest.is_file() else {}
    settings = {
        "questions": list(phase.questions),
        "neverTaught": data.get("never_taught", []),
        "maxTokens": phase.serve.max_tokens,
    }
    script = json.dumps(settings).replace("<", "\\u003c")  # no text can close the script element
    return template.replace("@@TITLE@@", html.escape(phase.title)).replace("@@SETTINGS@@", script)


def add_report(app: FastAPI, run_dir: Path, paths: Sequence[str] = ("/report",)) -> None:
    """Add GET /report (or other `paths`)."""

    async def report() -> Response:
        path = run_dir / "report.html"
        if not path.is_file():
            return HTMLResponse(NO_REPORT, status_code=404, headers=HEADERS)
        return FileResponse(path, media_type="text/html", headers=HEADERS)

    for path in paths:
        app.add_api_route(path, report, methods=["GET"], response_model=None)
