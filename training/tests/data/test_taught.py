"""Taught facts: whole facts are taught, other wordings asked, none validated on; probes, the style in steps, the label line."""

import json
from pathlib import Path
from typing import Any

import pytest
from tiny import write_data, write_probes, write_taught
from trainlab.config.inputs import AnswerData
from trainlab.data import answer_forms, chat_rows, nearest
from trainlab.errors import UserError


def taught(**data: Any) -> AnswerData:
    return AnswerData.model_validate({"source": "builtin:survival", "taught": "test", **data})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """24 rows to train on, and three facts in three wordings, one more for dev, two more for test."""
    return write_taught(write_data(tmp_path / "set"))


def test_facts_are_taught_whole_before_other_rows(folder: Path) -> None:
    rows = chat_rows.load_train(taught(), folder)
    assert len(rows) == 9 + 24 and all(row.get("taught") for row in rows[:9])
    some = chat_rows.load_train(taught(train_rows=8), folder)
    assert [row["topic"] for row in some[:6]] == ["fire"] * 3 + ["water"] * 3, (
        "two of the three facts, one of each topic"
    )
    assert len(some) == 8 and not some[6].get("taught")
    assert len(chat_rows.load_train(taught(train_rows=6), folder)) == 6
    with pytest.raises(
        UserError, match=r"train_rows is 2: no taught fact fits with all its wordings; raise it to at least 3"
    ):
        chat_rows.load_train(taught(train_rows=2), folder)


def test_facts_are_taught_in_fewer_wordings(folder: Path) -> None:
    rows = chat_rows.load_train(taught(taught_wordings=2, train_rows=6), folder)
    assert len(rows) == 6 and {row["id"] for row in rows} == {"fire-t1", "fire-t2", "water-t1"}
    whole = chat_rows.load_train(taught(train_rows=9), folder)
    assert {row["question"] for row in rows} == {row["question"] for n, row in enumerate(whole) if n % 3 < 2}


def test_only_what_was_taught_is_asked_in_other_words(folder: Path) -> None:
    rows = chat_rows.load_heldout(taught(train_rows=6, heldout_rows=2), folder)
    assert [row["kind"] for row in rows] == ["never_taught"] * 2 + ["taught"] * 4
    assert [row["question"].split(":")[0] for row in rows[2:4]] == ["first test", "second test"]
    wordings = {row["question"] for row in chat_rows.load_train(taught(train_rows=6), folder)}
    assert not wordings & {row["question"] for row in rows}
    dev = chat_rows.load_heldout(taught(taught="dev"), folder)
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
    assert chat_rows.never_taught(asked, taught(taught_wordings=1, train_rows=3), folder) == asked[2:]
    fewer = chat_rows.never_taught(
        ["Which wood burns slowly?", "How do I put out a candle?"], taught(train_rows=6), folder
    )
    assert len(fewer) == 1


PROBES = ("retention", "ceiling", "reversed", "composed")


@pytest.fixture
def probed(folder: Path) -> Path:
    return write_probes(folder)


def test_each_probe_asks_about_what_is_taught(probed: Path) -> None:
    data = taught(train_rows=6)
    facts = {fact.id for fact in chat_rows.taught_facts(data, probed)}
    plain = chat_rows.load_heldout(data, probed)
    rows = chat_rows.load_heldout(data, probed, PROBES)
    assert rows[: len(plain)] == plain
    by_kind: dict[str, list[Any]] = {kind: [row for row in rows if row["kind"] == kind] for kind in PROBES}
    assert [row["id"] for row in by_kind["retention"]] == ["keep-1"]
    assert {row["id"] for row in by_kind["ceiling"]} == {f"{fact}/ceiling" for fact in facts}
    assert {row["id"] for row in by_kind["reversed"]} == {f"{fact}/reversed" for fact in facts}
    assert [row["id"] for row in by_kind["composed"]] == ["c-1" if "fire-t1" in facts else "c-2"]
    ceiling = next(row for row in by_kind["ceiling"] if row["topic"] == "water")
    assert ceiling["question"] == "Mostly.\n\nfirst test: Is rain safe to drink?" and ceiling["facts"] == [["mostly"]]
    assert chat_rows.load_heldout(AnswerData(source="builtin:d"), probed, PROBES) == chat_rows.load_heldout(
        AnswerData(source="builtin:d"), probed
    )


@pytest.mark.parametrize(
    ("probe", "name", "says"),
    [
        ("retention", "retention.jsonl", r"retention\.jsonl: no such file; add it, or remove retention from"),
        ("composed", "composed.jsonl", r"composed\.jsonl: no such file"),
        ("reversed", "taught", "no row has the key reversed"),
    ],
)
def test_a_probe_without_data_is_refused(probed: Path, probe: str, name: str, says: str) -> None:
    for path in (probed / "taught").glob("*.jsonl") if name == "taught" else (probed / name,):
        rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        path.unlink()
        if name == "taught":
            kept = [{key: value for key, value in row.items() if key != "reversed"} for row in rows]
            path.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")
    with pytest.raises(UserError, match=says):
        chat_rows.load_heldout(taught(), probed, (probe,))


