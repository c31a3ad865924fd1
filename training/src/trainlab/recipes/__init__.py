"""The recipes, one folder each; base.py defines the interface to the rest of the package.

A recipe leaves best_model/ and training_history.json in the run directory (rank 0) and returns the summary that becomes
training_summary.json. A new one is a folder, a line in RECIPES and a phase class in config/phases.py.
"""

from importlib import import_module
from pathlib import Path

from trainlab.config import LanguagePhase, Phase
from trainlab.recipes.base import Recipe

RECIPES = {  # the class of its hooks, in recipes/NAME/NAME_recipe.py
    "sft": "SftRecipe",
    "resnet": "ResnetRecipe",
    "cpt": "CptRecipe",
    "pretrain": "PretrainRecipe",
    "dpo": "DpoRecipe",
}


def of(phase: Phase, models: Path | None = None) -> Recipe:
    """Return the hooks of the recipe that the phase names; `models` is the model volume, which `evaluate.tasks` needs."""
    name = phase.recipe
    hooks: type[Recipe] = getattr(import_module(f"trainlab.recipes.{name}.{name}_recipe"), RECIPES[name])
    return hooks(phase, models)


def preload(phase: Phase) -> None:
    """Import what training and scoring by this recipe import: in a process that will be forked, once instead of in every rank."""
    name = phase.recipe
    import_module(f"trainlab.recipes.{name}.{name}_trainer")
    import_module("torch.utils.tensorboard")
    if isinstance(phase, LanguagePhase):
        import_module("trainlab.evaluation.answer_score")
