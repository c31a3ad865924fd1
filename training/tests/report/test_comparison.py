"""trainlab compare: what differs, step times, communication, efficiency beside the plan's; what it refuses."""

import html.parser
from pathlib import Path
from typing import Any

import pytest
from tiny import phase_from
from trainlab import files
from trainlab.errors import UserError
from trainlab.plan import source
from trainlab.report import comparison


def make_run(
    folder: Path,
    phase_dict: dict[str, Any],
    nodes: int,
    step: float,
    parts: dict[str, float] | None = None,
    tokens: int = 4000,
) -> Path:
    """Write the files of a finished run of 10 steps, `nodes` ranks of 2 rows each; an odd first step does not count."""
    phase = phase_from({**phase_dict, "resources": {**phase_dict.get("resources", {}), "nodes": nodes}})
    summary = {
        **{
            "rows": 20 * nodes,
            "epochs": 1.0,
            "effective_batch": 2 * nodes,
            "steps": 10,
            "resumed_from_step": 0,
            "seconds": 99.0,
        },
        **{"tokens": tokens * nodes, "last_loss": 1.5, "step_parts": parts},
    }
    manifest = {"run": folder.name, "world_size": nodes, "hardware": {"gpus": []}, "ranks": {"bandwidth_mb_s": None}}
    for name, value in {
        "phase.json": {"phase": phase.model_dump(mode="json")},
        "manifest.json": manifest,
        "training_summary.json": summary,
        "training_history.json": [{"step": 1, "loss": 2.0, "step_seconds": 50.0}]
        + [{"step": i, "loss": 2.0, "step_seconds": step} for i in range(2, 11)],
        "gate.json": {"promoted": nodes == 1},
    }.items():
        files.write_json(folder / name, value)
    return folder


def test_a_run_that_resumed_is_planned_with_rows_as_long_as_they_are(
    tmp_path: Path, phase_dict: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tokens are those since the resume: a tenth of them for a run that lost its pod at nine tenths."""
    lengths: list[float | None] = []
    monkeypatch.setattr(comparison, "plan_of", lambda *given: lengths.append(given[-1]) or planned(*given))
    planned = source.plan_of
    make_run(tmp_path / "one", phase_dict, 1, 2.0)
    resumed = make_run(tmp_path / "two", phase_dict, 1, 2.0, tokens=400)
    summary = files.read_json(resumed / "training_summary.json")
    files.write_json(resumed / "training_summary.json", {**summary, "resumed_from_step": 9})
    comparison.collect([tmp_path / "one", resumed])
    assert lengths[0] == pytest.approx(lengths[-1]) == 200


def test_efficiency_is_the_rate_of_a_rank_against_the_first_runs(tmp_path: Path, phase_dict: dict[str, Any]) -> None:
    parts = {"forward": 0.5, "backward": 1.0, "communication": 1.0, "overlapped": 0.25}
    alone = make_run(tmp_path / "one", phase_dict, 1, 2.0)
    both = make_run(tmp_path / "two", phase_dict, 2, 2.5, parts)
    content = comparison.collect([alone, both])
    assert content["differs"] == ["phase.resources.nodes"]
    one, two = content["runs"]
    assert (one["step_seconds"], two["step_seconds"]) == (2.0, 2.5)
    assert (one["rate"], two["rate"]) == (200.0, 320.0)
    assert (one["efficiency"], two["efficiency"]) == (1.0, pytest.approx(0.8))
    lines = comparison.as_text(content).splitlines()
    line = next(line for line in lines if line.startswith("communication"))
    assert line.split("  ")[-1].strip() == "1 s (40%)"
    assert any(line.startswith("gate") and line.endswith("not promoted") for line in lines)


def test_without_tokens_it_compares_rows_and_without_step_times_the_mean(
    tmp_path: Path, phase_dict: dict[str, Any]
) -> None:
    runs = [make_run(tmp_path / str(nodes), phase_dict, nodes, 2.0, tokens=0) for nodes in (1, 2)]
    for run in runs:
        (run / "training_history.json").unlink()
    one, two = comparison.collect(runs)["runs"]
    assert (one["unit"], one["step_seconds"], one["rate"]) == ("rows", 9.9, pytest.approx(2 / 9.9))
    assert two["efficiency"] == pytest.approx(1.0)


def test_page_is_whole_and_loads_nothing(tmp_path: Path, phase_dict: dict[str, Any]) -> None:
    runs = [make_run(tmp_path / f"<b>{nodes}", phase_dict, nodes, 2.0) for nodes in (1, 2)]
    text = comparison.render(comparison.collect(runs))
    opened: list[str] = []

    class Check(html.parser.HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            assert tag != "script" and all(value == "data:," for name, value in attrs if name in ("src", "href"))
            opened.extend([tag] if tag not in ("meta", "link") else [])

        def handle_endtag(self, tag: str) -> None:
            assert opened.pop() == tag

    Check().feed(text)
    assert not opened and "&lt;b&gt;1" in text and "<b>1<" not in text


def test_what_cannot_be_compared_is_a_sentence(tmp_path: Path, phase_dict: dict[str, Any]) -> None:
    run, later = make_run(tmp_path / "a", phase_dict, 1, 2.0), make_run(tmp_path / "b", phase_dict, 2, 2.0)
    with pytest.raises(UserError, match="one run cannot be compared; name two or more run directories"):
        comparison.collect([run])
    with pytest.raises(UserError, match="a: named twice"):
        comparison.collect([run, later, run])
    with pytest.raises(UserError, match="--network fast: not a link speed"):
        comparison.collect([run, later], "fast")
    (later / "training_summary.json").unlink()
    with pytest.raises(UserError, match=r"b: no training_summary.json; name the directory of a run that has ended"):
        comparison.collect([run, later])
    with pytest.raises(UserError, match=r"none: no phase.json"):
        comparison.collect([run, tmp_path / "none"])
