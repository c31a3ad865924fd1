"""The room's application: its routes, limits, headers and errors."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.middleware.gzip import GZipMiddleware

from trainlab.errors import UserError
from trainlab.room import access, compare, pages, places, stage, visitors
from trainlab.room.settings import Room
from trainlab.room.view import page
from trainlab.serve import web

FOREVER = "public, max-age=31536000, immutable"


def create_app(room: Room) -> FastAPI:
    """Return the application of `room`."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        task = asyncio.create_task(room.follow())
        yield
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    app = FastAPI(title="trainlab room", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.state.room = room
    app.add_middleware(web.BodyLimit, limit=lambda: access.MAX_BODY)
    app.add_middleware(GZipMiddleware, minimum_size=500)
    app.add_middleware(access.Guard, key=room.key)
    for router in (compare.router, visitors.router, stage.router, stage.presenter, places.router):
        app.include_router(router)
    app.add_api_route("/static/{name}", _static, methods=["GET"], response_model=None)
    app.add_api_route("/health", _health, methods=["GET"])
    if room.run_dir:
        web.add_report(app, room.run_dir)
    for kind in (UserError, StarletteHTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, _failed)
    return app


async def _static(name: str) -> Response:
    if name not in pages.ASSETS:
        raise HTTPException(404, "There is no such file.")
    content, kind = pages.ASSETS[name]
    return Response(content, media_type=kind, headers={"Cache-Control": FOREVER})


async def _health() -> dict[str, bool]:
    return {"room": True}


async def _failed(request: Request, error: Exception) -> Response:
    """Answer an error in a sentence: to htmx as a part of the page, else as a page."""
    if isinstance(error, StarletteHTTPException):
        status, text = error.status_code, str(error.detail)
        text = "There is no such page." if text == "Not Found" else text
    elif isinstance(error, UserError):
        status, text = 409, str(error)
    elif isinstance(error, RequestValidationError):
        status, text = 400, "The address or form is not one of the room's; reload the page."
    else:
        status, text = 500, "The room failed; reload the page, and look at its log."
    if "hx-request" in request.headers:
        html = pages.partial("said", pages.Markup(pages.render("_said.html", text=text, wrong=True)))
        return HTMLResponse(html, status)
    response = page(request, "error.html", text=text)
    response.status_code = status
    return response
