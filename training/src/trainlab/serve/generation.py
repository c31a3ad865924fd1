"""One batch of generations: tokens to text as they come, stop sequences, cancellation; used by inference_engine.py and work.py. No HTTP here."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from transformers import StoppingCriteria, StoppingCriteriaList

from trainlab.models import chat

Finish = Literal["stop", "length"]


@dataclass(frozen=True)
class Options:
    """How a text is generated; temperature 0 is greedy."""

    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    stop: tuple[str, ...] = ()
    seed: int | None = None

    @property
    def sampling(self) -> tuple[float, float] | None:
        """What the requests of a batch have in common; None for a request that goes alone: a seed draws otherwise in a batch."""
        if self.temperature == 0:
            return 0.0, 1.0
        return (self.temperature, self.top_p) if self.seed is None else None


@dataclass(frozen=True)
class Outcome:
    """How a generation ended; `tokens` counts what the model generated, including the end token."""

    finish: Finish
    tokens: int


@dataclass(frozen=True)
class Row:
    """One request of a batch: `emit` takes its text as it comes, `end` how it ended; once `cancelled` is set it ends at its next token."""

    prompt: Sequence[int]
    options: Options
    emit: Callable[[str], None]
    end: Callable[[Outcome], None]
    cancelled: threading.Event


class Pieces:
    """Takes the tokens of one answer, passes on text that is final: whole characters, no part of a stop sequence."""

    def __init__(self, tokenizer: Any, stop: Sequence[str], emit: Callable[[str], None]) -> None:
        self._tokenizer, self._stop, self._emit = tokenizer, [text for text in stop if text], emit
        self._ids: list[int] = []
        self._prefix = self._read = 0  # tokens before _prefix are done; between the two: context of the next piece
        self._held = ""  # may be the start of a stop sequence
        self.stopped = False

    @property
    def tokens(self) -> int:
        """How many tokens there are so far."""
        return len(self._ids)

    def put(self, token: int) -> None:
        """Take the next token."""
        self._ids.append(token)
        text = self._new_text()
        if not text.endswith("\ufffd"):  # half a character: the next token completes it
            self._take(text)

    def end(self) -> None:
        """Pass on what is left."""
        self._take(self._new_text())
        if not self.stopped and self._held:
            self._emit(self._held)
        self._held = ""

    def _new_text(self) -> str:
        """Return the text of the tokens since _read; decoded with those before, because spaces depend on them."""
        before = self._tokenizer.decode(self._ids[self._prefix : self._read], skip_special_tokens=True)
        now = self._tokenizer.decode(self._ids[self._prefix :], skip_special_tokens=True)
        return str(now[len(before) :])

    def _take(self, text: str) -> None:
        self._prefix, self._read = self._read, len(self._ids)
        if self.stopped:
            return
        self._held += text
        places = [place for place in (self._held.find(stop) for stop in self._stop) if place >= 0]
        if places:
            self.stopped = True
            ready = self._held[: min(places)]
        else:
            ready = self._held[: len(self._held) - self._open_end()]
        self._held = self._held[len(ready) :]
        if ready:
            self._emit(ready)

    def _open_end(self) -> int:
        """Return how many characters at the end of the held text could begin a stop sequence."""
        ends = (n for stop in self._stop for n in range(1, len(stop)) if self._held.endswith(stop[:n]))
        return max(ends, default=0)


class _Rows(StoppingCriteria):
    """Hands each row its newest token, and ends it at an end token, a stop sequence, its own limit, or when its client is gone."""

    def __init__(self, rows: Sequence[Row], tokenizer: Any, stops: Sequence[int]) -> None:
        self._rows, self._stops = rows, stops
        self._pieces = [Pieces(tokenizer, row.options.stop, row.emit) for row in rows]
        self._over = [False] * len(rows)

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:  # type: ignore[override]
        """Return for each row whether it is over; its tokens from then on are padding."""
        for place, token in enumerate(input_ids[:, -1].tolist()):
            if not self._over[place]:
                self._over[place] = self._take(self._rows[place], self._pieces[place], token)
        return torch.tensor(self._over, device=input_ids.device)

    def _take(self, row: Row, pieces: Pieces, token: int) -> bool:
        pieces.put(token)
        ended = pieces.stopped or token in self._stops
        if not ended and pieces.tokens < row.options.max_tokens and not row.cancelled.is_set():
            return False
        pieces.end()
        row.end(Outcome("stop" if ended else "length", pieces.tokens))
        return True


def padded_tokens(rows: Sequence[Row]) -> int:
    """Return how many tokens a batch may come to hold, padding counted: its memory for keys and values."""
    return len(rows) * (max(len(row.prompt) for row in rows) + max(row.options.max_tokens for row in rows))


# Not transformers' continuous batching (read and tried in 5.23 on CPU), in which requests join a running batch. Its manager is greedy
# or samples for all requests, knows no seed, and an error in one step ends it for everybody; adapters are switched for all that
# runs in it. With it 8 answers of a 135 M model took 5.6 s of CPU, as a padded batch 4.4 s, one after another 19 s (AMD EPYC, 2026-11-25).
def generate(model: Any, tokenizer: Any, rows: Sequence[Row]) -> None:
    """Answer `rows`, which have the same `Options.sampling`, as one batch, each as it would be answered alone; a row that is
    over ends at once, the batch with its last one.

    Answers are equal but where float sums in another order turn a close choice. `seed` makes a sampled text repeatable as long
    as no other sampled request runs concurrently.
    """
    for row in rows:
        if row.cancelled.is_set():
            row.end(Outcome("stop", 0))
    rows = [row for row in rows if not row.cancelled.is_set()]
    if not rows:
        return
    options, stops = rows[0].options, chat.stop_ids(model, tokenizer)
    ids, mask = chat.padded([row.prompt for row in rows], tokenizer.pad_token_id, model.device)
    sampling: dict[str, Any] = {"do_sample": False}
    if options.temperature > 0:
        if options.seed is not None:
            torch.manual_seed(options.seed)
        sampling = {"do_sample": True, "temperature": options.temperature, "top_p": options.top_p, "top_k": 0}
    with torch.inference_mode():
        model.generate(
            input_ids=ids,
            attention_mask=mask,
            max_new_tokens=max(row.options.max_tokens for row in rows),
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=stops,
            stopping_criteria=StoppingCriteriaList([_Rows(rows, tokenizer, stops)]),
            **sampling,
        )
