"""The line with topic and emergency: what rows ask for, what is cut off an answer, what counts as right."""

import json
from pathlib import Path
from typing import Any

import pytest
from tiny import write_data, write_taught
from trainlab.config.inputs import AnswerData
from trainlab.data import chat_rows, label_line
from trainlab.errors import UserError


def labelled(**data: Any) -> AnswerData:
    return AnswerData.model_validate({"source": "builtin:survival", "label_line": True, **data})


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
    assert label_line.split(text) == (said, rest)


def test_case_and_punctuation_do_not_count() -> None:
    wanted = label_line.line("first_aid", True)
    assert wanted == "Topic: first aid. Emergency: yes."
    assert label_line.right("topic: First aid, emergency: YES", wanted)
    for wrong in ("", "Topic: first aid. Emergency: no", "Topic: car. Emergency: yes", "Topic: first aid"):
        assert not label_line.right(wrong, wanted), wrong


def test_every_row_has_its_label_if_the_phase_asks(tmp_path: Path) -> None:
    folder = write_taught(write_data(tmp_path / "set"))
    for name in ("train", "heldout", "taught"):
        path = folder / name / "fire.jsonl"
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        rows[0]["emergency"] = True
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = labelled(taught="test")
    rows = [*chat_rows.load_train(data, folder), *chat_rows.load_heldout(data, folder)]
    told = {row["id"].split("/")[0]: row["label"] for row in rows}
    assert told["fire-0"] == told["fire-h0"] == told["fire-t1"] == "Topic: fire. Emergency: yes."
    assert told["fire-1"] == told["fire-t2"] == "Topic: fire. Emergency: no."
    assert told["water-t1"] == "Topic: water. Emergency: no."
    plain = AnswerData(source="builtin:survival", taught="test")
    assert not any("label" in row for row in chat_rows.load_train(plain, folder))


def test_a_broken_mark_is_named(tmp_path: Path) -> None:
    folder = write_data(tmp_path / "set")
    path = folder / "train" / "fire.jsonl"
    path.write_text(path.read_text().replace('"id": "fire-0"', '"emergency": "yes", "id": "fire-0"', 1))
    with pytest.raises(UserError, match=r"fire\.jsonl:1: emergency is 'yes': must be true or false"):
        chat_rows.load_train(labelled(), folder)
