"""A place where tests start `trainlab run` in processes of its own, as an operator or a person does."""

import json
import os
import subprocess
import sys
from pathlib import Path

from checkout import SOURCES
from tiny import write_data
from trainlab.config import Phase


class Workplace:
    """A folder with model, data set and phase.json, and the command line over them."""

    def __init__(self, root: Path, phase: Phase) -> None:
        self.root, self.phase = root, phase
        (root / "phase.json").write_text(json.dumps({"phase": phase.model_dump(mode="json")}), encoding="utf-8")
        write_data(root / "data")

    def start(self, *more: str, before: tuple[str, ...] = (), **env: str) -> "subprocess.Popen[str]":
        """Start `trainlab run`, or the command `before` with it as arguments; env holds further variables."""
        run = ["run", str(self.root / "phase.json"), "--out", str(self.root), *more]
        return self.command(*run, before=before, **env)

    def command(self, verb: str, *more: str, before: tuple[str, ...] = (), **env: str) -> "subprocess.Popen[str]":
        """Start `trainlab VERB` with the folders of model and data set."""
        folders = ["--models", str(self.root / "models"), "--data", str(self.root / "data")]
        command = [*before, sys.executable, "-m", "trainlab.cli", verb, *more, *folders]
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("PET_", "TRAINLAB_", "TORCHELASTIC"))}
        full = {**clean, "PYTHONPATH": str(SOURCES), "OMP_NUM_THREADS": "1", **env}
        return subprocess.Popen(command, env=full, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
