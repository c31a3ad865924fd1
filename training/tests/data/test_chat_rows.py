"""Rows: phrasings, even draws, split by question, and errors with file and line."""

import json
from collections import Counter
from pathlib import Path

import pytest
from tiny import write_data
from trainlab.config.inputs import AnswerData
from trainlab.data import chat_rows, row_files
from trainlab.errors import UserError
from trainlab.evaluation import gate

BUILTIN = AnswerData(source="builtin:survival")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_data(tmp_path / "set")


def test_phrasings_become_rows_of_the_same_question(folder: Path) -> None:
    rows = chat_rows.load_train(BUILTIN, folder)
    assert len(rows) == 24 and Counter(row["id"] for row in rows)["fire-0"] == 2
    assert {row["answer"] for row in rows if row["id"] == "fire-0"} == {"boil 0"}


def test_a_draw_is_even_repeatable_and_takes_many_questions(folder: Path) -> None:
    draw = AnswerData(source="builtin:survival", train_rows=6, heldout_rows=2)
    rows = chat_rows.load_train(draw, folder)
    assert rows == chat_rows.load_train(draw, folder)
    assert Counter(row["topic"] for row in rows) == {"fire": 3, "water": 3}
    assert len({row["id"] for row in rows}) == 6
    assert Counter(row["topic"] for row in chat_rows.load_heldout(draw, folder)) == {"fire": 1, "water": 1}


def test_split_keeps_a_question_on_one_side(folder: Path) -> None:
    rows = chat_rows.load_train(BUILTIN, folder)
    train, validation = chat_rows.split_by_question(rows, 0.25, seed=1)
    assert len(train) + len(validation) == 24 and len({row["id"] for row in validation}) == 3
    assert not {row["id"] for row in train} & {row["id"] for row in validation}
    assert chat_rows.split_by_question(rows, 0, seed=1) == (rows, [])


def test_questions_that_share_a_wording_with_a_third_are_one(tmp_path: Path) -> None:
    """Rows a and b have nothing in common but c, which comes after both; d is alone."""
    (tmp_path / "train").mkdir()
    wordings = {"a": ["Why?"], "b": ["How so?"], "c": ["why", "how so"], "d": ["Who?"]}
    rows = [
        {"id": name, "question": wording, "phrasings": more, "answer": name}
        for name, (wording, *more) in wordings.items()
    ]
    (tmp_path / "train" / "x.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    found = chat_rows.load_train(BUILTIN, tmp_path)
    assert [row["id"] + row["answer"] for row in found] == ["aa", "ab", "ac", "ac", "dd"]


def test_what_is_not_a_word_can_make_another_question() -> None:
    asked = ["What is C?", "What is C++?", "What is C#?", "what is c#"]
    assert len({chat_rows.normal(one) for one in asked}) == 3
    assert chat_rows.normal("Why #1 - and + 2?") == "why 1 and 2"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b'{"id": "x", "question": ', r"fire.jsonl:7: not JSON"),
        pytest.param(b"[" * 100_000, r"fire.jsonl:7: not JSON .*recursion", id="deep"),
        (b"\xff\xfe", r"fire.jsonl:7: not UTF-8 at byte \d+ of the file; save it"),
        (
            b'{"id": "x", "answer": "1", "question": "q", "answer": "2"}',
            r"fire.jsonl:7: key 'answer' is in one object twice",
        ),
        (b'{"id": "x", "question": "q"}', r"fire.jsonl:7: key answer is missing"),
        (b'{"id": "x", "question": "q", "answer": " "}', r"fire.jsonl:7: answer is ' ': must be a text"),
        (b'{"id": "x", "question": "q", "answer": "a", "phrasings": "p"}', r"fire.jsonl:7: phrasings must be a list"),
        (
            b'{"id": "fire-0", "question": "q", "answer": "a"}',
            r"fire.jsonl:7: id 'fire-0' is already at .*fire.jsonl:1",
        ),
        (b"[]", r"fire.jsonl:7: holds a list"),
    ],
)
def test_a_broken_line_is_named(folder: Path, line: bytes, expected: str) -> None:
    path = folder / "train" / "fire.jsonl"
    path.write_bytes(path.read_bytes() + line)
    with pytest.raises(UserError, match=expected):
        chat_rows.load_train(BUILTIN, folder)


