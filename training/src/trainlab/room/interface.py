"""What the room asks of whoever starts its training job; runners live elsewhere."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable


@dataclass(frozen=True)
class Decision:
    """What the gate decided about one visitor's adapter. `model` is the name to ask the engine for, never used twice."""

    promoted: bool
    reasons: tuple[str, ...]
    model: str


@dataclass(frozen=True)
class Status:
    """State of a run. `fraction` is 0 to 1 of the job, `message` a sentence for people.

    losses: owner -> loss of each step so far. decided: owner -> decision, once the owner's gate has decided.
    """

    state: Literal["queued", "running", "done", "failed"]
    fraction: float = 0.0
    seconds_left: float | None = None
    message: str = ""
    losses: Mapping[str, Sequence[float]] = field(default_factory=dict)
    decided: Mapping[str, Decision] = field(default_factory=dict)


class Runner(Protocol):
    """Starts one job for all visitors of a round and reports on it. Its methods may block; they are called in a thread.

    A row is {"owner": "p07", "id": "p07-pet", "question": str, "phrasings": [str], "test": [held-out wordings], "answer": str,
    "facts": [[alternative spellings]]}; owner matches [a-z0-9]{1,16}.
    """

    def start(self, round_id: str, rows: Sequence[Mapping[str, Any]]) -> str:
        """Return the name of the run; for a known `round_id` the run that was started. Raises UserError."""

    def status(self, run: str) -> Status:
        """Return the state of `run`. Raises UserError."""

    def kill_worker(self, run: str) -> str:
        """Kill one worker of `run`; return one sentence about it. Raises UserError."""


@runtime_checkable
class TakesHome(Protocol):
    """A runner that hands out what it trained."""

    def take_home(self, run: str, owner: str, name: str) -> Path | None:
        """Return the file `name` (adapter.zip) of an owner's adapter, None where there is none. Raises UserError."""
