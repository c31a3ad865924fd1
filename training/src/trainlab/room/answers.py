"""Answers of several models side by side, as a stream of parts for htmx; shared by compare, blind and the phones."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from fastapi.sse import ServerSentEvent

from trainlab.errors import UserError
from trainlab.room import pages
from trainlab.room.cards import Refused
from trainlab.room.engine import LABELS, Engines, Piece, Side
from trainlab.room.rounds import Answer
from trainlab.room.settings import Room

MAX_QUESTION = 1000  # characters
AT_ONCE = 2  # questions of one visitor that are being answered
JOIN_SECONDS = 0.05  # pieces that come within it go out together


@dataclass(frozen=True)
class Shown:
    """One card: the model, and what stands above its answer."""

    side: Side
    title: str
    note: str = ""
    kind: str = "tuned"


def named(side: Side) -> Shown:
    """Return a card with the model's own label."""
    return Shown(side, side.label, LABELS.get(side.label, ""), "base" if side.label == "base" else "tuned")


def question_of(text: str) -> str:
    """Return the question as it is asked. Raises Refused."""
    text = text.strip()
    if not text:
        raise Refused("Write a question first.")
    if len(text) > MAX_QUESTION:
        raise Refused(f"The question has {len(text)} characters; ask it in {MAX_QUESTION}.")
    return text


def error(text: str, target: str = "answers") -> ServerSentEvent:
    """Return a part that says in `target` why there is no answer."""
    return ServerSentEvent(raw_data=pages.partial(target, pages.render("_error.html", text=text)))


async def stream(
    room: Room,
    who: str,
    question: str,
    cards: Sequence[Shown],
    numbers: bool = True,
    last: str = "",
    keep: Callable[[list[Answer]], None] = lambda answers: None,
) -> AsyncIterator[ServerSentEvent]:
    """Yield the cards, empty, then their answers as they come, then the HTML `last` in `after`.

    `numbers` says whether tokens and time are shown, by which models may be told apart. `keep` gets complete answers.
    """
    if room.asking.get(who, 0) >= AT_ONCE:
        yield error("Your last question is still being answered.")
        return
    room.asking[who] = room.asking.get(who, 0) + 1
    try:
        html = pages.render("_answers.html", question=question, cards=cards)
        yield ServerSentEvent(raw_data=pages.partial("answers", pages.Markup(html)))
        failed = False
        complete = [Answer(label=card.side.label, text="", tokens=0, seconds=0.0) for card in cards]
        async for pieces in _merged(room.engines, question, [card.side for card in cards]):
            failed = failed or any(piece.error for piece in pieces.values())
            for n, piece in pieces.items():
                complete[n].text += piece.text
                complete[n].tokens, complete[n].seconds = piece.tokens, round(piece.seconds, 1)
            parts = [part for n, piece in pieces.items() for part in _parts(n, piece, numbers)]
            if parts:
                yield ServerSentEvent(raw_data="".join(parts))
        if last and not failed:
            yield ServerSentEvent(raw_data=pages.partial("after", pages.Markup(last)))
        if not failed:
            with suppress(UserError):  # a full disk: the stage check says so, the answers are there
                keep(complete)
        yield ServerSentEvent(raw_data="", event="answered")
    except UserError as problem:
        yield error(str(problem))
    finally:
        room.asking[who] -= 1
        if not room.asking[who]:
            del room.asking[who]


async def replay(question: str, kept: Sequence[Answer]) -> AsyncIterator[ServerSentEvent]:
    """Yield answers that were kept; each card says so."""
    cards = [named(Side(answer.label, "", "")) for answer in kept]
    html = pages.render("_answers.html", question=question, cards=cards)
    parts = [pages.partial("answers", pages.Markup(html))]
    for n, answer in enumerate(kept):
        parts += [pages.partial(f"answer-{n}", answer.text)]
        ended = pages.Markup('<span class="ended">recorded: {} tokens, {} s</span>').format(
            answer.tokens, answer.seconds
        )
        parts += [pages.partial(f"numbers-{n}", ended)]
    yield ServerSentEvent(raw_data="".join(parts))
    yield ServerSentEvent(raw_data="", event="answered")


def _parts(number: int, piece: Piece, numbers: bool) -> list[str]:
    """Return what a piece changes in card `number`."""
    if piece.error:
        return [
            pages.partial(f"card-{number}", pages.Markup(pages.render("_failed.html", text=piece.text)), "beforeend")
        ]
    parts = [pages.partial(f"answer-{number}", piece.text, "beforeend")] if piece.text else []
    if piece.note:
        parts.append(pages.partial(f"numbers-{number}", piece.note))
    elif piece.ended:
        count = f"{piece.tokens} tokens, " if piece.tokens else ""
        text = f"{count}{piece.seconds:.1f} s" if numbers else ""
        html = pages.Markup('<span class="ended">{}</span>').format(text)
        parts.append(pages.partial(f"numbers-{number}", html))
    elif piece.text:
        parts.append(pages.partial(f"numbers-{number}", f"{piece.seconds:.1f} s" if numbers else "answering"))
    return parts


async def _merged(engines: Engines, question: str, sides: Sequence[Side]) -> AsyncIterator[Mapping[int, Piece]]:
    """Yield by number of the side what came; texts that come close to each other are joined."""
    queue: asyncio.Queue[tuple[int, Piece]] = asyncio.Queue()

    async def read(number: int, side: Side) -> None:
        async for piece in engines.ask(side, question):
            queue.put_nowait((number, piece))

    tasks = [asyncio.create_task(read(number, side)) for number, side in enumerate(sides)]
    running = len(tasks)
    try:
        while running:
            number, piece = await queue.get()
            if not piece.ended and not piece.note:
                await asyncio.sleep(JOIN_SECONDS)
            ready = [(number, piece)]
            while not queue.empty():
                ready.append(queue.get_nowait())
            running -= sum(piece.ended for __, piece in ready)
            for group in _joined(ready):
                yield group
    finally:
        for task in tasks:
            task.cancel()


def _joined(ready: Sequence[tuple[int, Piece]]) -> list[dict[int, Piece]]:
    """Return the pieces in order; neighbouring texts of one side become one piece."""
    groups: list[dict[int, Piece]] = [{}]
    for number, piece in ready:
        before = groups[-1].get(number)
        if before is None:
            groups[-1][number] = piece
        elif not (before.note or piece.note or piece.ended or before.ended):
            groups[-1][number] = Piece(before.text + piece.text, seconds=piece.seconds)
        else:
            groups.append({number: piece})
    return groups