def test_empty_file_no_file_wrong_facts(folder: Path) -> None:
    (folder / "heldout" / "air.jsonl").write_text('{"id": "a", "question": "q", "answer": "a", "facts": ["x"]}')
    with pytest.raises(UserError, match=r"air.jsonl:1: facts must be a list of lists"):
        chat_rows.load_heldout(BUILTIN, folder)
    (folder / "heldout" / "air.jsonl").write_text("\n")
    with pytest.raises(UserError, match=r"air.jsonl: is empty"):
        chat_rows.load_heldout(BUILTIN, folder)
    with pytest.raises(UserError, match=r"no \*.jsonl file"):
        chat_rows.load_train(BUILTIN, folder / "train")


def test_where_data_comes_from(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert row_files.folder(BUILTIN, tmp_path).name == "survival"
    assert row_files.folder(AnswerData(source="pvc:set"), tmp_path) == folder
    with pytest.raises(UserError, match=r"phase.data.source is builtin:none: no folder"):
        row_files.folder(AnswerData(source="builtin:none"), tmp_path)
    monkeypatch.setenv("DATA_DIR", str(folder))
    assert row_files.folder(BUILTIN, tmp_path) == folder


def test_verses_are_rows_with_instruction_verse_and_form(folder: Path) -> None:
    row = '{"id": "v-1", "instruction": "Write a couplet.", "verse": "a\\nb"'
    for side in ("train", "heldout"):
        (folder / side / "verses.jsonl").write_text(row + ', "form": "couplet"}\n', encoding="utf-8")
    assert [one["answer"] for one in chat_rows.load_train(BUILTIN, folder) if one["id"] == "v-1"] == ["a\nb"]
    assert [entry["form"] for entry in chat_rows.load_heldout(BUILTIN, folder) if "form" in entry] == ["couplet"]
    (folder / "heldout" / "verses.jsonl").write_text(row + "}\n", encoding="utf-8")
    assert not any("form" in one for one in chat_rows.load_heldout(BUILTIN, folder))
    (folder / "heldout" / "verses.jsonl").write_text(row + ', "form": "sonnet"}\n', encoding="utf-8")
    with pytest.raises(UserError, match=r"verses.jsonl:1: form is 'sonnet': must be one of cinquain, couplet, "):
        chat_rows.load_heldout(BUILTIN, folder)
    (folder / "train" / "verses.jsonl").write_text('{"id": "v-1", "instruction": "x"}\n', encoding="utf-8")
    with pytest.raises(
        UserError, match=r"verses.jsonl:1: key verse is missing; each line needs id, instruction, verse"
    ):
        chat_rows.load_train(BUILTIN, folder)


def test_answers_to_one_question_are_one_group(tmp_path: Path) -> None:
    """They are no independent evidence for the gate."""
    rows = [
        {"id": "a", "question": "Why boil it?", "answer": "Germs.", "facts": []},
        {"id": "b", "question": "why boil it", "answer": "It kills germs.", "facts": []},
        {"id": "c", "question": "Why filter it?", "answer": "Mud.", "facts": []},
        {"id": "d", "group": "x", "question": "Why filter it?", "answer": "Sand.", "facts": []},
    ]
    (tmp_path / "heldout").mkdir()
    (tmp_path / "heldout" / "water.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    heldout = chat_rows.load_heldout(AnswerData(source="builtin:water"), tmp_path)
    assert {row["id"]: gate.cluster(row) for row in heldout} == {"a": "a", "b": "a", "c": "c", "d": "x"}
