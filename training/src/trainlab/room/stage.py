"""The board for the big screen, and the presenter's page behind a secret link."""

import json
from collections.abc import AsyncIterator, Callable
from typing import Annotated

from fastapi import APIRouter, Depends, Header, HTTPException, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.sse import EventSourceResponse, ServerSentEvent

from trainlab.errors import UserError
from trainlab.room import access, live, pages, stage_check
from trainlab.room.cards import OWN
from trainlab.room.compare import tally
from trainlab.room.interface import Status
from trainlab.room.settings import Room
from trainlab.room.view import Form, address_of, may_watch, page

router = APIRouter()
presenter = APIRouter(prefix="/presenter", dependencies=[Depends(access.must_present)])
POINTS = 120  # of a curve at most
Id = Annotated[str, Header(alias="last-event-id")]


@router.get("/board")
async def board(request: Request) -> Response:
    """The page for the big screen."""
    room = _room(request)
    html = board_fragment(room)
    address = address_of(request)
    return page(
        request, "board.html", body=pages.Markup(html), seen=live.digest(html), address=address, url=f"{address}/me"
    )


@router.get("/board/live", response_class=EventSourceResponse, dependencies=[Depends(may_watch)])
async def board_live(request: Request, seen: str = "", last_event_id: Id = "") -> AsyncIterator[ServerSentEvent]:
    """Stream the board's body, and the losses as event `curves`."""
    room = _room(request)
    who = access.address(request)
    async for event in room.live.watch(who, last_event_id or seen, lambda: board_fragment(room), lambda: _curves(room)):
        yield event


@router.get("/presenter/enter/{secret}")
async def enter(request: Request, secret: str) -> Response:
    """Turn the secret link into a cookie; the address bar then shows no secret."""
    if not _room(request).key.opens(secret):
        raise HTTPException(404, "There is no such page.")
    response = RedirectResponse("/presenter", 303)
    access.remember(request, response, access.PRESENTER)
    return response


@presenter.get("")
async def present(request: Request) -> Response:
    """The presenter's page."""
    room = _room(request)
    html = presenter_fragment(room)
    note = pages.Markup(room.notes.pop(_who(request), ""))
    shown = {"body": pages.Markup(html), "seen": live.digest(html), "sheets": bool(room.charts), "note": note}
    return page(request, "presenter.html", url=f"{address_of(request)}/me", **shown)


@presenter.get("/live", response_class=EventSourceResponse, dependencies=[Depends(may_watch)])
async def present_live(request: Request, seen: str = "", last_event_id: Id = "") -> AsyncIterator[ServerSentEvent]:
    """Stream the presenter's page."""
    room = _room(request)
    who = access.address(request)
    async for event in room.live.watch(who, last_event_id or seen, lambda: presenter_fragment(room)):
        yield event


@presenter.post("/check")
async def check(request: Request, fields: Form) -> Response:
    """Look at everything that a round needs; a minute at most."""
    rows = await stage_check.run(_room(request), address_of(request))
    return HTMLResponse(pages.render("_check.html", rows=rows))


@presenter.post("/do/{action}")
async def do(request: Request, action: str, fields: Form) -> Response:
    """Do one thing, the same if it is asked twice or by two presenters; answer with the page and a sentence."""
    room, what = _room(request), access.last(fields, "what")
    rounds = room.rounds
    actions: dict[str, Callable[[], str]] = {
        "open": rounds.open,
        "close": rounds.close,
        "reveal": rounds.reveal,
        "next": lambda: rounds.next(what),
        "again": rounds.again,
        "freeze": lambda: rounds.freeze(True),
        "unfreeze": lambda: rounds.freeze(False),
        "hide": lambda: rounds.hide(what, True),
        "show": lambda: rounds.hide(what, False),
        "free": lambda: rounds.free(what),
        "hide-card": lambda: rounds.hide_card(what, True),
        "offer-card": lambda: rounds.hide_card(what, False),
        "show-votes": lambda: rounds.reveal_votes(True),
        "open-votes": lambda: rounds.reveal_votes(False),
    }
    try:
        if action == "kill":
            sentence, wrong = await room.kill_worker(), False
        elif action in actions:
            sentence, wrong = actions[action](), False
        else:
            raise HTTPException(404, "There is no such action.")
    except UserError as error:
        sentence, wrong = str(error), True
    room.live.changed()
    note = pages.render("_said.html", text=sentence, wrong=wrong)
    if "hx-request" not in request.headers:
        room.notes[_who(request)] = note  # for the page that follows
        return RedirectResponse("/presenter", 303)
    return HTMLResponse(presenter_fragment(room) + pages.partial("said", pages.Markup(note)))


def board_fragment(room: Room) -> str:
    """Return the board's body."""
    book, now = room.rounds.book, room.rounds.round
    status = book.good if book.frozen and book.good else now.status
    cards = {card.id: card.title for card in room.rounds.cards.values()} | {OWN: "my own"}
    votes = tally(room) if book.blind_revealed else None
    return pages.render(
        "_board.html", round=now, book=book, status=status, cards=cards, seats=room.rounds.seats, tally=votes
    )


def presenter_fragment(room: Room) -> str:
    """Return the body of the presenter's page."""
    book, now = room.rounds.book, room.rounds.round
    cards = [(card.id, card.title) for card in room.rounds.cards.values()] + [(OWN, "my own")]
    return pages.render(
        "_presenter.html", round=now, book=book, cards=cards, runner=room.runner is not None, tally=tally(room)
    )


def _curves(room: Room) -> tuple[str, str] | None:
    """Return the event with the losses of each owner, thinned."""
    book = room.rounds.book
    status: Status = book.good if book.frozen and book.good else room.rounds.round.status
    curves = {owner: _thinned(list(losses)) for owner, losses in sorted(status.losses.items())}
    return ("curves", json.dumps(curves, separators=(",", ":")))


def _thinned(losses: list[float]) -> list[list[float]]:
    """Return [step, loss] of at most POINTS steps, the last among them."""
    every = max(1, -(-len(losses) // POINTS))
    return [[n + 1, round(losses[n], 3)] for n in range(len(losses)) if (len(losses) - 1 - n) % every == 0]


def _who(request: Request) -> str:
    return access.presenter(request) or ""


def _room(request: Request) -> Room:
    room: Room = request.app.state.room
    return room
