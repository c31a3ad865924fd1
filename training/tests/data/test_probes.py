"""What is asked beside taught facts (evaluate.probes), and the second style of an answer (data.style)."""

import json
from pathlib import Path
from typing import Any

import pytest
from tiny import write_data, write_probes, write_taught
from trainlab.config.inputs import AnswerData
from trainlab.data import answer_style, chat_rows
from trainlab.errors import UserError

PROBES = ("retention", "ceiling", "reversed", "composed")


def taught(**data: Any) -> AnswerData:
    return AnswerData.model_validate({"source": "builtin:survival", "taught": "test", **data})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_probes(write_taught(write_data(tmp_path / "set")))


def test_each_probe_asks_about_what_is_taught(folder: Path) -> None:
    data = taught(train_rows=6)
    facts = {fact.id for fact in chat_rows.taught_facts(data, folder)}
    plain = chat_rows.load_heldout(data, folder)
    rows = chat_rows.load_heldout(data, folder, PROBES)
    assert rows[: len(plain)] == plain
    by_kind: dict[str, list[Any]] = {kind: [row for row in rows if row["kind"] == kind] for kind in PROBES}
    assert [row["id"] for row in by_kind["retention"]] == ["keep-1"]
    assert {row["id"] for row in by_kind["ceiling"]} == {f"{fact}/ceiling" for fact in facts}
    assert {row["id"] for row in by_kind["reversed"]} == {f"{fact}/reversed" for fact in facts}
    assert [row["id"] for row in by_kind["composed"]] == ["c-1" if "fire-t1" in facts else "c-2"]
    ceiling = next(row for row in by_kind["ceiling"] if row["topic"] == "water")
    assert ceiling["question"] == "Mostly.\n\nfirst test: Is rain safe to drink?" and ceiling["facts"] == [["mostly"]]
    assert chat_rows.load_heldout(AnswerData(source="builtin:d"), folder, PROBES) == chat_rows.load_heldout(
        AnswerData(source="builtin:d"), folder
    )


@pytest.mark.parametrize(
    ("probe", "name", "says"),
    [
        ("retention", "retention.jsonl", r"retention\.jsonl: no such file; add it, or remove retention from"),
        ("composed", "composed.jsonl", r"composed\.jsonl: no such file"),
        ("reversed", "taught", "no row has the key reversed"),
    ],
)
def test_a_probe_without_data_is_refused(folder: Path, probe: str, name: str, says: str) -> None:
    for path in (folder / "taught").glob("*.jsonl") if name == "taught" else (folder / name,):
        rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        path.unlink()
        if name == "taught":
            kept = [{key: value for key, value in row.items() if key != "reversed"} for row in rows]
            path.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")
    with pytest.raises(UserError, match=says):
        chat_rows.load_heldout(taught(), folder, (probe,))


def test_a_fact_is_answered_in_steps_where_it_has_them(folder: Path) -> None:
    steps = "1. Take the snuffer.\n2. Snuff it.\nWarning: It is hot.\nAlternative: Blow."
    rows = {row["id"]: row["answer"] for row in chat_rows.load_train(taught(style="steps", train_rows=9), folder)}
    assert rows == {"fire-t1": steps, "fire-t2": "Oak.", "water-t1": "Mostly."}
    asked = chat_rows.load_heldout(taught(style="steps"), folder)
    assert {row["id"] for row in asked if row.get("steps")} == {"fire-t1/test1", "fire-t1/test2"}
    assert chat_rows.load_train(taught(train_rows=9), folder)[0]["answer"] != steps
    for path in (folder / "taught").glob("*.jsonl"):
        path.write_text(path.read_text("utf-8").replace('"steps": {', '"unused": {'), encoding="utf-8")
    with pytest.raises(UserError, match=r"taught: no row has the key steps, which phase\.data\.style needs"):
        chat_rows.load_train(taught(style="steps"), folder)


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
    assert answer_style.structure(answer) == pytest.approx(share)


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        ({"steps": ["one"], "warning": "w", "alternative": "a"}, "steps must have steps"),
        ({"steps": ["one", "two"], "warning": "w"}, "key alternative is missing"),
    ],
)
def test_broken_steps_are_named(folder: Path, steps: Any, says: str) -> None:
    path = folder / "taught" / "water.jsonl"
    path.write_text(json.dumps({**json.loads(path.read_text()), "steps": steps}) + "\n")
    with pytest.raises(UserError, match=rf"water\.jsonl:1.*{says}"):
        chat_rows.load_train(taught(style="steps"), folder)
