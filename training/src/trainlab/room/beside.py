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


def pages(phase: LanguagePhase, run_dir: Path, url: str) -> FastAPI:
    """Return the application that compares the models of the server at `url`; its votes end with it."""
    folder = tempfile.TemporaryDirectory(prefix="trainlab-room-")
    state = Path(folder.name)
    room = Room(
        key=keys.load(state),
        rounds=Rounds(state, {}, seats=1),
        engines=Engines([url], phase.serve.max_tokens),
        title=phase.title,
        questions=prepared(phase, run_dir),
        run_dir=run_dir,
    )
    app = create_app(room)
    app.state.folder = folder  # which goes with it
    return app
