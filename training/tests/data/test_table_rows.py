"""Tables of one's own as data sets: any columns, a template for the question, CSV, JSON Lines and Parquet; what is wrong with a file."""

import json
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from checkout import ROOT, VALUES
from pyarrow import parquet
from pydantic import ValidationError
from tiny import make_phase
from trainlab import files
from trainlab.config import Phase, SftPhase
from trainlab.config.loading import load_values
from trainlab.data import chat_rows, row_files, table_rows
from trainlab.errors import UserError
from trainlab.recipes import sft

COLUMNS = {"topic": "Field", "question": "Ask", "answer": "Say"}
TABLE = {"columns": COLUMNS, "question_template": "For {topic}, {question}", "heldout_fraction": 0.3}
ROWS: list[dict[str, Any]] = [
    {"Field": field, "Ask": f"what is {n}?", "Say": f"{field} says {n}", "n": n}
    for n in range(30)
    for field in ("Cars", "Knots")
]
OVERLAY = VALUES / "data" / "practical-skills.yaml"
ORIGINAL = ROOT.parent / "shared" / "data" / "practical-skills-qa" / "final_qa_data_unique.jsonl"


class Volume:
    """A model volume with the tables of a phase."""

    def __init__(self, models: Path, base: dict[str, Any], model: Path) -> None:
        self.models, self._base, self._model = models, base, model

    def phase(self, source: str = "pvc:mine", **table: Any) -> SftPhase:
        phase = make_phase(self._base, data={"source": source, "table": {**TABLE, **table}}, model={"max_length": 256})
        assert isinstance(phase, SftPhase)
        return phase

    def write(self, name: str, content: bytes) -> Path:
        path = self.models / "mine" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    def fetch(self, phase: Phase) -> Path:
        assert isinstance(phase, SftPhase)
        result = table_rows.fetch(phase, self.models, self._model)
        assert result is not None
        return result


@pytest.fixture
def volume(tmp_path: Path, phase_dict: dict[str, Any], tiny_model: Path) -> Volume:
    return Volume(tmp_path / "models", phase_dict, tiny_model)


