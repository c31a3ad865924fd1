"""Places of attendees' own, without a checkout: the charts, the values of the phase that is shown, and sheets to print."""

import re
from typing import Annotated

from fastapi import APIRouter, HTTPException, Query, Request, Response

from trainlab.room.cards import Refused
from trainlab.room.helm_repository import SUFFIX
from trainlab.room.settings import Room
from trainlab.room.view import address_of, page

router = APIRouter()
MAX_SHEETS = 400
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


@router.get("/charts/{name}")
async def chart(request: Request, name: str) -> Response:
    """One file of the chart repository, or the values file; nothing else can be read."""
    content = _room(request).charts.get(name)
    if content is None:
        raise HTTPException(404, "There is no such file of the chart repository.")
    return Response(content, media_type="application/gzip" if name.endswith(SUFFIX) else "application/yaml")


@router.get("/sheet")
async def sheet(
    request: Request, count: Annotated[int, Query(ge=1, le=MAX_SHEETS)] = 1, prefix: str = "user", names: str = ""
) -> Response:
    """A sheet to print for each attendee, named as `attendees.yml` names their kubeconfigs; it holds no secret."""
    room = _room(request)
    if not room.charts:
        raise HTTPException(404, "This room serves no charts, so there is nothing to install from it.")
    people = names.replace(",", " ").split() or [f"{prefix}{number}" for number in range(1, count + 1)]
    if wrong := [name for name in people if not _NAME.fullmatch(name)]:
        raise Refused(f"{wrong[0][:20]!r} is no attendee's name; use up to 63 lower-case letters, digits and dashes.")
    return page(request, "sheet.html", people=people[:MAX_SHEETS], address=address_of(request), phase=room.phase)


def _room(request: Request) -> Room:
    room: Room = request.app.state.room
    return room
