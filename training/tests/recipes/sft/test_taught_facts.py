"""A run that teaches facts, from rows to the page: new words and never taught stand side by side, a search beside them."""

from pathlib import Path
from typing import Any

import pytest
from tiny import phase_from, write_data, write_taught
from trainlab import files, recipes
from trainlab.config.loading import load_values
from trainlab.data.nearest import with_nearest
from trainlab.evaluation import answer_gate
from trainlab.recipes import sft
from trainlab.recipes.base import Run
from trainlab.run import results

ROOT = Path(__file__).resolve().parents[4]


def test_from_rows_to_the_page(tmp_path: Path, tiny_model: Path, phase_dict: dict[str, Any]) -> None:
    folder, run_dir = write_taught(write_data(tmp_path / "data")), tmp_path / "run"
    phase = phase_from(
        {
            **phase_dict,
            "data": {**phase_dict["data"], "taught": "test", "train_rows": 9, "heldout_rows": 3},
            "evaluate": {"generate_rows": 2, "max_new_tokens": 4, "bootstrap_samples": 100},
            "gate": {"metric": "taught_recall"},
        }
    )
    recipe = recipes.get_recipe(phase)
    before, after = recipe.train(Run(phase, run_dir, tiny_model, folder))
    assert (after["rows"], after["answered"]) == (3 + 6, 2 + 6), "all that ask taught facts are answered"
    assert before["taught_recall"] is not None and before["fact_recall"] is not None
    summary = files.read_json(run_dir / "training_summary.json")
    assert (summary["rows"], summary["validation_rows"]) == (9, 0)
    files.write_json(run_dir / "phase.json", {"phase": phase.model_dump(mode="json")})
    decision = results.decide(phase, run_dir, before, after)
    files.write_json(run_dir / "gate.json", decision)
    assert decision["lookup_recall"]["mean"] == 1.0
    page = results.write_report(run_dir).read_text(encoding="utf-8")
    told = [row["what"] for row in files.read_json(run_dir / "report.json")["rows"]]
    assert told[:3] == ["taught recall", "lookup recall", "fact recall"]
    assert "Taught facts, asked in wording that was never trained on" in page and "Never taught" in page
    assert "Wrong answers that could cause harm" in page


@pytest.mark.parametrize(
    ("overlays", "told"), [(["local/survival.yaml"], "78.1 % (60.0 to 93.8)"), ([], "64.4 % (134 questions")]
)
def test_the_page_of_survival_tells_what_a_search_finds(overlays: list[str], told: str) -> None:
    phase = load_values([ROOT / "values" / name for name in ("survival.yaml", *overlays)]).phase
    train, heldout = sft.read_rows(phase, ROOT / "data" / "survival")
    rows = [{**row, "loss": 1.0} for row in with_nearest(heldout, train)]
    found = answer_gate.decide({"items": rows}, {"items": rows}, phase)["lookup_recall"]
    page = (ROOT / "docs" / "evidence" / "survival.md").read_text(encoding="utf-8").replace("\n", " ")
    interval, count = f"{found['low']:.1%} to {found['high']:.1%}".replace("%", ""), f"{found['pairs']} questions"
    assert told.startswith(f"{found['mean']:.1%}".replace("%", " %"))
    assert told in page and interval in page and count in page


def test_labels_are_trained_scored_and_shown(tmp_path: Path, tiny_model: Path, phase_dict: dict[str, Any]) -> None:
    folder, run_dir = write_taught(write_data(tmp_path / "data")), tmp_path / "run"
    path = folder / "heldout" / "fire.jsonl"
    path.write_text(path.read_text().replace('"facts"', '"emergency": true, "facts"', 1))
    phase = phase_from(
        {
            **phase_dict,
            "data": {**phase_dict["data"], "taught": "test", "label_line": True},
            "evaluate": {"max_new_tokens": 4, "bootstrap_samples": 100},
        }
    )
    recipe = recipes.get_recipe(phase)
    before, after = recipe.train(Run(phase, run_dir, tiny_model, folder))
    assert before["label_accuracy"] == 0, "a random model knows no such line"
    item = next(item for item in after["items"] if item["id"] == "fire-h0")
    assert item["label"] == "Topic: fire. Emergency: yes." and item["labelled"] in (0, 1)
    files.write_json(run_dir / "phase.json", {"phase": phase.model_dump(mode="json")})
    files.write_json(run_dir / "gate.json", results.decide(phase, run_dir, before, after))
    page = results.write_report(run_dir).read_text(encoding="utf-8")
    assert "Topic and emergency, never taught" in page and "named in the first line" in page
    assert "no line with topic and emergency" in page and "1 of 1 answered questions" in page
