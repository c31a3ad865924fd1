"""A whole page of the room, and the form that a page sends."""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.responses import HTMLResponse

from trainlab.room import access, pages
from trainlab.room.settings import Room

Form = Annotated[dict[str, list[str]], Depends(access.form)]


def page(request: Request, template: str, **values: Any) -> HTMLResponse:
    """Return a whole page, with a cookie for browsers that have none."""
    room: Room = request.app.state.room
    shared: Mapping[str, Any] = {
        "title": room.title,
        "questions": room.questions,
        "report": room.report or ("/report" if room.run_dir else ""),
        "rounds": room.runner is not None,
        "path": request.url.path,
    }
    response = HTMLResponse(pages.render(template, **{**shared, **values}))
    access.remember(request, response)
    return response


def address_of(request: Request) -> str:
    """Return the room's address as visitors open it, without a slash at its end; a Route or an Ingress may end TLS before it."""
    room: Room = request.app.state.room
    proto = request.headers.get("x-forwarded-proto", "").split(",")[0].strip()
    url = request.base_url.replace(scheme="https") if proto == "https" else request.base_url
    return (room.address or str(url)).rstrip("/")


def may_watch(request: Request) -> None:
    """Raise Refused for a visitor with too many streams, before another begins."""
    room: Room = request.app.state.room
    room.live.check(access.address(request))
