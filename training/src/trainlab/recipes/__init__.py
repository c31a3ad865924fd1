"""Recipes: one module per algorithm with `train`, and the hooks (base.py) by which the rest of the package runs it.

A recipe leaves best_model/ and training_history.json in the run directory (rank 0) and returns the summary that becomes
training_summary.json. A new algorithm is a module here and a kind of phase in config/phases.py; one that is not a language
model gets hooks of its own in HOOKS.
"""

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from trainlab.config import LanguagePhase, Phase
from trainlab.data import TrainRow
from trainlab.progress import Progress
from trainlab.recipes.base import Recipe

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

P = TypeVar("P", bound=LanguagePhase, covariant=True)
HOOKS = {  # module and class
    "sft": ("trainlab.recipes.language", "Answers"),
    "resnet": ("trainlab.vision.image_recipe", "VisionRecipe"),
    "cpt": ("trainlab.text.text_recipe", "TextRecipe"),
    "pretrain": ("trainlab.staged.stage_recipes", "Pretrain"),
    "dpo": ("trainlab.staged.stage_recipes", "Preferences"),
}


def of(phase: Phase, models: Path | None = None) -> Recipe:
    """Return the hooks of the recipe that the phase names; `models` is the model volume, which `evaluate.tasks` needs."""
    module, name = HOOKS[phase.recipe]
    recipe: Recipe = getattr(import_module(module), name)(phase, models)
    return recipe


@dataclass
class Job(Generic[P]):
    """What a recipe of language models gets: the phase, the loaded base model and the rows, the same on every rank."""

    phase: P
    run_dir: Path
    model: "PreTrainedModel"
    tokenizer: "PreTrainedTokenizerBase"
    rows: list[TrainRow]
    progress: Progress


def train(job: Job[LanguagePhase]) -> dict[str, Any]:
    """Run the recipe that the phase names."""
    summary: dict[str, Any] = import_module(f"trainlab.recipes.{job.phase.recipe}").train(job)
    return summary
