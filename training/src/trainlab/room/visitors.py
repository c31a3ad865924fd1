"""The pages of a phone: take a place, fill a card, wait, ask one's own adapter, take it home."""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, HTTPException, Request, Response
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse
from fastapi.sse import EventSourceResponse, ServerSentEvent

from trainlab.errors import UserError
from trainlab.room import access, answers, live, pages
from trainlab.room.cards import NAME_LENGTH, OWN, OWN_ANSWER_LENGTH, OWN_WORDING_LENGTH, OWN_WORDINGS, Refused
from trainlab.room.engine import Side
from trainlab.room.rounds import Place
from trainlab.room.settings import Question, Room
from trainlab.room.view import Form, may_watch, page

router = APIRouter()
HOME = {"adapter.zip": "application/zip"}


@router.get("/me")
async def me(request: Request) -> Response:
    """The phone's page: what a visitor can do now."""
    room, device = _room(request), access.device(request)
    html = fragment(room, device)
    return page(request, "me.html", body=pages.Markup(html), seen=live.digest(html))


@router.get("/me/live", response_class=EventSourceResponse, dependencies=[Depends(may_watch)])
async def me_live(
    request: Request, seen: str = "", last_event_id: Annotated[str, Header()] = ""
) -> AsyncIterator[ServerSentEvent]:
    """Stream the page's body whenever it changes; a phone that comes back names what it shows."""
    room, device = _room(request), access.device(request)
    async for event in room.live.watch(access.address(request), last_event_id or seen, lambda: fragment(room, device)):
        yield event


@router.post("/me/claim")
async def claim(request: Request, fields: Form) -> Response:
    """Take a place in this round."""
    room, device = _room(request), _device(request)
    room.rounds.claim(device, access.last(fields, "name"))
    return _changed(request, device)


@router.get("/me/form")
async def form(request: Request, card: str) -> Response:
    """The form of one card."""
    room, device = _room(request), _device(request)
    place = room.rounds.round.of(device)
    if place is None:
        raise Refused("Take a place first.")
    offered = {each.id: each for each in room.rounds.offered()}
    if (card != OWN and card not in offered) or card in room.rounds.book.hidden_cards:
        raise Refused("This card is not offered; choose another.")
    return HTMLResponse(
        pages.render(
            "_form.html",
            card=offered.get(card),
            wordings=OWN_WORDINGS,
            answer_length=OWN_ANSWER_LENGTH,
            wording_length=OWN_WORDING_LENGTH,
        )
    )


@router.post("/me/card")
async def card(request: Request, fields: Form) -> Response:
    """Keep a filled card."""
    room, device = _room(request), _device(request)
    values = {name[6:]: texts[-1] for name, texts in fields.items() if name.startswith("blank-")}
    if access.last(fields, "card") == OWN:
        values = {name: access.last(fields, name) for name in ("answer", "held_out")}
    room.rounds.fill(device, access.last(fields, "card"), values, fields.get("wording", []))
    return _changed(request, device)


@router.post("/me/ask", response_class=EventSourceResponse)
async def ask(request: Request, fields: Form) -> AsyncIterator[ServerSentEvent]:
    """Stream the answers of base and of the visitor's own adapter; no field says which adapter."""
    room, device = _room(request), access.device(request)
    try:
        question = answers.question_of(access.last(fields, "question"))
        place = room.rounds.round.of(device)
        if place is None or room.rounds.round.state != "reveal":
            raise Refused("Your model can be asked once the round is revealed.")
        decision = room.rounds.round.decision(place.owner)
        if decision is None or not decision.promoted:
            raise Refused("Your model was not promoted, so it is not served.")
        base = await room.engines.base()
    except UserError as problem:
        yield answers.error(str(problem))
        return
    own = Side("yours", base.url, decision.model)
    cards = [answers.named(base), answers.Shown(own, "yours", "taught by you")]
    async for event in answers.stream(room, access.address(request), question, cards):
        yield event


@router.get("/me/home")
async def home(request: Request) -> Response:
    """What a visitor can take home."""
    room, place = _own(request)
    decision = room.rounds.round.decision(place.owner)
    files = {name: bool(await asyncio.to_thread(_file, room, place, name)) for name in HOME}
    return page(request, "home.html", place=place, decision=decision, files=files)


@router.get("/me/home/{name}")
async def take(request: Request, name: str) -> Response:
    """One's own adapter, with the row and the values file that it was trained with."""
    room, place = _own(request)
    if name not in HOME:
        raise HTTPException(404, "There is no such file.")
    path = await asyncio.to_thread(_file, room, place, name)  # it may be packed now
    if path is None or not path.is_file():
        raise HTTPException(404, f"This room does not hand out {name}; ask the presenter for it.")
    return FileResponse(path, media_type=HOME[name], filename=f"{place.owner}-{name}")


def fragment(room: Room, device: str | None) -> str:
    """Return what a visitor sees now. While a card is being filled it says nothing that changes by itself."""
    now = room.rounds.round
    place = now.of(device) if device else None
    values: dict[str, Any] = {
        "round": now,
        "place": place,
        "runner": room.runner is not None,
        "name_length": NAME_LENGTH,
    }
    if place is None:
        values["full"] = len(now.places) >= room.rounds.seats
    elif now.state == "lobby":
        values["here"] = len(now.places)
    elif now.state == "active":
        values |= {"cards": room.rounds.offered(), "own": OWN not in room.rounds.book.hidden_cards}
    else:
        values["decision"] = now.decision(place.owner)
        own = (
            []
            if place.row is None
            else [(place.row["test"][0], "taught in other words"), (place.row["question"], "taught")]
        )
        others = [question for question in room.questions if question.shows == "never taught"][:1]
        values["questions"] = [*(Question(text, shows) for text, shows in own), *others]
    return pages.render("_me.html", **values)


def _changed(request: Request, device: str) -> Response:
    """Tell everybody's streams, and answer with the visitor's own page or the way to it."""
    room = _room(request)
    room.live.changed()
    if "hx-request" in request.headers:
        return HTMLResponse(fragment(room, device) + pages.partial("said", ""))  # an earlier refusal is over
    return RedirectResponse("/me", 303)


def _own(request: Request) -> tuple[Room, Place]:
    room = _room(request)
    place = room.rounds.round.of(access.device(request))
    if place is None or room.rounds.round.state != "reveal":
        raise Refused("There is something to take home once a round is revealed in which you have a place.")
    return room, place


def _file(room: Room, place: Place, name: str) -> Any:
    decision, run = room.rounds.round.decision(place.owner), room.rounds.round.run
    return room.take_home(run, place.owner, name) if run and decision and decision.promoted else None


def _room(request: Request) -> Room:
    room: Room = request.app.state.room
    return room


def _device(request: Request) -> str:
    device = access.device(request)
    if device is None:
        raise Refused("This browser keeps no cookies, so the room cannot keep your place; allow them and reload.")
    return device
