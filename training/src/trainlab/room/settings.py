"""What one room is made of, and its loop that starts a round's job and follows it."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainlab import files
from trainlab.config import LanguagePhase
from trainlab.errors import UserError
from trainlab.room.engine import Engines
from trainlab.room.interface import Runner
from trainlab.room.keys import Key
from trainlab.room.live import Live
from trainlab.room.rounds import Rounds

log = logging.getLogger("uvicorn.error")
POLL_SECONDS = 2.0


@dataclass(frozen=True)
class Question:
    """A prepared question and what it is meant to show."""

    text: str
    shows: str = ""


@dataclass
class Room:
    """The parts of a room. `address` is what visitors open, "" for that of the request; `runner` None: no rounds.

    take_home: returns the file NAME (adapter.zip) of an owner's adapter of a run, None where there is none.
    notes: presenter's cookie -> what the button said that was pressed in a browser without scripts.
    charts: the files of helm_repository.repository, and PHASE.yaml, what attendees install with them; empty serves none.
    """

    key: Key
    rounds: Rounds
    engines: Engines
    title: str
    questions: Sequence[Question] = ()
    runner: Runner | None = None
    address: str = ""
    run_dir: Path | None = None
    report: str = ""
    charts: Mapping[str, bytes] = field(default_factory=dict)
    phase: str = ""
    take_home: Callable[[str, str, str], Path | None] = lambda run, owner, name: None
    poll_seconds: float = POLL_SECONDS
    live: Live = field(default_factory=Live)
    asking: dict[str, int] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rounds.of_key(self.key.derive("state")[:16])

    async def follow(self) -> None:
        """Start the job of a closed round and ask for its state, until cancelled."""
        while True:
            try:
                if await self.step():
                    self.live.changed()
            except Exception:  # the room goes on; the next look may succeed
                log.exception("following the round failed")
                self.live.changed()  # what is known was noted, though it could not be written
            await asyncio.sleep(self.poll_seconds)

    async def step(self) -> bool:
        """Start or look at the job once; return whether anything changed. What fails is noted as the round's problem."""
        book, now = self.rounds.book, self.rounds.round
        if self.runner is None or book.frozen or now.state != "locked" or now.status.state in ("done", "failed"):
            return False
        try:
            if now.run is None:
                if now.problem:
                    return False  # until the presenter has it tried again
                run = await asyncio.to_thread(self.runner.start, now.id, now.rows())
                self.rounds.started(now.id, run)
                return True
            status = await asyncio.to_thread(self.runner.status, now.run)
            return self.rounds.update_status(now.id, status)
        except UserError as error:
            return self.rounds.failed(now.id, str(error))
        except Exception as error:
            log.exception("the job of the round cannot be started or asked")
            return self.rounds.failed(now.id, f"{type(error).__name__}: {error}")

    async def kill_worker(self) -> str:
        """Kill one worker of the round's job; return a sentence. Raises UserError."""
        now = self.rounds.round
        if self.runner is None or now.run is None or now.status.state not in ("queued", "running"):
            raise UserError("No job is running, so there is no worker to kill.")
        return await asyncio.to_thread(self.runner.kill_worker, now.run)


def shown(
    questions: Sequence[str], never_taught: Sequence[str], notes: Mapping[str, str] | None = None
) -> list[Question]:
    """Return the prepared questions with what each shows: `notes`, else whether it was taught where that is known."""
    known = bool(never_taught)
    return [
        Question(
            text, (notes or {}).get(text) or ("never taught" if text in never_taught else "taught" if known else "")
        )
        for text in questions
    ]


def prepared(phase: LanguagePhase, run_dir: Path | None) -> list[Question]:
    """Return the questions of a phase with what each shows, as far as the manifest of `run_dir` says which were never taught."""
    manifest = run_dir / "manifest.json" if run_dir else None
    data = files.read_json(manifest).get("data", {}) if manifest and manifest.is_file() else {}
    return shown(list(phase.questions), data.get("never_taught", []))
