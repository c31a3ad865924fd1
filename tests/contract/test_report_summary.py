"""What the playbooks print last, roles/report/templates/summary.txt.j2: the clearest pair first, a row for each score."""

from pathlib import Path
from typing import Any

import jinja2

TEMPLATE = Path(__file__).resolve().parents[2] / "roles" / "report" / "templates" / "summary.txt.j2"
SCORE = {"before": 0.1, "after": 0.9, "mean": 0.8, "low": 0.7, "high": 0.9, "verdict": "better", "pairs": 134}
PAIR = {"question": "When can babies have honey?", "base": {"text": "At\n12 weeks."}, "tuned": {"text": "Never " * 30}}


def rendered(gate: dict[str, Any], report: dict[str, Any]) -> str:
    """Return the text, with Jinja set up as Ansible's lookup does."""
    environment = jinja2.Environment(trim_blocks=True, undefined=jinja2.StrictUndefined)
    return environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        __report_results={"gate": gate, "report": report, "path": "artifacts/r"},
        __report_run="survival-1",
        trainlab_resolved={"phase": {"title": "T"}, "claims": {"runs": "c"}},
        trainlab_namespace="n",
    )


def test_the_clearest_pair_comes_first_and_each_score_has_a_row() -> None:
    gate = {
        "scores": {"taught_recall": "questions", "answer_loss": "questions"},
        **{"taught_recall": SCORE, "answer_loss": SCORE, "promoted": True, "verdict": "better", "reasons": ["R."]},
    }
    lines = [line for line in rendered(gate, {"clearest": [PAIR]}).splitlines() if line]
    assert lines[0].strip().startswith("The clearest of 134 answers to taught facts")
    assert lines[1].strip() == "When can babies have honey?" and lines[2].strip() == "base   At 12 weeks."
    assert lines[3].startswith("      tuned  Never") and lines[4].startswith(" " * 13 + "Never")
    assert max(map(len, lines)) <= 130
    rows = [line.split()[:2] for line in lines if "better, 134 questions" in line]
    assert rows == [["taught", "recall"], ["answer", "loss"]]


def test_a_report_without_pairs_begins_with_the_run() -> None:
    for report in ({}, {"clearest": []}):
        lines = [line for line in rendered({}, report).splitlines() if line]
        assert lines[0].strip() == "survival-1, T" and "has no gate.json" in lines[1]


def test_what_restarts_cost_is_a_line() -> None:
    again = "2 times, 3 steps repeated"
    assert f"    Started again   {again}\n" in rendered({}, {"restarts": again})
    assert "Started again" not in rendered({}, {"restarts": ""})
