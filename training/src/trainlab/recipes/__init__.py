"""Recipes: one module per algorithm with `train`, and the hooks (base.py) by which the rest of the package runs it.

A recipe leaves best_model/ and training_history.json in the run directory (rank 0) and returns the summary that becomes
training_summary.json. A new algorithm is a module here and its name in config.Phase.recipe; one that is not a language
model gets hooks of its own in HOOKS.
"""

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainlab.config import Phase
from trainlab.data import TrainRow
from trainlab.progress import Progress
from trainlab.recipes.base import Recipe

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

HOOKS = {  # module and class; all others tune language models on questions and answers
    "resnet": ("trainlab.vision.recipe", "VisionRecipe"),
    "cpt": ("trainlab.text.recipe", "TextRecipe"),
    "pretrain": ("trainlab.staged.recipe", "Pretrain"),
    "dpo": ("trainlab.staged.recipe", "Preferences"),
}


def of(phase: Phase, models: Path | None = None) -> Recipe:
    """Return the hooks of the recipe that the phase names; `models` is the model volume, which `evaluate.tasks` needs."""
    module, name = HOOKS.get(phase.recipe, ("trainlab.recipes.language", "Language"))
    recipe: Recipe = getattr(import_module(module), name)(phase, models)
    return recipe


@dataclass
class Job:
    """What a recipe of language models gets: the phase, the loaded base model and the rows, the same on every rank."""

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
