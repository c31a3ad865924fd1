"""One generation: tokens to text as they come, stop sequences, cancellation; used by inference_engine.py. No HTTP here."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from transformers import StoppingCriteria, StoppingCriteriaList
from transformers.generation.streamers import BaseStreamer

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


@dataclass(frozen=True)
class Outcome:
    """How a generation ended; `tokens` counts what the model generated, including the end token."""

    finish: Finish
    tokens: int


class Pieces(BaseStreamer):
    """Takes tokens from `generate`, passes on text that is final: whole characters, no part of a stop sequence."""

    def __init__(self, tokenizer: Any, stop: Sequence[str], emit: Callable[[str], None]) -> None:
        self._tokenizer, self._stop, self._emit = tokenizer, [text for text in stop if text], emit
        self._ids: list[int] = []
        self._prefix = self._read = 0  # tokens before _prefix are done; between the two: context of the next piece
        self._held = ""  # may be the start of a stop sequence
        self._prompt = True
        self.stopped = False

    @property
    def ids(self) -> list[int]:
        """All tokens generated so far."""
        return self._ids

    def put(self, value: torch.Tensor) -> None:
        """Take the prompt (first call, skipped) or the next token."""
        if self._prompt:
            self._prompt = False
            return
        self._ids += value.reshape(-1).tolist()
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


class _Halt(StoppingCriteria):
    """Ends a generation when a stop sequence was seen or the client is gone."""

    def __init__(self, pieces: Pieces, cancelled: threading.Event) -> None:
        self._pieces, self._cancelled = pieces, cancelled

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:  # type: ignore[override]
        """Return True for every sequence when it is over."""
        over = self._pieces.stopped or self._cancelled.is_set()
        return torch.full((input_ids.shape[0],), over, dtype=torch.bool, device=input_ids.device)


def generate(
    model: Any,
    tokenizer: Any,
    prompt: Sequence[int],
    options: Options,
    emit: Callable[[str], None],
    cancelled: threading.Event,
) -> Outcome:
    """Generate after `prompt` (token ids), handing text to `emit` as it comes; returns how it ended.

    `seed` makes a sampled text repeatable as long as no other sampled request runs concurrently.
    """
    stops = chat.stop_ids(model, tokenizer)
    pieces = Pieces(tokenizer, options.stop, emit)
    ids = torch.tensor([list(prompt)], device=model.device)
    if options.seed is not None:
        torch.manual_seed(options.seed)
    sampling: dict[str, Any] = {"do_sample": False}
    if options.temperature > 0:
        sampling = {"do_sample": True, "temperature": options.temperature, "top_p": options.top_p, "top_k": 0}
    with torch.inference_mode():
        model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=options.max_tokens,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=stops,
            streamer=pieces,
            stopping_criteria=StoppingCriteriaList([_Halt(pieces, cancelled)]),
            **sampling,
        )
    ended = pieces.stopped or bool(set(pieces.ids[-1:]) & set(stops))
    return Outcome("stop" if ended else "length", len(pieces.ids))