def jsonl(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def csv(rows: list[dict[str, Any]], mark: str = "") -> bytes:
    """Return a CSV file as Excel writes it: CRLF, all in quotes, with a BOM where `mark` is one."""
    lines = [list(rows[0]), *([str(value).replace(" says", "\r\nsays") for value in row.values()] for row in rows)]
    return (mark + "".join(",".join(f'"{text}"' for text in line) + "\r\n" for line in lines)).encode()


def write_parquet(path: Path) -> None:
    parquet.write_table(pyarrow.Table.from_pylist(ROWS), path)


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.csv", "rows.parquet"])
def test_three_columns_of_any_name_become_questions_with_their_topic(volume: Volume, name: str) -> None:
    path = volume.write(name, jsonl(ROWS) if name.endswith("jsonl") else csv(ROWS, "\ufeff"))
    if name.endswith("parquet"):
        write_parquet(path)
    phase = volume.phase(f"pvc:mine/{name}")
    folder = volume.fetch(phase)
    train, heldout = chat_rows.load_train(phase.data, folder), chat_rows.load_heldout(phase.data, folder)
    assert len(train) + len(heldout) == 60 and len(heldout) > 4
    assert {row["topic"] for row in (*train, *heldout)} == {"Cars", "Knots"}
    for row in (*train, *heldout):
        assert row["question"].startswith(f"For {row['topic']}, what is ")
        assert " ".join(row["answer"].split()) == f"{row['topic']} says {row['question'].split()[-1].strip('?')}"
    numbers = [{row["question"].split()[-1] for row in part} for part in (train, heldout)]
    assert not numbers[0] & numbers[1], "a question is on both sides, under another topic"
    row_files.check_contamination(phase.data, folder)
    told = sft.origin(phase, volume._model, folder)["data"]
    assert told["columns"] == COLUMNS and told["rows"]["read"] == 60 and "license" not in told


def test_two_columns_and_no_template(volume: Volume) -> None:
    volume.write("a.csv", csv(ROWS[:30]))
    volume.write("b.jsonl", jsonl(ROWS[30:]))
    phase = volume.phase(columns={"question": "Ask", "answer": "Say"}, question_template=None)
    folder = volume.fetch(phase)
    rows = [*chat_rows.load_train(phase.data, folder), *chat_rows.load_heldout(phase.data, folder)]
    assert len(rows) == 60 and {row["topic"] for row in rows} == {"mine"}
    assert all(row["question"].startswith("what is ") for row in rows)


def test_a_set_of_the_image_is_read_alike(volume: Volume, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    volume.write("rows.csv", csv(ROWS)).parent.rename(tmp_path / "own")
    monkeypatch.setenv("TRAINLAB_DATA", str(tmp_path))
    folder = volume.fetch(volume.phase("builtin:own"))
    assert folder.parent == volume.models and (folder / "train").is_dir()


def test_files_that_changed_are_read_again_and_others_are_not(volume: Volume) -> None:
    phase = volume.phase()
    volume.write("rows.csv", csv(ROWS))
    record = volume.fetch(phase) / "source.json"
    first = files.read_json(record)
    volume.fetch(phase)
    assert files.read_json(record) == first
    volume.write("rows.csv", csv(ROWS[:40]))
    volume.fetch(phase)
    assert files.read_json(record)["rows"]["read"] == 40


LARGE = "la " * (10 * 2**20 // 3)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        (
            "a.csv",
            csv(ROWS).replace(b'"Say"', b'"Told"'),
            r"a.csv: column 'Say' is missing; it has 'Field', 'Ask', 'Told'",
        ),
        (
            "a.csv",
            csv(ROWS).replace(b"Cars", b"B\xe4r", 1),
            r"a.csv:2: not UTF-8 at byte \d+ of the file; save it as UTF-8",
        ),
        (
            "a.csv",
            csv([*ROWS, {**ROWS[0], "Say": LARGE}]),
            r"a.csv:\d+: a field of more than 4194304 characters; split it",
        ),
        (
            "a.jsonl",
            jsonl([*ROWS, {**ROWS[0], "Say": LARGE}]),
            r"a.jsonl:61: column 'Say' has 10485759 characters, the limit",
        ),
        (
            "a.jsonl",
            jsonl([*ROWS, {**ROWS[0], "Say": 4}]),
            r"a.jsonl:61: column 'Say' is 4: must be a text; correct the row",
        ),
        (
            "a.jsonl",
            jsonl([{"Ask": "a", "Say": "b"}]),
            r"a.jsonl: column 'Field' is missing; .* phase.data.table.columns.topic",
        ),
        ("a.txt", b"no table", r"mine: no file that ends in .jsonl, .json, .csv, .parquet; put one there"),
        ("a.csv", b"", r"none of its rows can be used \(0 read"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_a_file_that_cannot_be_used_is_one_sentence(volume: Volume, name: str, content: bytes, expected: str) -> None:
    volume.write(name, content)
    with pytest.raises(UserError, match=expected) as caught:
        volume.fetch(volume.phase())
    assert len(str(caught.value).splitlines()) == 1
    assert [path.name for path in volume.models.iterdir() if path.is_dir()] == ["mine"], "something half done is left"


def test_nothing_there_names_the_place(volume: Volume) -> None:
    with pytest.raises(
        UserError, match=r"phase.data.source is pvc:mine: nothing at .*/models/mine; put it there first"
    ):
        volume.fetch(volume.phase())


@pytest.mark.parametrize("template", ["For {topic}", "{answer} {question}"])
def test_a_template_has_the_question_once_and_nothing_but_the_topic_besides(volume: Volume, template: str) -> None:
    with pytest.raises(ValidationError, match="question_template"):
        volume.phase(question_template=template)


def original(volume: Volume) -> SftPhase:
    phase = load_values([VALUES / "survival.yaml", OVERLAY]).phase
    assert isinstance(phase, SftPhase)
    return phase.model_copy(update={"model": volume.phase().model.model_copy(update={"max_length": 2048})})


def test_the_overlay_of_document_002_reads_its_columns(volume: Volume) -> None:
    rows = [{"topic": row["Field"], "question": row["Ask"], "answer": row["Say"]} for row in ROWS]
    volume.write("rows.jsonl", jsonl(rows)).parent.rename(volume.models / "practical-skills")
    phase = original(volume)
    folder = volume.fetch(phase)
    assert chat_rows.load_train(phase.data, folder)[0]["question"].startswith("For ")


@pytest.mark.skipif(not ORIGINAL.exists(), reason="the rows of document 002 are not beside this checkout")
def test_the_rows_of_document_002(volume: Volume) -> None:
    target = volume.models / "practical-skills" / "rows.jsonl"
    target.parent.mkdir(parents=True)
    target.symlink_to(ORIGINAL)
    phase = original(volume)
    folder = volume.fetch(phase)
    counts = files.read_json(folder / "source.json")["rows"]
    assert counts["read"] == 2845 and counts["train"] + counts["heldout"] + counts["equal"] == 2845, counts
    assert 0.05 < counts["heldout"] / 2845 < 0.15
    row_files.check_contamination(phase.data, folder)
