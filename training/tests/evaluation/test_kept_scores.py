"""Scores before a training: read by the next run that would compute the same, computed again where anything differs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny import phase_from, write_data
from trainlab.config import LanguagePhase
from trainlab.data import chat_rows
from trainlab.evaluation import answer_score, kept_scores
from trainlab.models import chat
from trainlab.progress import Progress
from trainlab.recipes import language
from trainlab.recipes.base import Run

Scored = Callable[..., dict[str, Any]]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One entry for each time that a model is scored."""
    made: list[str] = []
    score = answer_score.score

    def counted(*given: Any, **more: Any) -> dict[str, Any]:
        made.append("scored")
        return score(*given, **more)

    monkeypatch.setattr(answer_score, "score", counted)
    return made


@pytest.fixture
def scored(tmp_path: Path, tiny_model: Path, phase_dict: dict[str, Any], calls: list[str]) -> Scored:
    """Scores before the training of run NAME, below one folder of runs."""
    write_data(tmp_path / "data")

    def run(name: str, known: str | None = "abc", **changes: Any) -> dict[str, Any]:
        phase = phase_from({**phase_dict, **changes})
        assert isinstance(phase, LanguagePhase)
        model, tokenizer = chat.load_base(tiny_model, phase)
        rows = chat_rows.load_heldout(phase.data, tmp_path / "data")
        run = Run(phase, tmp_path / "runs" / name, tiny_model, tmp_path / "data", progress=Progress(True))
        return language.scored(run, "before", (model, tokenizer), rows, answer_score.score, digest=known)

    return run


def test_a_second_run_of_the_same_model_reads_its_scores(
    scored: Scored, calls: list[str], tmp_path: Path, phase_dict: dict[str, Any]
) -> None:
    first = scored("one")
    train = {**phase_dict.get("train", {}), "learning_rate": 0.02}
    assert scored("two", train=train) == first and calls == ["scored"]
    one, two = (
        {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*.json"))}
        for folder in (tmp_path / "runs" / "one", tmp_path / "runs" / "two")
    )
    assert one == two and {"eval_before.json", "demo_outputs/before.json"} <= {*one}


@pytest.mark.parametrize("change", ["model", "questions", "decoding", "prompt", "rows", "unknown"])
def test_what_decides_an_answer_is_part_of_the_name(
    change: str, scored: Scored, calls: list[str], tmp_path: Path, phase_dict: dict[str, Any]
) -> None:
    known: str | None = None if change == "unknown" else "abc"
    scored("one", known)
    changes: dict[str, Any] = {}
    if change == "model":
        known = "abd"
    elif change == "questions":
        changes = {"questions": ["Is this water safe?", "And this?"]}
    elif change == "decoding":
        changes = {"evaluate": {**phase_dict["evaluate"], "max_new_tokens": 3}}
    elif change == "prompt":
        changes = {"data": {**phase_dict["data"], "system_prompt": "Say little."}}
    elif change == "rows":
        path = next((tmp_path / "data").glob("heldout*/*.jsonl"))
        path.write_text(path.read_text().replace("?", " now?", 1))
    scored("two", known, **changes)
    assert len(calls) == 2


def test_another_version_or_code_is_another_name(
    tmp_path: Path, phase_dict: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    phase = phase_from(phase_dict)
    assert isinstance(phase, LanguagePhase)
    given: Any = (phase, tmp_path / "run", "abc", [], [], "cpu 1")
    names = {kept_scores.place(*given)}
    monkeypatch.setattr(kept_scores, "version", lambda _: "0")
    names.add(kept_scores.place(*given))
    (tmp_path / "code.py").write_text("")
    monkeypatch.setattr(kept_scores, "CODE", tmp_path)
    names.add(kept_scores.place(*given))
    names.add(kept_scores.place(*given[:-1], "cpu 2"))
    names.add(kept_scores.place(*given[:-2], ["Another answer."], "cpu 1"))
    assert len(names) == 5


@pytest.mark.parametrize("harm", ["truncated", "changed", "empty", "another kind", "not text"])
def test_a_damaged_file_is_computed_again_with_a_sentence(
    harm: str, scored: Scored, calls: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = scored("one")
    (path,) = (tmp_path / "runs" / kept_scores.FOLDER).glob("*.json")
    text = path.read_text()
    kept = json.loads(text)
    kept["scores"]["answer_loss"] += 1e-9
    path.write_bytes(
        {
            "truncated": text[: len(text) // 2].encode(),
            "changed": json.dumps(kept).encode(),
            "empty": b"",
            "another kind": b"[1]",
            "not text": b"\xff\xfe\x00",
        }[harm]
    )
    capsys.readouterr()
    again = scored("two")
    assert {**again, "seconds": 0} == {**first, "seconds": 0} and len(calls) == 2
    assert capsys.readouterr().out.count(f"{path}: kept scores, not as they were written; computed again") == 1
    scored("three")
    assert len(calls) == 2


def test_only_the_newest_files_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_scores, "KEPT", 2)
    for number in range(4):
        kept_scores.write(tmp_path / f"{number}.json", {"number": number})
    assert sorted(path.stem for path in tmp_path.glob("*.json")) == ["2", "3"]
    assert kept_scores.read(tmp_path / "3.json") == ({"number": 3}, None)


def test_a_folder_that_cannot_be_written_ends_no_run(tmp_path: Path) -> None:
    """Another user's, as volumes shared by namespaces have it; here a file is in its way."""
    (tmp_path / "file").touch()
    kept_scores.write(tmp_path / "file" / "x.json", {"number": 1})
