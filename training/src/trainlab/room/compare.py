"""The page of everybody: one question to every model side by side; and the blind comparison with its votes."""

import hashlib
import hmac
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any

from fastapi import APIRouter, HTTPException, Request, Response
from fastapi.responses import HTMLResponse
from fastapi.sse import EventSourceResponse, ServerSentEvent

from trainlab.errors import UserError
from trainlab.room import access, answers, pages
from trainlab.room.cards import Refused
from trainlab.room.engine import Side
from trainlab.room.settings import Room
from trainlab.room.view import Form, page

router = APIRouter()
CHOICES = {"a": "A is better", "b": "B is better", "both": "Both are good", "none": "No preference"}
MAX_VOTES = 30  # of one visitor in a round
CONFIDENCE, SAMPLES, SEED = 0.95, 10_000, 7


@router.get("/")
async def compare(request: Request, q: str = "") -> Response:
    """The compare page; `q` is asked at once."""
    return page(request, "compare.html", question=q.strip()[: answers.MAX_QUESTION])


@router.post("/ask", response_class=EventSourceResponse)
async def ask(request: Request, fields: Form) -> AsyncIterator[ServerSentEvent]:
    """Stream the answers of all models."""
    room: Room = request.app.state.room
    try:
        question = answers.question_of(access.last(fields, "question"))
        book = room.rounds.book
        kept = book.answers.get(question) if book.frozen else None
        cards = [] if kept else [answers.named(side) for side in await room.engines.sides()]
    except UserError as problem:
        yield answers.error(str(problem))
        return
    prepared = question in {each.text for each in room.questions}
    keep = (lambda complete: room.rounds.keep(question, complete)) if prepared else (lambda complete: None)
    events = (
        answers.replay(question, kept)
        if kept
        else answers.stream(room, access.address(request), question, cards, keep=keep)
    )
    async for event in events:
        yield event


@router.get("/blind")
async def blind(request: Request) -> Response:
    """The blind comparison."""
    room: Room = request.app.state.room
    return page(request, "blind.html", tally=tally(room), revealed=room.rounds.book.blind_revealed)


@router.post("/blind/ask", response_class=EventSourceResponse)
async def blind_ask(request: Request, fields: Form) -> AsyncIterator[ServerSentEvent]:
    """Stream two answers without names; a vote is offered once both are complete."""
    room: Room = request.app.state.room
    try:
        device = _voter(request)
        question = answers.question_of(access.last(fields, "question"))
        name = _digest(question)
        ballot = room.rounds.book.ballots.get(device, {})
        pair, __ = await _pair(room, device, name)
        if len(ballot) >= MAX_VOTES and name not in ballot:
            raise Refused(f"You have voted {MAX_VOTES} times; thank you.")
    except UserError as problem:
        yield answers.error(str(problem))
        return
    cards = [answers.Shown(side, letter, kind="hidden") for side, letter in zip(pair, "AB", strict=True)]
    if room.rounds.book.blind_revealed or name in ballot:
        last = _named(room, pair, ballot.get(name))
    else:
        last = pages.render("_vote.html", question=question, choices=CHOICES, asked=_asked(room, device, name))
    async for event in answers.stream(room, device, question, cards, numbers=False, last=last):
        yield event


@router.post("/blind/vote")
async def vote(request: Request, fields: Form) -> Response:
    """Take a vote, then say which side was which; neither can be taken back."""
    room: Room = request.app.state.room
    device = _voter(request)
    name, choice = _digest(answers.question_of(access.last(fields, "question"))), access.last(fields, "choice")
    if choice not in CHOICES:
        raise HTTPException(400, "Choose one of the four buttons.")
    if not hmac.compare_digest(access.last(fields, "asked").encode(), _asked(room, device, name).encode()):
        raise Refused("Ask the question first, then vote.")
    (pair, base), book = await _pair(room, device, name), room.rounds.book
    ballot = book.ballots.get(device, {})
    if not book.blind_revealed and name not in ballot and len(ballot) < MAX_VOTES:
        chosen = {"a": pair[0].label, "b": pair[1].label}.get(choice, choice)
        book.ballots, book.base = {**book.ballots, device: {**ballot, name: chosen}}, base
        room.rounds.save()
        room.live.changed()
    return HTMLResponse(_named(room, pair, book.ballots.get(device, {}).get(name)))


def tally(room: Room) -> dict[str, Any] | None:
    """Return the votes of this round: {counts, voters, base, mean, low, high, verdict}, None without any.

    Of a vote the gain is 1 for the model that is not `base` (Engines.base), -1 for `base`, 0 for neither; the interval is over
    visitors, as those of the gate, and None for fewer than six.
    """
    from trainlab.evaluation import paired_comparison  # numpy

    ballots, base = room.rounds.book.ballots, room.rounds.book.base
    votes = [(device, vote) for device, ballot in ballots.items() for vote in ballot.values()]
    if not votes:
        return None
    gains = [0.0 if vote in ("both", "none") else -1.0 if vote == base else 1.0 for __, vote in votes]
    compared = paired_comparison.compare(
        [0.0] * len(gains),
        gains,
        higher_is_better=True,
        samples=SAMPLES,
        confidence=CONFIDENCE,
        seed=SEED,
        clusters=[device for device, __ in votes],
    )
    return {**compared, "counts": dict(Counter(vote for __, vote in votes)), "voters": len(ballots), "base": base}


async def _pair(room: Room, device: str, question: str) -> tuple[tuple[Side, Side], str]:
    """Return base and another model, and base's label. Raises Refused.

    Their order is random for each visitor and question, and always the same.
    """
    sides = await room.engines.sides()
    if len(sides) < 2:
        raise Refused("Only one model is served, so there is nothing to compare.")
    turned = int(room.key.derive("side", device, question)[:8], 16) % 2
    return (sides[1], sides[0]) if turned else (sides[0], sides[1]), sides[0].label


def _asked(room: Room, device: str, question: str) -> str:
    """Return what only a page has on which this visitor asked the question in this round."""
    return room.key.derive("asked", room.rounds.round.id, device, question)


def _named(room: Room, pair: Sequence[Side], vote: str | None) -> str:
    """Return the HTML that says which side was which, and what was voted."""
    text = {"both": "both are good", "none": "no preference"}.get(vote or "", f"{vote} is better")
    return pages.render("_named.html", labels=[side.label for side in pair], vote=text if vote else "")


def _voter(request: Request) -> str:
    """Return the visitor's device. Raises Refused for a browser without the room's cookie."""
    device = access.device(request)
    if device is None:
        raise Refused("This browser keeps no cookies, so a vote cannot be told from another; allow them and reload.")
    return device


def _digest(question: str) -> str:
    return hashlib.sha256(question.encode()).hexdigest()[:16]
