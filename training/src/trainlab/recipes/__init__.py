"""Recipes: one module per algorithm, each with `train(job) -> dict`; called by work.py on every rank.

A recipe leaves best_model/ and training_history.json in the run directory (rank 0) and returns the summary that becomes
training_summary.json. A new algorithm is a module here and its name in config.Phase.recipe.
"""

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainlab.config import Phase
from trainlab.data import TrainRow
from trainlab.progress import Progress

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass
class Job:
    """What a recipe gets: the phase, the loaded base model and the rows, the same on every rank."""

    phase: Phase
    run_dir: Path
    model: "PreTrainedModel"
    tokenizer: "PreTrainedTokenizerBase"
    rows: list[TrainRow]
    progress: Progress


def train(job: Job) -> dict[str, Any]:
    """Run the recipe that the phase names."""
    summary: dict[str, Any] = import_module(f"trainlab.recipes.{job.phase.recipe}").train(job)
    return summary
