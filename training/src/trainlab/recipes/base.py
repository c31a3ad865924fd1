"""The interface of a recipe to run, work, fetch, report, serve and verify-run; see language.py and recipes/resnet/resnet_recipe.py.

No torch on import: `trainlab fetch` and `verify-run` import only this far.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from trainlab.config import Phase
from trainlab.engine.memory import Profile
from trainlab.progress import Progress

Scores = dict[str, Any]


class Recipe(ABC):
    """The parts of a run that differ between kinds of models; the files of a run directory do not."""

    SCORES: ClassVar[Mapping[str, str]]
    """Keys of gate.json that hold a score, in display order -> what it counts; each has a row on the terminal and in report.json."""

    def __init__(self, phase: Phase, models: Path | None = None) -> None:
        self.phase, self.models, self.memory = phase, models, Profile()

    @abstractmethod
    def fetch(self, models: Path, wheels: Path | None) -> Path:
        """Put what the phase needs into the folder `models`; return the folder that was filled. Raises UserError."""

    def rehearse(self, models: Path) -> None:  # noqa: B027 (most recipes have nothing to rehearse)
        """After `fetch`: try on one row what each rank would do with model and data; raises UserError. Does nothing by default."""

    @abstractmethod
    def folders(self, models: Path, given: Path | None) -> tuple[Path, Path]:
        """Return (model folder, data folder); `given` is --data. Raises UserError where one cannot be found."""

    @abstractmethod
    def preflight(self, model_dir: Path, data_dir: Path) -> None:
        """Raise UserError for a missing model or broken data; runs once, before the first rank."""

    @abstractmethod
    def origin(self, model_dir: Path, data_dir: Path) -> dict[str, dict[str, Any]]:
        """Return {"model": ..., "data": ...} of the manifest, each with source and, where it can change, sha256."""

    @abstractmethod
    def train(
        self, run_dir: Path, model_dir: Path, data_dir: Path, progress: Progress, hardware: Mapping[str, Any]
    ) -> tuple[Scores, Scores]:
        """Score, train, score on every rank; write all files except gate and report; return both scores."""

    @abstractmethod
    def rescore(self, run_dir: Path, models: Path, given: Path | None) -> None:
        """Write eval_before.json and eval_after.json of a finished run again, in this process."""

    @abstractmethod
    def decide(self, before: Scores, after: Scores) -> dict[str, Any]:
        """Return the content of gate.json."""

    @abstractmethod
    def report(self, run_dir: Path) -> tuple[dict[str, Any], str]:
        """Return the content of report.json and the page."""

    @abstractmethod
    def serve(self, models: Path, run_dir: Path, host: str, port: int) -> None:
        """Serve until a signal arrives."""

    @abstractmethod
    def probe(self, run_dir: Path, url: str, model: str, timeout: float) -> str:
        """Ask the served `model` something within `timeout` seconds; return one sentence on its answer.

        Raises client.Unreachable while a server may still be starting, UserError for a wrong answer.
        """
