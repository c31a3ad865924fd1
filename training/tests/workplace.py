"""A place where tests start `trainlab` in processes of its own, as an operator or a person does."""

import json
import os
import subprocess
import sys
from pathlib import Path

import forked
from checkout import SOURCES
from tiny import write_data
from trainlab.config import Phase


class Workplace:
    """A folder with model, data set and phase.json, and the command line over them."""

    def __init__(self, root: Path, phase: Phase) -> None:
        self.root, self.phase = root, phase
        (root / "phase.json").write_text(json.dumps({"phase": phase.model_dump(mode="json")}), encoding="utf-8")
        write_data(root / "data")

    def start(self, *more: str, **env: str) -> forked.Run:
        """Start `trainlab run` without its imports; env holds further variables."""
        return self.command(*self._run(more), **env)

    def command(self, verb: str, *more: str, **env: str) -> forked.Run:
        """Start `trainlab VERB` with the folders of model and data set, without its imports."""
        return forked.Run([verb, *more, *self._folders()], environment(**env))

    def python(self, *more: str, before: tuple[str, ...] = (), **env: str) -> "subprocess.Popen[str]":
        """Start `trainlab run` in a Python of its own, or the command `before` with it as arguments."""
        command = [*before, sys.executable, "-m", "trainlab.cli", *self._run(more), *self._folders()]
        return subprocess.Popen(
            command, env=environment(**env), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def _run(self, more: tuple[str, ...]) -> list[str]:
        return ["run", str(self.root / "phase.json"), "--out", str(self.root), *more]

    def _folders(self) -> list[str]:
        return ["--models", str(self.root / "models"), "--data", str(self.root / "data")]


def environment(**more: str) -> dict[str, str]:
    """Return the variables of a shell in which nothing of a job, of trainlab or of torchrun is set, and `more`."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PET_", "TRAINLAB_", "TORCHELASTIC"))}
    return {**clean, "PYTHONPATH": str(SOURCES), "OMP_NUM_THREADS": "1", **more}
