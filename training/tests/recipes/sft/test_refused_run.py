"""A run that teaches refusals and answers in steps, from rows to the page, with every probe."""

from pathlib import Path
from typing import Any

from tiny import phase_from, write_data, write_probes, write_refused, write_taught
from trainlab import files, recipes
from trainlab.recipes.base import Run
from trainlab.run import results


def test_from_rows_to_the_page(tmp_path: Path, tiny_model: Path, phase_dict: dict[str, Any]) -> None:
    folder = write_refused(write_probes(write_taught(write_data(tmp_path / "data"))))
    path = folder / "heldout" / "fire.jsonl"
    path.write_text(path.read_text().replace('"facts"', '"emergency": true, "facts"', 1))
    taught = {"taught": "test", "train_rows": 9, "refused_rows": 5, "style": "steps", "label_line": True}
    phase = phase_from(
        {
            **phase_dict,
            "data": {**phase_dict["data"], **taught},
            "train": {**phase_dict.get("train", {}), "validation_fraction": 0},
            "evaluate": {
                "max_new_tokens": 4,
                "bootstrap_samples": 100,
                "probes": ["retention", "ceiling", "reversed", "composed"],
            },
            "gate": {"metric": "taught_recall", "min_refused": 0.5, "max_taught_refused": 0.5},
        }
    )
    run_dir, recipe = tmp_path / "run", recipes.get_recipe(phase)
    recipe.preflight(phase, tiny_model, folder)
    before, after = recipe.train(Run(phase, run_dir, tiny_model, folder))
    assert files.read_json(run_dir / "training_summary.json")["rows"] == 9 + 5
    by_id = {item["id"]: item for item in after["items"]}
    assert by_id["fire-h0"]["harm"] == 0 == by_id["fire-h0"]["refused"] and by_id["fire-h0"]["loss"] is None
    assert by_id["other-urgent-test"]["harm"] == 0 and "harm" not in by_id["other-far-0-test"]
    assert by_id["fire-t1/test1"]["structure"] == 0 == by_id["fire-t1/test1"]["taught_refused"]
    assert by_id["water-t1/test1"]["loss"] is not None and "structure" not in by_id["water-t1/test1"]
    files.write_json(run_dir / "phase.json", {"phase": phase.model_dump(mode="json")})
    decision = results.decide(phase, run_dir, before, after)
    files.write_json(run_dir / "gate.json", decision)
    failed = {one["name"] for one in decision["conditions"] if not one["passed"]}
    assert "min_refused" in failed and not failed & {"max_taught_refused", "max_sure_harm_rise"}
    page = results.write_report(run_dir).read_text(encoding="utf-8")
    told = [row["what"] for row in files.read_json(run_dir / "report.json")["rows"]]
    names = {"refused", "taught refused", "harm", "retention", "ceiling", "reversed", "composed", "structure"}
    assert names <= set(told)
    titles = (
        "Refused",
        "Harm",
        "Kept",
        "With the answer in the question",
        "Asked backwards",
        "Two facts at once",
        "Steps",
    )
    assert [title for title in titles if f"<h3>{title} <" not in page] == []
    assert "Emergencies answered with another question&#39;s answer: 0 before, 0 after" in page
