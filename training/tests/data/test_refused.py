"""Refusals that are taught: which questions, in which order, with which sentence; which are asked, and what is refused by name."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import write_data, write_refused, write_taught
from trainlab.config.inputs import AnswerData
from trainlab.data import answer_forms, chat_rows, row_files
from trainlab.errors import UserError

SURVIVAL = Path(__file__).resolve().parents[3] / "data" / "survival"


def refusing(**data: Any) -> AnswerData:
    return AnswerData.model_validate({"source": "builtin:survival", "taught": "test", "refused_rows": -1, **data})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_refused(write_taught(write_data(tmp_path / "set")))


def refused_of(rows: list[chat_rows.TrainRow]) -> list[chat_rows.TrainRow]:
    return [row for row in rows if row["answer"].startswith(("Not taught", "I was not taught this"))]


def test_near_misses_of_taught_facts_come_first_then_emergencies_then_the_rest_by_turns(folder: Path) -> None:
    rows = chat_rows.load_train(refusing(train_rows=6), folder)  # facts fire-t1 or -t2, and water-t1
    taught = {row["id"] for row in rows[:6]}
    found = [row["id"] for row in refused_of(rows)]
    assert rows[6:] == refused_of(rows), "after what is taught"
    assert {ident.split("near-")[1] for ident in found[:2]} == {f"{fact}-train" for fact in taught}
    (untaught,) = {"fire-t1", "fire-t2", "water-t1"} - taught
    assert set(found[2:5]) == {f"{topic}-urgent-train" for topic in ("fire", "water", "other")}
    assert f"fire-near-{untaught}-train" in found[5:]
    other = [ident.endswith("-train") for ident in found[5:]]
    assert other[:10] == [True, False] * 5, "by turns of refused/ and of train/"
    assert len(found) == 12 + 12, "each question of train/ in one wording"
    assert all("test" not in ident and "dev" not in ident for ident in found)


def test_what_is_taught_is_not_refused(folder: Path) -> None:
    """Neither rows of train/ that are trained on, nor those that ask a taught fact, be it in other words of the answer."""
    path = folder / "train" / "fire.jsonl"
    rows = [
        {"id": "same", "question": "how do i put out a candle", "answer": "With water."},
        {"id": "alike", "question": "A candle must go out, how?", "answer": "Snuff it out."},
    ]
    path.write_text(path.read_text("utf-8") + "".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    alone = chat_rows.load_train(refusing(train_rows=9), folder)
    assert {row["id"] for row in refused_of(alone)} >= {"fire-0", "water-0"}
    assert not {row["question"] for row in refused_of(alone)} & {row["question"] for row in rows}
    everything = chat_rows.load_train(refusing(), folder)
    assert len(refused_of(everything)) == 12 and len(everything) == 9 + 26 + 12


@pytest.mark.parametrize(
    ("ident", "answer"),
    [
        ("water-far-0-train", "Not taught: ask about water."),
        ("other-far-1-train", "Not taught: ask about other."),
        ("fire-urgent-train", "Not taught: ask about emergency."),
    ],
)
def test_the_sentence_is_that_of_topic_or_emergency(folder: Path, ident: str, answer: str) -> None:
    rows = {row["id"]: row for row in chat_rows.load_train(refusing(label_line=True), folder)}
    assert rows[ident]["answer"] == answer
    topic, urgent = ident.split("-")[0], "yes" if "urgent" in ident else "no"
    assert rows[ident]["label"] == f"Topic: {topic}. Emergency: {urgent}."


def test_what_is_asked_knows_its_kind(folder: Path) -> None:
    rows = chat_rows.load_heldout(refusing(train_rows=9), folder)
    kinds = [row["kind"] for row in rows]
    assert kinds == ["never_taught"] * 4 + ["taught"] * 6 + ["refused"] * 12
    assert all(row["id"].endswith("-test") for row in rows[10:])
    assert all(row["refusal"] == "Not taught" for row in rows)
    assert [row.get("refuse", False) for row in rows] == [kind != "taught" for kind in kinds]
    assert {row["id"] for row in rows if row.get("emergency")} == {
        f"{t}-urgent-test" for t in ("fire", "water", "other")
    }
    also_train = chat_rows.load_heldout(refusing(), folder)
    assert [row["id"] for row in also_train if row.get("refuse")] == [row["id"] for row in rows[10:]], (
        "train/ covers what is held out"
    )
    some = chat_rows.load_heldout(refusing(heldout_rows=4, taught="dev"), folder)
    assert [row["id"].split("-")[1] for row in some if row["kind"] == "refused"] == ["near", "far"] * 2
    assert not any("refusal" in row for row in chat_rows.load_heldout(refusing(refused_rows=0), folder))


@pytest.mark.rest
@settings(max_examples=15)
@given(facts=st.integers(1, 67), wordings=st.integers(1, 16), refused=st.integers(0, 500), seed=st.integers(0, 3))
def test_any_mixture_is_the_same_again_and_never_contradicts_itself(
    facts: int, wordings: int, refused: int, seed: int
) -> None:
    """No question is both answered and refused, a longer draw goes on where a shorter one ends, and as many are drawn as exist."""
    data = refusing(train_rows=facts * wordings + seed * 40, taught_wordings=wordings, refused_rows=refused)
    rows = chat_rows.load_train(data, SURVIVAL)
    assert rows == chat_rows.load_train(data, SURVIVAL)
    drawn = refused_of(rows)
    more = refused_of(chat_rows.load_train(data.model_copy(update={"refused_rows": refused + 7}), SURVIVAL))
    assert more[: len(drawn)] == drawn and len(drawn) == min(refused, len(more))
    answered = {chat_rows.normal(row["question"]) for row in rows if row not in drawn}
    asked = [chat_rows.normal(row["question"]) for row in drawn]
    assert not answered & set(asked) and len(set(asked)) == len(asked)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("refusals.json", None, r"refusals\.json: no such file, which phase\.data\.refused_rows needs"),
        ("refusals.json", '{"begins": ""}', r"refusals\.json: begins must be"),
        ("refusals.json", '{"begins": "No", "answers": {"other": "No."}}', r"refusals\.json: answers must have"),
        (
            "refusals.json",
            '{"begins": "No", "answers": {"other": "No.", "emergency": "Call."}}',
            r"answers\.emergency is 'Call\.': must be a text that starts with 'No'",
        ),
        ("refused", None, r"refused: no such folder, which phase\.data\.refused_rows needs"),
        ("refused/fire.jsonl", '{"id": "a", "question": "b", "split": "all"}', r"fire\.jsonl:1: split is 'all'"),
        ("refused/fire.jsonl", '{"id": "a", "question": "b"}', r"fire\.jsonl:1: key split is missing"),
    ],
)
def test_broken_refusals_are_named(folder: Path, name: str, content: str | None, says: str) -> None:
    path = folder / name
    if content is not None:
        path.write_text(content)
    else:
        path.rename(folder / "gone")
    for load in (chat_rows.load_train, chat_rows.load_heldout):
        with pytest.raises(UserError, match=says):
            load(refusing(), folder)


def test_a_question_that_is_refused_may_not_be_asked_as_well(folder: Path) -> None:
    row_files.check_contamination(refusing(), folder)
    path = folder / "refused" / "other.jsonl"
    path.write_text(path.read_text().replace("test: far other 0?", "Train: far other 1"))
    with pytest.raises(UserError, match="'Train: far other 1' is also trained on"):
        row_files.check_contamination(refusing(), folder)


@pytest.mark.parametrize(
    ("text", "refused"),
    [("I was not taught this: ask.", True), (" i WAS not\ntaught this", True), ("Well, I was not taught this", False)],
)
def test_a_refusal_begins_with_its_words(text: str, refused: bool) -> None:
    assert answer_forms.is_refusal(text, "I was not taught this") is refused


def test_answers_are_the_same_from_half_of_their_words_on() -> None:
    answer = "Leave the blister closed, clean the skin and cover it with a plaster."
    assert answer_forms.overlap("", answer) == 0.0 and answer_forms.overlap(answer, answer.upper()) == 1.0
    assert answer_forms.same_answer("Leave the blister closed, clean the skin and", ["Boil it.", answer]), "cut off"
    assert answer_forms.same_answer("Leave it", ["Take it"]), "exactly half"
    assert not answer_forms.same_answer("Press hard on the wound and call for help.", [answer])
