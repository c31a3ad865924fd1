"""What a recipe is to the rest of the package: a module with these functions; and the run that they work on.

No torch on import: `trainlab fetch`, `verify-run` and the launcher import only this far.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from trainlab.engine.memory import Profile
from trainlab.progress import Progress

Scores = dict[str, Any]


@dataclass
class Run:
    """A run as one rank sees it: its phase, folders (`models`: the model volume), trackers, progress, hardware, peaks of memory."""

    phase: Any
    run_dir: Path
    model_dir: Path
    data_dir: Path
    models: Path | None = None
    progress: Progress = field(default_factory=lambda: Progress(False))
    hardware: Mapping[str, Any] = field(default_factory=dict)
    memory: Profile = field(default_factory=Profile)
    report_to: tuple[str, ...] = ()


def trained_before(run: Run, result: str) -> bool:
    """Tell on every rank, and say, whether an earlier start left the folder `result` and the summary that is written after it."""
    from trainlab.engine import dist

    complete = (run.run_dir / "training_summary.json").exists() and (run.run_dir / result).is_dir()
    if dist.gather(complete)[0]:
        run.progress.say("the training was complete at an earlier start; what it left is scored")
        return True
    return False


class Recipe(Protocol):
    """The parts of a run that differ between kinds of models; the files of a run directory do not."""

    @property
    def SCORES(self) -> Mapping[str, str]:
        """Keys of gate.json that hold a score, in display order -> what it counts; each has a row on the terminal and in report.json."""

    def fetch(self, phase: Any, models: Path, wheels: Path | None) -> Path:
        """Put what the phase needs into the folder `models`; return the folder that was filled. Raises UserError."""

    def data_dir(self, phase: Any, models: Path, data: Path | None) -> Path:
        """Return the data folder (or file); `data` is --data. Raises UserError where it cannot be found."""

    def preflight(self, phase: Any, model_dir: Path, data_dir: Path, models: Path | None = None) -> None:
        """Raise UserError for a missing model or broken data; runs once, before the first rank. models: the model volume."""

    def origin(
        self, phase: Any, model_dir: Path, data_dir: Path, models: Path | None = None
    ) -> dict[str, dict[str, Any]]:
        """Return {"model": ..., "data": ...} of the manifest, each with source and, where it can change, sha256."""

    def preload(self) -> None:
        """Import what training and scoring import: in a process that will be forked, once instead of in every rank."""

    def train(self, run: Run) -> tuple[Scores, Scores]:
        """Score, train, score on every rank; write all files except gate and report; return both scores."""

    def rescore(self, run: Run) -> None:
        """Write eval_before.json and eval_after.json of a finished run again, in this process."""

    def decide(self, before: Scores, after: Scores, phase: Any) -> dict[str, Any]:
        """Return the content of gate.json."""

    def report(self, run_dir: Path) -> tuple[dict[str, Any], str]:
        """Return the content of report.json and the page."""

    def serve(self, phase: Any, models: Path, run_dir: Path, host: str, port: int, pages: Any = None) -> None:
        """Serve until a signal arrives; `pages` maps the address to the application for an audience, None for no pages."""

    def probe(self, run_dir: Path, url: str, model: str, timeout: float) -> str:
        """Ask the served `model` something within `timeout` seconds; return one sentence on its answer.

        Raises client.Unreachable while a server may still be starting, UserError for a wrong answer.
        """
