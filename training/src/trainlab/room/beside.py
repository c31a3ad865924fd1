"""The pages of `trainlab serve`: the room without rounds, in the server's own process."""

import tempfile
from pathlib import Path

from fastapi import FastAPI

from trainlab.config import LanguagePhase
from trainlab.room import keys
from trainlab.room.app import create_app
from trainlab.room.engine import Engines
from trainlab.room.rounds import Rounds
from trainlab.room.settings import Room, prepared


def pages(phase: LanguagePhase, run_dir: Path, port: int) -> FastAPI:
    """Return the application that compares the models of the server at `port` of this machine; its votes end with it."""
    state = Path(tempfile.mkdtemp(prefix="trainlab-room-"))
    room = Room(
        key=keys.load(state),
        rounds=Rounds(state, {}, seats=1),
        engines=Engines([f"http://localhost:{port}"], phase.serve.max_tokens),
        title=phase.title,
        questions=prepared(phase, run_dir),
        run_dir=run_dir,
    )
    return create_app(room)
