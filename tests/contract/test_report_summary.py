"""What the playbooks print last, roles/report/templates/summary.txt.j2: the clearest pair first, a row for each score."""

from pathlib import Path
from typing import Any

import jinja2
from embedded_cluster.tasks import alone

TEMPLATE = Path(__file__).resolve().parents[2] / "roles" / "report" / "templates" / "summary.txt.j2"
ROWS = [
    {
        "what": what,
        "base": "0.100",
        "tuned": "0.900",
        "gain": "+0.800 (+0.700 to +0.900)",
        "verdict": "better, 134 questions",
    }
    for what in ("taught recall", "answer loss")
]
PAIR = {"question": "When can babies have honey?", "base": {"text": "At\n12 weeks."}, "tuned": {"text": "Never " * 30}}


def rendered(gate: dict[str, Any], report: dict[str, Any], board: bool = False, **more: Any) -> str:
    """Return the text, with Jinja set up as Ansible's lookup does."""
    environment = jinja2.Environment(trim_blocks=True, undefined=jinja2.StrictUndefined)
    return environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        __report_results={"gate": gate, "report": report, "path": "artifacts/r"},
        __report_run="survival-1",
        trainlab_resolved={
            "phase": {"title": "T"},
            "claims": {"runs": "c"},
            "kubectl": "oc",
            "site": {"tensorboard": {"enabled": board}},
        },
        trainlab_namespace="n",
        trainlab_release="demo",
        **more,
    )


def test_the_clearest_pair_comes_first_and_each_score_has_a_row() -> None:
    gate = {"taught_recall": {"pairs": 134}, "promoted": True, "verdict": "better", "reasons": ["R."]}
    asked = {"promoted": True, "url": "u", "ask": "curl", "command": "", "question": "Q?", "answers": {"tuned": "A\nB"}}
    asked |= {"page": "", "tunnel": ""}
    text = rendered(gate, {"clearest": [PAIR], "rows": ROWS}, serve_result=asked)
    lines = [line for line in text.splitlines() if line]
    assert lines[0].strip().startswith("The clearest of 134 answers to taught facts")
    assert lines[1].strip() == "When can babies have honey?" and lines[2].strip() == "base   At 12 weeks."
    assert lines[3].startswith("      tuned  Never") and lines[4].startswith(" " * 13 + "Never")
    assert max(map(len, lines)) <= 130
    rows = [line.split()[:2] for line in lines if "better, 134 questions" in line]
    assert rows == [["taught", "recall"], ["answer", "loss"]]
    now = lines.index("    Asked just now: Q?")
    assert lines[now + 1] == "      tuned  A B" and 4 < now < lines.index("    survival-1, T")


def test_the_demo_without_a_cluster_tells_the_same_pair_and_rows() -> None:
    lines = "\n".join(alone.report_lines({"clearest": [PAIR], "rows": ROWS})).split("\n")
    assert lines[1].startswith("The clearest of the answers") and lines[2] == "When can babies have honey?"
    assert lines[3] == "  base   At 12 weeks." and lines[4].startswith("  tuned  Never") and max(map(len, lines)) <= 130
    printed = [
        line.strip()
        for line in rendered(
            {"taught_recall": {"pairs": 1}, "promoted": True, "verdict": "", "reasons": []},
            {"clearest": [PAIR], "rows": ROWS},
        ).splitlines()
    ]
    assert [line for line in lines if "134 questions" in line] == [line for line in printed if "134 questions" in line]
    assert next(alone.report_lines({"rows": []})).startswith("\nheld-out"), "an image phase has no pairs"


def test_a_report_without_pairs_begins_with_the_run() -> None:
    for report in ({}, {"clearest": []}):
        lines = [line for line in rendered({}, report).splitlines() if line]
        assert lines[0].strip() == "survival-1, T" and "has no gate.json" in lines[1]


def test_what_restarts_cost_is_a_line() -> None:
    again = "2 times, 3 steps repeated"
    assert f"    Started again   {again}\n" in rendered({}, {"restarts": again})
    assert "Started again" not in rendered({}, {"restarts": ""})


def test_the_page_is_named_where_there_is_one() -> None:
    served = {"promoted": True, "url": "u", "ask": "curl", "command": "", "question": "", "answers": {}}
    page = {
        "page": "http://10.1.2.3/",
        "shows": "both answer side by side",
        "tunnel": "ssh -L 8080:10.1.2.3:80 root@THIS-MACHINE",
    }
    lines = rendered({}, {}, serve_result=served | page).splitlines()
    assert "    Open this       http://10.1.2.3/ in a browser: both answer side by side" in lines
    assert f"    On a laptop     {page['tunnel']}, then open http://localhost:8080/" in lines
    assert "Open this" not in rendered({}, {}, serve_result=served | {"page": "", "tunnel": ""}), "vLLM has no page"


def test_tensorboard_is_named_where_the_release_has_one() -> None:
    gate = {"promoted": True, "verdict": "better", "reasons": []}
    line = "    TensorBoard     oc -n n port-forward deployment/demo-tensorboard 6006:8080, then open http://localhost:6006/"
    assert line in rendered(gate, {}, board=True).splitlines()
    assert "TensorBoard" not in rendered(gate, {})
