"""A sample question that was never taught is marked, on the page with both answers and in the report."""

from pathlib import Path
from typing import Any

from tiny import phase_from, write_data, write_taught
from trainlab import files, recipes
from trainlab.report import answer_report
from trainlab.report import page as report_page
from trainlab.room.settings import prepared

TAUGHT, OTHER = "dev: Is rain safe to drink?", "What is a knot?"


def test_it_is_marked_from_the_manifest(tmp_path: Path, tiny_model: Path, phase_dict: dict[str, Any]) -> None:
    folder, run_dir = write_taught(write_data(tmp_path / "data")), tmp_path / "run"
    data = {**phase_dict["data"], "taught": "test"}
    phase = phase_from({**phase_dict, "data": data, "questions": [TAUGHT, OTHER]})
    origin = recipes.get_recipe(phase).origin(phase, tiny_model, folder)
    assert origin["data"]["never_taught"] == [OTHER]
    plain = phase_from({**phase_dict, "questions": [TAUGHT, OTHER]})
    assert "never_taught" not in recipes.get_recipe(plain).origin(plain, tiny_model, folder)["data"]
    files.write_json(run_dir / "manifest.json", origin)
    files.write_json(run_dir / "phase.json", {"phase": phase.model_dump(mode="json")})
    answers = [{"question": question, "text": "A.", "text_tokens": 1} for question in (TAUGHT, OTHER)]
    files.write_json(run_dir / "demo_outputs" / "after.json", answers)
    assert [(each.text, each.shows) for each in prepared(phase, run_dir)] == [
        (TAUGHT, "taught"),
        (OTHER, "never taught"),
    ]
    assert {each.shows for each in prepared(phase, None)} == {""}
    text = report_page.render(answer_report.collect(run_dir), report_page.WORDING)
    assert f'{OTHER} <span class="soft">never taught</span>' in text and f"{TAUGHT}</h3>" in text
