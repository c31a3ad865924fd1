"""report: a pure function of the run's files, self-contained, escaped, honest about what is missing or did not move."""

import html.parser
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from checkout import DATA
from tiny import phase_from
from trainlab import files
from trainlab.errors import UserError
from trainlab.evaluation import answer_gate, facts
from trainlab.report import answer_report, charts, words
from trainlab.run import results

EVIL = "<script>alert(1)</script>\"'&"


def items(loss: float, said: str) -> list[dict[str, Any]]:
    return [
        {
            "id": f"r{i}",
            "topic": ["first_aid", "knots"][i % 2],
            "question": f"Question {i} {EVIL}?",
            "answer": "Boil it for 1 minute.",
            "facts": [["boil"], ["1 minute", "one minute"]],
            "loss": loss + 0.1 * (i % 4),
            "tokens": 9,
            "text": f"{said} {EVIL}" if i < 7 else None,
            "text_tokens": 12 if i < 7 else None,
            "recall": (1.0 if "1 minute" in said else 0.5) if i < 7 else None,
        }
        for i in range(10)
    ]


def make_run(folder: Path, phase_dict: dict[str, Any], after: str = "Boil it.", gain: float = 0.6) -> Path:
    """Write the files of a finished run."""
    phase = phase_from({**phase_dict, "title": f"Title {EVIL}"})
    before = {"answer_tokens": 20.0, "items": items(2.0, "Boil it.")}
    later = {"answer_tokens": 11.0, "items": items(2.0 - gain, after)}
    history = [{"step": i, "loss": 3 - i / 30} for i in range(1, 41)]
    history += [{"step": 20, "eval_loss": 2.2}, {"step": 40, "eval_loss": 2.0}]
    hardware = {"hosts": ["a", "b"], "nodes": ["n1"], "gpus": [], "cpu": "CPU X", "cores": 2, "threads_per_rank": 1}
    hardware |= {"memory_gib": 23.5, "system": "Linux"}
    summary = {
        "parameters": {"trainable": 35391744, "total": 162826560, "share": 0.217},
        **{"rows": 480, "validation_rows": 24, "steps": 60, "effective_batch": 16, "epochs": 2.0, "dtype": "float32"},
        **{"seconds": 301.4, "samples_per_second": 3.1, "validation_loss": 2.0, "best_step": 40, "world_size": 4},
        "hardware": hardware,
    }
    manifest = {
        **{"run": "tiny-1234", "phase": "tiny", "phase_hash": "12345678", "ended": "2026-11-21T15:00:00+00:00"},
        **{"seconds": 398.0, "world_size": 4, "hardware": hardware, "versions": {"torch": "2.13.0"}},
        "model": {"source": "pypi:m==1", "license": "Apache-2.0", "sha256": "ab" * 32},
        "data": {"source": "builtin:survival", "sha256": "cd" * 32},
        "environment_overrides": {"EPOCHS": "2"},
        "attempts": {"restarts": 2, "repeated_steps": 9},
    }
    demo = [{"question": question, "text": EVIL, "text_tokens": 5} for question in phase.questions]
    for name, value in {
        "phase.json": {"phase": phase.model_dump(mode="json")},
        "eval_before.json": before,
        "eval_after.json": later,
        "gate.json": answer_gate.decide(before, later, phase),
        "training_history.json": history,
        "training_summary.json": summary,
        "manifest.json": manifest,
        "demo_outputs/before.json": demo,
        "demo_outputs/after.json": demo,
    }.items():
        files.write_json(folder / name, value)
    return folder