def test_a_fact_is_answered_in_steps_where_it_has_them(probed: Path) -> None:
    steps = "1. Take the snuffer.\n2. Snuff it.\nWarning: It is hot.\nAlternative: Blow."
    rows = {row["id"]: row["answer"] for row in chat_rows.load_train(taught(style="steps", train_rows=9), probed)}
    assert rows == {"fire-t1": steps, "fire-t2": "Oak.", "water-t1": "Mostly."}
    asked = chat_rows.load_heldout(taught(style="steps"), probed)
    assert {row["id"] for row in asked if row.get("steps")} == {"fire-t1/test1", "fire-t1/test2"}
    assert chat_rows.load_train(taught(train_rows=9), probed)[0]["answer"] != steps
    for path in (probed / "taught").glob("*.jsonl"):
        path.write_text(path.read_text("utf-8").replace('"steps": {', '"unused": {'), encoding="utf-8")
    with pytest.raises(UserError, match=r"taught: no row has the key steps, which phase\.data\.style needs"):
        chat_rows.load_train(taught(style="steps"), probed)


@pytest.mark.parametrize(
    ("answer", "share"),
    [
        ("1. Stop.\n2. Look.\nWarning: Hot.\nAlternative: Wait.", 1),
        ("1) Stop.\n2) Look.\nwarning: Hot.", 2 / 3),
        ("1. Stop.\n3. Look.\nAlternative: Wait.", 1 / 3),
        ("1. Stop.\nWarning:", 0),
        ("Stop, look. A warning: none.", 0),
    ],
)
def test_structure_is_the_share_of_its_parts(answer: str, share: float) -> None:
    assert answer_forms.structure(answer) == pytest.approx(share)


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        ({"steps": ["one"], "warning": "w", "alternative": "a"}, "steps must have steps"),
        ({"steps": ["one", "two"], "warning": "w"}, "key alternative is missing"),
    ],
)
def test_broken_steps_are_named(probed: Path, steps: Any, says: str) -> None:
    path = probed / "taught" / "water.jsonl"
    path.write_text(json.dumps({**json.loads(path.read_text()), "steps": steps}) + "\n")
    with pytest.raises(UserError, match=rf"water\.jsonl:1.*{says}"):
        chat_rows.load_train(taught(style="steps"), probed)


@pytest.mark.parametrize(
    ("text", "said", "rest"),
    [
        ("Topic: first aid. Emergency: yes.\nCall 112.", "Topic: first aid. Emergency: yes", "Call 112."),
        ("topic: car, emergency: No\n\nBrake.", "topic: car, emergency: No", "Brake."),
        ("Topic: car. Emergency: no. Brake.", "Topic: car. Emergency: no", "Brake."),
        ("The topic is hard.", "", "The topic is hard."),
        ("Call emergency services.", "", "Call emergency services."),
        ("", "", ""),
    ],
)
def test_the_line_is_cut_off(text: str, said: str, rest: str) -> None:
    assert answer_forms.split_label(text) == (said, rest)


def test_case_and_punctuation_do_not_count() -> None:
    wanted = answer_forms.label_line("first_aid", True)
    assert wanted == "Topic: first aid. Emergency: yes."
    assert answer_forms.same_label("topic: First aid, emergency: YES", wanted)
    for wrong in ("", "Topic: first aid. Emergency: no", "Topic: car. Emergency: yes", "Topic: first aid"):
        assert not answer_forms.same_label(wrong, wanted), wrong


def test_every_row_has_its_label_if_the_phase_asks(folder: Path) -> None:
    for name in ("train", "heldout", "taught"):
        path = folder / name / "fire.jsonl"
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        rows[0]["emergency"] = True
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = taught(label_line=True)
    rows = [*chat_rows.load_train(data, folder), *chat_rows.load_heldout(data, folder)]
    told = {row["id"].split("/")[0]: row["label"] for row in rows}
    assert told["fire-0"] == told["fire-h0"] == told["fire-t1"] == "Topic: fire. Emergency: yes."
    assert told["fire-1"] == told["fire-t2"] == "Topic: fire. Emergency: no."
    assert told["water-t1"] == "Topic: water. Emergency: no."
    assert not any("label" in row for row in chat_rows.load_train(taught(), folder))


def test_a_broken_mark_is_named(folder: Path) -> None:
    path = folder / "train" / "fire.jsonl"
    path.write_text(path.read_text().replace('"id": "fire-0"', '"emergency": "yes", "id": "fire-0"', 1))
    with pytest.raises(UserError, match=r"fire\.jsonl:1: emergency is 'yes': must be true or false"):
        chat_rows.load_train(taught(label_line=True), folder)
