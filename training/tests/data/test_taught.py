"""Taught facts: whole facts are taught, other wordings asked, none validated on; the search that they are compared with."""

import json
from pathlib import Path
from typing import Any

import pytest
from tiny import write_data, write_taught
from trainlab.config.inputs import AnswerData
from trainlab.data import chat_rows, nearest
from trainlab.errors import UserError


def taught(data: dict[str, Any] | None = None) -> AnswerData:
    return AnswerData.model_validate({"source": "builtin:survival", "taught": "test", **(data or {})})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """24 rows to train on, and three facts in three wordings, one more for dev, two more for test."""
    return write_taught(write_data(tmp_path / "set"))


def test_facts_are_taught_whole_before_other_rows(folder: Path) -> None:
    rows = chat_rows.load_train(taught(), folder)
    assert len(rows) == 9 + 24 and all(row.get("taught") for row in rows[:9])
    some = chat_rows.load_train(taught({"train_rows": 8}), folder)
    assert [row["topic"] for row in some[:6]] == ["fire"] * 3 + ["water"] * 3, (
        "two of the three facts, one of each topic"
    )
    assert len(some) == 8 and not some[6].get("taught")
    assert len(chat_rows.load_train(taught({"train_rows": 6}), folder)) == 6
    with pytest.raises(
        UserError, match=r"train_rows is 2: no taught fact fits with all its wordings; raise it to at least 3"
    ):
        chat_rows.load_train(taught({"train_rows": 2}), folder)


def test_facts_are_taught_in_fewer_wordings(folder: Path) -> None:
    rows = chat_rows.load_train(taught({"taught_wordings": 2, "train_rows": 6}), folder)
    assert len(rows) == 6 and {row["id"] for row in rows} == {"fire-t1", "fire-t2", "water-t1"}
    whole = chat_rows.load_train(taught({"train_rows": 9}), folder)
    assert {row["question"] for row in rows} == {row["question"] for n, row in enumerate(whole) if n % 3 < 2}


def test_only_what_was_taught_is_asked_in_other_words(folder: Path) -> None:
    rows = chat_rows.load_heldout(taught({"train_rows": 6, "heldout_rows": 2}), folder)
    assert [row["kind"] for row in rows] == ["never_taught"] * 2 + ["taught"] * 4
    assert [row["question"].split(":")[0] for row in rows[2:4]] == ["first test", "second test"]
    wordings = {row["question"] for row in chat_rows.load_train(taught({"train_rows": 6}), folder)}
    assert not wordings & {row["question"] for row in rows}
    dev = chat_rows.load_heldout(taught({"taught": "dev"}), folder)
    assert {row["id"] for row in dev if row["kind"] == "taught"} == {"fire-t1/dev1", "fire-t2/dev1", "water-t1/dev1"}
    without = AnswerData(source="builtin:survival")
    assert not any(row["kind"] == "taught" for row in chat_rows.load_heldout(without, folder))


def test_no_taught_fact_is_kept_back_to_validate_on(folder: Path) -> None:
    rows = chat_rows.load_train(taught(), folder)
    train, validation = chat_rows.split_by_question(rows, 0.25, seed=1)
    assert validation and not any(row.get("taught") for row in validation)
    assert sum(bool(row.get("taught")) for row in train) == 9


def test_a_question_that_is_taught_is_not_validated_on_either(folder: Path) -> None:
    """Row x asks a taught fact, row y shares its other wording; both are trained on."""
    path = folder / "train" / "fire.jsonl"
    rows = [
        {"id": "x", "question": "how do i put out a candle", "phrasings": ["Out with it!"], "answer": "a"},
        {"id": "y", "question": "Out with it.", "answer": "b"},
    ]
    path.write_text(path.read_text("utf-8") + "".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    found = chat_rows.load_train(taught(), folder)
    for seed in range(20):
        train, validation = chat_rows.split_by_question(found, 0.49, seed)
        assert validation and not {row["answer"] for row in validation} & {"a", "b"}
        assert [row["answer"] for row in train if row["answer"] in ("a", "b")] == ["a", "a", "b"]
    plain, whole = AnswerData(source="builtin:survival"), len(found) - 9
    assert len(chat_rows.load_train(plain, folder)) == whole


@pytest.mark.parametrize(
    ("key", "value"),
    [("test", "text"), ("phrasings", [""]), ("facts", ["oak"]), ("facts", None), ("never", "boil")],
)
def test_a_broken_fact_is_named(folder: Path, key: str, value: Any) -> None:
    path = folder / "taught" / "water.jsonl"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}) + "\n")
    with pytest.raises(UserError, match=rf"water\.jsonl:1: {key} must be a list"):
        chat_rows.load_heldout(taught(), folder)


def test_what_must_never_be_done_is_read_with_its_row(folder: Path) -> None:
    for path in (folder / "heldout" / "water.jsonl", folder / "taught" / "water.jsonl"):
        first, *others = path.read_text().splitlines()
        row = {**json.loads(first), "safety": True, "never": ["drink it raw"]}
        path.write_text("\n".join([json.dumps(row), *others]) + "\n")
    rows = {row["id"]: row.get("never") for row in chat_rows.load_heldout(taught(), folder)}
    assert {ident for ident, never in rows.items() if never} == {"water-h0", "water-t1/test1", "water-t1/test2"}
    assert rows["water-h0"] == ["drink it raw"] and rows["water-h1"] is None


def test_a_search_finds_the_answer_of_the_nearest_wording(folder: Path) -> None:
    train = chat_rows.load_train(taught(), folder)
    rows = nearest.with_nearest(chat_rows.load_heldout(taught(), folder), train)
    found = {row["id"]: row.get("nearest") for row in rows}
    assert found["fire-t2/test1"] == "Oak." and found["water-t1/test2"] == "Mostly."
    assert all(("nearest" in row) == (row["kind"] == "taught") for row in rows)


def test_a_question_is_taught_in_any_wording_of_what_is_taught(folder: Path) -> None:
    """Also in one that is not trained on; not in one of a fact that does not fit into train_rows."""
    asked = ["is rain safe to drink", "Dev: Is rain safe to drink?", "fire 3?", "What is a knot?"]
    assert chat_rows.never_taught(asked, taught(), folder) == ["What is a knot?"]
    assert chat_rows.never_taught(asked, taught({"taught_wordings": 1, "train_rows": 3}), folder) == asked[2:]
    fewer = chat_rows.never_taught(
        ["Which wood burns slowly?", "How do I put out a candle?"], taught({"train_rows": 6}), folder
    )
    assert len(fewer) == 1
