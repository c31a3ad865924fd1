"""The recipes, one file each, read from top to bottom; base.py says what the rest of the package calls.

A recipe leaves best_model/ and training_history.json in the run directory (rank 0) and what it trained in training_summary.json. A
new one is a file, a line in RECIPES and a phase class in config/phases.py.
"""

from collections.abc import Mapping

from trainlab.config import Phase
from trainlab.recipes import adapters, cpt, dpo, pretrain, resnet, sft
from trainlab.recipes.base import Recipe

RECIPES: Mapping[str, Recipe] = {
    "sft": sft,
    "adapters": adapters,
    "resnet": resnet,
    "cpt": cpt,
    "pretrain": pretrain,
    "dpo": dpo,
}


def get_recipe(phase: Phase) -> Recipe:
    """Return the recipe that the phase names."""
    return RECIPES[phase.recipe]
