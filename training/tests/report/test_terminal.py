"""Each score of each recipe's gate has a row on the terminal; a new one without a row fails here."""

from pathlib import Path
from typing import Any

import pytest
from trainlab import recipes
from trainlab.config.loading import load_values
from trainlab.evaluation import tasks
from trainlab.report import terminal

VALUES = Path(__file__).resolve().parents[3] / "values"
FILES = (*sorted(VALUES.glob("*.yaml")), VALUES / "room" / "adapters.yaml")
PHASES = {path.stem: load_values([path]).phase for path in FILES}
DECISION = {"promoted", "verdict", "metric", "gain", "reasons", "conditions", "thresholds", "time"}
ITEM = {  # every key that a recipe's gate compares
    **{
        "loss": 2.0,
        "recall": 0.0,
        "labelled": 0,
        "adherence": 0.2,
        "ended": 0,
        "lines": 0,
        "rhyme": 0,
        "syllables": 0.1,
    },
    **{
        "right": 0.4,
        "correct": 0,
        "chosen_logp": -3.0,
        "rejected_logp": -2.0,
        "nearest": "Boil it.",
        "facts": [["boil"]],
    },
}
BETTER = {"loss": 1.0, "chosen_logp": -1.0, **dict.fromkeys(("recall", "labelled", "ended", "lines", "correct"), 1)}


def scored(changed: dict[str, Any]) -> dict[str, Any]:
    one = {"value": 0.25 + len(changed) / 100, "stderr": 0.01, "higher_is_better": True, "values": None}
    task = {"items": 9, "of": 9, "few_shot": 0, "version": 1, "cut": 0, "metrics": {"acc,none": one}}
    items = [
        {
            "id": f"r{number}",
            "group": f"r{number}",
            "kind": "taught" if number % 2 == 0 else "never_taught",
            **ITEM,
            **changed,
        }
        for number in range(12)
    ]
    return {"items": items, "tasks": {"results": {"arc_easy": task}}}


def test_every_recipe_is_here() -> None:
    assert {phase.recipe for phase in PHASES.values()} == set(recipes.RECIPES)


@pytest.mark.parametrize("name", PHASES)
def test_every_score_of_the_gate_has_a_row(name: str) -> None:
    phase, before, after = PHASES[name], scored({}), scored(BETTER)
    recipe = recipes.get_recipe(phase)
    gate = recipe.decide(before, after, phase) | {"tasks": tasks.compare_tasks(before, after, phase)}
    names = {key for key, value in gate.items() if value is not None} - DECISION - {"tasks"}
    told = [row["what"] for row in terminal.rows(gate, recipe.SCORES)]
    assert sorted(told) == sorted([*(key.replace("_", " ") for key in names), "arc_easy acc"])
    assert gate["metric"] in names and phase.gate.metric in recipe.SCORES, "what decides is a score"


def test_rows_say_what_they_are() -> None:
    gain = {"before": 3.2, "after": 2.9, "mean": 0.3, "low": 0.2, "high": 0.4, "pairs": 60, "verdict": "better"}
    search, share = {"mean": 0.66, "low": 0.5, "high": 0.75, "pairs": 80}, {"mean": 0.9, "low": 0.8, "high": 1.0}
    factor = {"before": 24.6, "after": 18.8, "factor": 1.31, "low": 1.27, "high": 1.35}
    gate = {"heldout_loss": gain, "perplexity": factor, "lookup_recall": search, "preference_accuracy": 0.75}
    gate |= {"test_accuracy": {**share, "images": 360}, "form_rhyme": None}
    units = {"perplexity": "blocks", "heldout_loss": "blocks", "lookup_recall": "questions"}
    units |= {"preference_accuracy": "pairs", "test_accuracy": "images", "form_rhyme": "questions"}
    assert [" | ".join(row.values()) for row in terminal.rows(gate, units)] == [
        "perplexity | 24.600 | 18.800 | / 1.310 (1.270 to 1.350) | over blocks",
        "heldout loss | 3.200 | 2.900 | +0.300 (+0.200 to +0.400) | better, 60 blocks",
        "lookup recall |  |  | 0.660 (0.500 to 0.750) | search without a model, 80 questions",
        "preference accuracy |  | 0.750 |  | share of pairs",
        "test accuracy |  | 0.900 | (0.800 to 1.000) | 360 images",
    ]
    assert terminal.rows(None, units) == []
    few = {**gain, "low": None, "high": None, "verdict": "too few to tell", "pairs": 3}
    assert [" | ".join(row.values()) for row in terminal.rows({"heldout_loss": few}, units)] == [
        "heldout loss | 3.200 | 2.900 | +0.300 (no interval) | too few to tell, 3 blocks"
    ]