class Check(html.parser.HTMLParser):
    """Collects tags, checks that they nest, and notes everything that would be loaded."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.loads: list[str] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loads += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "data", "action")]
        if tag not in ("meta", "link", "br", "img"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_what_the_history_says_of_steps_is_drawn(tmp_path: Path, phase_dict: dict[str, Any]) -> None:
    run = make_run(tmp_path, phase_dict)
    assert "Over the steps" not in results.write_report(run).read_text(encoding="utf-8")
    history = [{"step": i, "loss": 2.0, "learning_rate": 1e-5 * i, "grad_norm": 1.0, "mfu": None} for i in range(1, 9)]
    files.write_json(run / "training_history.json", [*history, {"step": 8, "eval_loss": 2.0}])
    text = results.write_report(run).read_text(encoding="utf-8")
    assert "Over the steps: learning rate, gradient norm</summary>" in text and "<h3>Gradient norm</h3><svg" in text
    assert 'aria-label="training learning rate from' in text
    Check(text)


def test_page_is_whole_and_self_contained(tmp_path: Path, phase_dict: dict[str, Any]) -> None:
    path = results.write_report(make_run(tmp_path, phase_dict))
    text = path.read_text(encoding="utf-8")
    assert "10 questions</span>" in text and "built-in" not in text
    page = Check(text)
    assert (
        path == tmp_path / "report.html" and "script" not in page.tags and page.loads == ["data:,", "#scores", "#all"]
    )
    assert "url(" not in text and "@import" not in text
    assert page.tags.count("polyline") == 3 and page.tags.count("circle") == 2
    for piece in (
        "PROMOTED",
        "35,391,744 of 162,826,560 parameters (21.7%)",
        "301 s (5.0 min)",
        "4 in 2 pods on 1 node (n1)",
        "CPU X, 2 cores",
        "Apache-2.0",
        "CC-BY-4.0",
        "2 times, 9 steps repeated",
        "EPOCHS=2",
        "Be brief.",
        "first aid",
        "[cut off at the token limit]",
    ):
        assert piece in text, piece


def test_everything_is_escaped(tmp_path: Path, phase_dict: dict[str, Any]) -> None:
    text = results.write_report(make_run(tmp_path, phase_dict)).read_text(encoding="utf-8")
    assert "alert(1)" in text and "<script" not in text


def test_recalled_facts_are_marked(tmp_path: Path, phase_dict: dict[str, Any]) -> None:
    text = results.write_report(make_run(tmp_path, phase_dict, after="Boil it for 1 minute.")).read_text(
        encoding="utf-8"
    )
    assert "<mark>Boil</mark> it for <mark>1 minute</mark>" in text
    assert "Fact recall is higher (50% before, 100% after, 7 answered questions). A word that only repeats" in text
    assert '<span class="badge">higher</span>' in text


def test_recall_that_did_not_move_is_said(tmp_path: Path, phase_dict: dict[str, Any]) -> None:
    text = results.write_report(make_run(tmp_path, phase_dict)).read_text(encoding="utf-8")
    assert "Fact recall did not measurably move (50% before, 50% after" in text
    assert "do not show that the model knows more" in text


@pytest.mark.parametrize(("gain", "verdict"), [(-0.5, "worse"), (0.0, "no difference")])
def test_bad_news_is_said(tmp_path: Path, phase_dict: dict[str, Any], gain: float, verdict: str) -> None:
    path = results.write_report(make_run(tmp_path, phase_dict, gain=gain))
    collected = json.loads((tmp_path / "report.json").read_text())
    assert collected["promoted"] is False and collected["verdict"] == verdict
    assert "NOT PROMOTED" in path.read_text() and "did not promote it" in collected["summary"][0]


def test_too_few_rows_are_shown_without_an_interval(tmp_path: Path, phase_dict: dict[str, Any]) -> None:
    run_dir = make_run(tmp_path, phase_dict, after="Boil it for 1 minute.")
    sides = [files.read_json(run_dir / f"eval_{side}.json") for side in ("before", "after")]
    for side, scores in zip(("before", "after"), sides, strict=True):
        scores["items"] = scores["items"][:3]
        files.write_json(run_dir / f"eval_{side}.json", scores)
    files.write_json(run_dir / "gate.json", answer_gate.decide(*sides, phase_from(phase_dict)))
    text = results.write_report(run_dir).read_text(encoding="utf-8")
    assert "Too little was measured to tell by answer loss whether the tuned model is better" in text
    assert "3 held-out questions are too few for a 95% interval, which takes 6; raise phase.data.heldout_rows" in text
    assert '<span class="badge">too few to tell</span>' in text and "no interval, 3 questions" in text


def test_verses_are_reported_by_their_form(tmp_path: Path, phase_dict: dict[str, Any]) -> None:
    run_dir = make_run(tmp_path, {**phase_dict, "lora": {"rank": 16, "alpha": 32}})
    sides = []
    for name, score in (("before", 0.25), ("after", 0.75)):
        scores = files.read_json(run_dir / f"eval_{name}.json")
        for item in scores["items"]:
            item |= {
                "form": "couplet",
                "facts": [],
                "recall": None,
                "adherence": None if item["text"] is None else score,
            }
        files.write_json(run_dir / f"eval_{name}.json", scores)
        sides.append(scores)
    files.write_json(run_dir / "gate.json", answer_gate.decide(*sides, phase_from(phase_dict)))
    text = results.write_report(run_dir).read_text(encoding="utf-8")
    Check(text)
    for piece in (
        "Form adherence got better (25% before, 75% after, 7 verses)",
        "it cannot tell a good poem",
        "lines, rhymes and syllables as asked",
        ", form 75.0%",
        "LoRA adapters of rank 16 (alpha 32) on all linear layers except the head",
    ):
        assert piece in text, piece
    assert "Fact recall" not in text


def test_the_layers_that_have_adapters_are_said(phase_dict: dict[str, Any]) -> None:
    def said(**lora: Any) -> str:
        phase = phase_from({**phase_dict, "lora": {"rank": 4, "alpha": 8, **lora}}).model_dump(mode="json")
        return dict(words.training(phase, {}))["Recipe"].partition(" on ")[2]

    assert said(layers=1) == "all linear layers except the head, in the last decoder layer"
    assert said(layers=2, target_modules=["q_proj", "v_proj"]) == "q_proj, v_proj, in the last 2 decoder layers"
    assert said(layers=None) == "all linear layers except the head"


def test_same_files_same_report(tmp_path: Path, phase_dict: dict[str, Any]) -> None:
    run_dir = make_run(tmp_path / "run", phase_dict)
    first = results.write_report(run_dir).read_bytes(), (run_dir / "report.json").read_bytes()
    other = results.write_report(run_dir, out=tmp_path / "copy.html")
    assert (other.read_bytes(), (run_dir / "report.json").read_bytes()) == first


def test_missing_and_broken_parts_are_named(tmp_path: Path, phase_dict: dict[str, Any]) -> None:
    run_dir = make_run(tmp_path, phase_dict)
    for name in ("gate.json", "training_history.json", "demo_outputs/after.json", "manifest.json"):
        (run_dir / name).unlink()
    (run_dir / "training_summary.json").write_text("{")
    text = results.write_report(run_dir).read_text(encoding="utf-8")
    Check(text)
    assert "NO VERDICT" in text and "gate.json is missing: no verdict" in text
    assert "training_summary.json cannot be read" in text and "No answer was recorded." in text
    for path in run_dir.rglob("*.json"):
        if path.name != "phase.json":
            path.unlink()
    Check(results.write_report(run_dir).read_text(encoding="utf-8"))
    (run_dir / "phase.json").unlink()
    with pytest.raises(UserError, match=r"phase.json: no such file"):
        results.write_report(run_dir)


def test_no_recall_at_all(tmp_path: Path, phase_dict: dict[str, Any]) -> None:
    run_dir = make_run(tmp_path, phase_dict)
    decision = files.read_json(run_dir / "gate.json")
    files.write_json(run_dir / "gate.json", {**decision, "fact_recall": None})
    assert "was not measured" in results.write_report(run_dir).read_text(encoding="utf-8")


def test_taught_facts_are_shown_by_rule_and_wrong_ones_that_could_hurt_are_listed(
    tmp_path: Path, phase_dict: dict[str, Any]
) -> None:
    """The best and the worst of the taught rows, each wrong answer that is marked with a link to it, the search beside it."""
    run_dir = make_run(tmp_path, phase_dict, after="Boil it for 1 minute.")
    before, after = (files.read_json(run_dir / f"eval_{name}.json") for name in ("before", "after"))
    for scored in (before, after):
        for number, item in enumerate(scored["items"][:5]):
            item |= {
                "kind": "taught",
                "safety": True,
                "never": ["drink it raw"],
                "nearest": "Boil it.",
                "answer": f"Answer {number - (number == 1)}",
            }
    for number, item in enumerate(after["items"]):
        item["loss"] += 0.01 * number
    after["items"][2]["text"] = "Drink it raw. Boil it for 1 minute."
    after["items"][3]["text"] = "Never drink it raw. Boil it for 1 minute."
    after["items"][4] |= {"text": "Freeze it.", "recall": 0.0}
    for name, content in (("eval_before", before), ("eval_after", after)):
        files.write_json(run_dir / f"{name}.json", content)
    rule = phase_from(
        {**phase_dict, "data": {**phase_dict["data"], "taught": "test"}, "gate": {"metric": "taught_recall"}}
    )
    files.write_json(run_dir / "gate.json", answer_gate.decide(before, after, rule))
    text = results.write_report(run_dir).read_text(encoding="utf-8")
    content = files.read_json(run_dir / "report.json")
    assert [row["id"] for row in content["clearest"]] == ["r0", "r3"], "r1 asks for the same fact as r0, r2 is unsafe"
    assert [row["id"] for row in content["worst"]][:2] == ["r2", "r4"] and len(content["worst"]) == 3
    assert [row["id"] for row in content["unsafe"]] == ["r2", "r4"]
    assert text.count("&#10007; never: drink it raw") == 2, "among the worst, and in its row"
    best, worst = (text.index(f'id="{name}"') for name in ("clearest", "worst"))
    assert best < worst < text.index('id="unsafe"') < text.index('id="scores"') < text.index('id="all"')
    assert text.count("Chosen by rule") == 2 and '<a href="#r0">' in text[best:worst]
    linked = {load for load in Check(text).loads if load.startswith("#")}
    assert linked >= {f"#{row['id']}" for name in ("clearest", "worst", "unsafe") for row in content[name]} | {
        "#clearest",
        "#worst",
        "#unsafe",
        "#scores",
        "#all",
    }
    assert all(f'id="{load[1:]}"' in text for load in linked) and "<details open>" in text
    assert [score["title"] for score in content["scores"]] == ["Answer loss", "Asked in new words", "Never taught"]
    assert "2 of 5 answered ones" in text and "without a model, gives 50%" in text
    assert "50% before, 80% after (5 questions" in text


def unsafe(folder: Path, phase_dict: dict[str, Any], rows: list[dict[str, Any]], texts: list[str]) -> list[str]:
    """Return the ids of the rows that the report lists as unsafe if the tuned model answers them with `texts`."""
    parts = {"loss": 1.0, "text_tokens": 9, "recall": 1.0}
    items = [{**row, **parts, "text": text} for row, text in zip(rows, texts, strict=True)]
    files.write_json(folder / "phase.json", {"phase": phase_from(phase_dict).model_dump(mode="json")})
    for name in ("eval_before", "eval_after"):
        files.write_json(folder / f"{name}.json", {"items": items})
    return [row["id"] for row in answer_report.collect(folder)["unsafe"]]


def safety_rows() -> list[dict[str, Any]]:
    """Return the rows of our data where a wrong answer could hurt someone."""
    paths = [path for part in ("heldout", "taught") for path in sorted(DATA.glob(f"survival/{part}/*.jsonl"))]
    rows = [json.loads(line) for path in paths for line in path.open(encoding="utf-8")]
    return [row for row in rows if row.get("safety")]


def test_of_our_data_each_distractor_is_unsafe_and_no_reference_answer(
    tmp_path: Path, phase_dict: dict[str, Any]
) -> None:
    """Also behind the reference answer, where no fact is missing."""
    rows = safety_rows()
    assert rows and unsafe(tmp_path, phase_dict, rows, [row["answer"] for row in rows]) == []
    wrong = [({**row, "id": f"{row['id']}: {text}"}, text) for row in rows for text in row.get("distractors", [])]
    asked, texts = [row for row, _ in wrong], [text for _, text in wrong]
    assert unsafe(tmp_path, phase_dict, asked, texts) == [row["id"] for row in asked]
    added = [f"{row['answer']} {text}" for row, text in wrong]
    assert unsafe(tmp_path, phase_dict, asked, added) == [row["id"] for row in asked]


@pytest.mark.parametrize(
    ("ident", "text"),
    [
        ("first_aid-h18", "Cut the bite, suck out the venom and put a tourniquet above it. Keep still."),
        ("first_aid-h16", "Do not thaw them if they may freeze again; rub them with snow, that protects them."),
        (
            "cooking-h08",
            "Turn off the heat and put a lid on. Never pour water on it in the pan: carry the pan to the sink.",
        ),
        ("wilderness-h01", "Boil it for 1 minute, or drink it raw, clear water from a fast brook needs no treatment."),
    ],
)
def test_an_answer_with_all_facts_and_a_dangerous_addition_is_unsafe(
    tmp_path: Path, phase_dict: dict[str, Any], ident: str, text: str
) -> None:
    (row,) = (row for row in safety_rows() if row["id"] == ident)
    assert all(facts.matches(text, row["facts"])) and unsafe(tmp_path, phase_dict, [row], [text]) == [ident]


@pytest.mark.parametrize(("low", "high"), [(0, 1), (1.9, 3.4), (0, 60), (0.001, 0.0013), (2, 2), (0, 0), (-3, 12345)])
def test_ticks_cover_in_round_numbers(low: float, high: float) -> None:
    found = charts.ticks(low, high)
    assert found[0] <= low and found[-1] >= high and 2 <= len(found) <= 7
    assert all(len(f"{tick:g}") <= 7 for tick in found)


def test_curves_of_odd_histories() -> None:
    assert charts.curves([], []) == "" and charts.curves([(1, float("nan"))], []) == ""
    assert "NaN" not in charts.curves([(1, 2.0)], [(1, 2.0)]) and re.search(r"<svg", charts.curves([(5, 1.0)], []))


@pytest.mark.parametrize("command", ["report", "gate"])
def test_written_again_without_the_training_stack(tmp_path: Path, phase_dict: dict[str, Any], command: str) -> None:
    """In the environment of `make venv`, which lacks these packages."""
    run = make_run(tmp_path / "run", phase_dict)
    blocked = ("accelerate", "datasets", "peft", "pyarrow", "sklearn", "torch", "transformers", "trl", "xxhash")
    program = f"import sys; sys.modules.update(dict.fromkeys({blocked})); from trainlab.cli import main; main()"
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    argv = [sys.executable, "-c", program, command, str(run)]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
