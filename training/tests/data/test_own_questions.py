"""`trainlab questions`, and questions that are trained on and scored."""

import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from checkout import ROOT, VALUES
from tiny import write_data
from trainlab import cli
from trainlab.config import DpoPhase
from trainlab.config.inputs import AnswerData
from trainlab.config.loading import load_values
from trainlab.data import chat_rows, own_questions, row_files
from trainlab.errors import UserError
from trainlab.recipes import dpo

DATA = AnswerData(source="pvc:mine")
DEEP = b"[" * 100_000


def csv(folder: Path, *rows: str, header: str = "question,answer") -> Path:
    path = folder / "faq.csv"
    path.write_text("\n".join((header, *rows, "")), encoding="utf-8")
    return path


def test_a_table_becomes_a_data_set_that_trains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"What is {n}?,It is {n}." for n in range(20)]
    source = csv(tmp_path, *rows, "what is 3,It is 3.", "What is 4?,It is 4.", "WHAT IS 5?,Five.")
    out = tmp_path / "mine"
    with pytest.raises(SystemExit) as done:
        cli.main(["questions", str(source), "--out", str(out)])
    assert done.value.code == 0
    assert "23 rows read, 1 were repeats, 20 questions: 16 to train on, 4 to ask (few: " in capsys.readouterr().out
    train, heldout = chat_rows.load_train(DATA, out), chat_rows.load_heldout(DATA, out)
    row_files.check_contamination(DATA, out)
    assert len(train) + len(heldout) >= 20
    assert {chat_rows.normal(row["question"]) for row in (*train, *heldout)} == {f"what is {n}" for n in range(20)}
    assert all(row["answer"] in (f"It is {row['question'].split()[-1].rstrip('?')}.", "Five.") for row in train)


def test_other_seeds_ask_others_and_the_same_asks_the_same(tmp_path: Path) -> None:
    source = csv(tmp_path, *(f"What is {n}?,It is {n}." for n in range(20)))
    asked = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        own_questions.make([source], tmp_path / name, seed=seed)
        asked.append([row["question"] for row in chat_rows.load_heldout(DATA, tmp_path / name)])
    assert asked[0] == asked[1] != asked[2]


def test_a_worse_answer_makes_pairs_that_dpo_reads(tmp_path: Path) -> None:
    """Split by question as well; a pair of equal answers is no pair."""
    lines = [{"question": f"What is {n}?", "good": f"It is {n}.", "bad": "I know not."} for n in range(20)]
    lines += [
        {"question": "WHAT IS 3", "good": "Three.", "bad": "Four."},
        {"question": "Why?", "good": "So.", "bad": " So. "},
    ]
    source = tmp_path / "pairs.jsonl"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    said = own_questions.make([source], tmp_path / "pairs", answer="good", rejected="bad", heldout=0.3)
    assert "22 rows read, 0 were repeats, 1 had two equal answers, 20 questions: 14 to train on, 6 to ask" in said
    phase = load_values([VALUES / "staged-dpo.yaml", VALUES / "data" / "orca-pairs.yaml"]).phase
    assert isinstance(phase, DpoPhase)
    train, heldout = dpo.read_rows(phase, tmp_path / "pairs")
    assert len(train) + len(heldout) == 21
    assert not {chat_rows.normal(row["question"]) for row in train} & {
        chat_rows.normal(row["question"]) for row in heldout
    }
    assert {(row["answer"], row["rejected"]) for row in (*train, *heldout)} >= {
        ("It is 4.", "I know not."),
        ("Three.", "Four."),
    }
    with pytest.raises(UserError, match=r"pairs.jsonl:1: column 'worse' is missing; .* --rejected"):
        own_questions.make([source], tmp_path / "none", answer="good", rejected="worse")


def test_columns_and_forms(tmp_path: Path) -> None:
    spaced = csv(tmp_path, "Why?,So.", "How?,Thus.", header="question, answer")
    assert "2 questions" in own_questions.make([spaced], tmp_path / "spaced")
    lines = [json.dumps({"q": f"Why {n}?", "a": f"So {n}.", "from": "me"}) for n in range(4)]
    (tmp_path / "faq.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "faq.json").write_text(json.dumps([json.loads(line) for line in lines]), encoding="utf-8")
    account = own_questions.make([tmp_path / "faq.jsonl", tmp_path / "faq.json"], tmp_path / "out", "q", "a", 0.5)
    assert "8 rows read, 4 were repeats, 4 questions: 2 to train on, 2 to ask" in account


@pytest.mark.parametrize("sign", [";", "\t"])
def test_other_separators_are_read_and_told(tmp_path: Path, sign: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Excel writes them where the comma is the decimal sign."""
    rows = [f'Why {n}?{sign}"So, {n},5{sign}yes."' for n in range(3)]
    source = csv(tmp_path, *rows, header=f"question{sign}answer")
    assert "3 rows read, 0 were repeats, 3 questions" in own_questions.make([source], tmp_path / "out")
    assert capsys.readouterr().err == f"trainlab: {source}: columns are separated by {sign!r}, as in its first line\n"
    (row,) = chat_rows.load_heldout(DATA, tmp_path / "out")
    assert re.fullmatch(rf"So, \d,5{sign}yes\.", row["answer"])


def test_empty_columns_and_rows_of_a_spreadsheet_are_left_out(tmp_path: Path) -> None:
    source = csv(tmp_path, "Why?,So.,,", ",,,", "How?,Thus.", ", ", "Who?,Me.,,,,", header="question,answer,,")
    assert "3 rows read, 0 were repeats, 3 questions" in own_questions.make([source], tmp_path / "out")
    numbered = csv(tmp_path, "0,Why?,So.", "1,How?,Thus.", header=",question,answer")
    assert "2 rows read" in own_questions.make([numbered], tmp_path / "numbered")
    with pytest.raises(UserError, match=r"faq.csv: holds no question; a data set needs at least two"):
        own_questions.make([csv(tmp_path, ",", ",")], tmp_path / "none")


def test_symbols_of_a_name_make_another_question(tmp_path: Path) -> None:
    source = csv(tmp_path, "What is C?,Old.", "What is C++?,More.", "What is C#?,Other.", "what is c#,Other.")
    assert "4 rows read, 0 were repeats, 3 questions" in own_questions.make([source], tmp_path / "out")


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        (
            "a.json",
            rb'[{"question": "b", "answer": "a \udc00"}]',
            r"a.json, row 1: column 'answer': half a surrogate",
        ),
        ("a.jsonl", b'{"question": ' + DEEP, r"a.jsonl:1: not JSON \(.*recursion.*\); the line is truncated"),
        (
            "a.jsonl",
            b'{"question": "z", "answer": "z"}\n{"question": "a", "answer": "b", "question": "c"}',
            r"a.jsonl:2: key 'question' is in one object twice; remove",
        ),
        (
            "a.json",
            b'[{"answer": "a", "answer": "b"}]',
            r"a.json: key 'answer' is in one object twice; remove one of the two",
        ),
        ("a.json", DEEP, r"a.json:1: not JSON \(.*recursion.*\); the file is truncated or invalid"),
        ("a.json", b"[" + b"9" * 5000, r"a.json:1: not JSON \(Exceeds the limit"),
        *(
            (name, text.encode(code), rf"{name}: is UTF-16; save it as UTF-8")
            for name, text in (("a.csv", "question,answer\na,b\n"), ("a.jsonl", "{}"))
            for code in ("utf-16", "utf-16-le", "utf-16-be")
        ),
    ],
    ids=lambda value: str(value)[:12],
)
def test_nasty_files_are_sentences(tmp_path: Path, name: str, content: bytes, expected: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=expected):
        own_questions.make([tmp_path / name], tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("header", "rows", "options", "expected"),
    [
        ("question,answer", ["Why?,So."], {}, r"faq.csv: holds one question; a data set needs at least two"),
        ("question,answer", ["Why?, ", "a,b"], {}, r"faq.csv:2: answer is ' ': must be a text"),
        ("question,answer", ["?!,So.", "a,b"], {}, r"faq.csv:2: question is '\?!': contains no words"),
        (
            "frage,antwort",
            ["Warum?,So."],
            {},
            r"faq.csv:2: column 'question' is missing; there is 'frage', 'antwort': name another column with --question",
        ),
        ("question,answer", [], {}, r"faq.csv: has no rows"),
        ("question,answer", ["a,b", "c,d"], {"heldout": 1.0}, r"--heldout 1: must be above 0 and below 1"),
    ],
)
def test_what_is_no_table_of_questions_is_named(
    tmp_path: Path, header: str, rows: list[str], options: dict[str, Any], expected: str
) -> None:
    with pytest.raises(UserError, match=expected):
        own_questions.make([csv(tmp_path, *rows, header=header)], tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_nothing_is_overwritten_and_only_tables_are_read(tmp_path: Path) -> None:
    source = csv(tmp_path, "a,b", "c,d")
    own_questions.make([source], tmp_path / "out")
    with pytest.raises(UserError, match=r"out: already exists; remove it"):
        own_questions.make([source], tmp_path / "out")
    text = tmp_path / "faq.txt"
    text.write_text("Why?", encoding="utf-8")
    with pytest.raises(UserError, match=r"faq.txt: a table ends in .jsonl, .json, .csv"):
        own_questions.make([text], tmp_path / "other")
    with pytest.raises(UserError, match=r"none.csv: No such file or directory; correct the path"):
        own_questions.make([tmp_path / "none.csv"], tmp_path / "other")


def test_a_question_on_both_sides_is_refused_with_both_lines(tmp_path: Path) -> None:
    folder = write_data(tmp_path / "set")
    row_files.check_contamination(DATA, folder)
    trained = json.loads((folder / "train" / "fire.jsonl").read_text("utf-8").splitlines()[2])
    heldout = folder / "heldout" / "water.jsonl"
    row = {"id": "new", "question": trained["question"].upper() + " !", "answer": "a", "facts": []}
    heldout.write_text(heldout.read_text("utf-8") + json.dumps(row) + "\n", encoding="utf-8")
    number = len(heldout.read_text("utf-8").splitlines())
    with pytest.raises(UserError, match=rf"heldout/water.jsonl:{number}: .*also trained on, at .*train/fire.jsonl:3;"):
        row_files.check_contamination(DATA, folder)


def test_a_taught_wording_that_is_asked_is_refused(tmp_path: Path) -> None:
    folder = write_data(tmp_path / "set")
    (folder / "taught").mkdir()
    fact = {"id": "t", "question": "Who?", "phrasings": ["who is it"], "dev": ["Who is it?"], "test": ["Name him."]}
    line = json.dumps({**fact, "answer": "Bob.", "facts": [["bob"]]})
    (folder / "taught" / "names.jsonl").write_text(line, encoding="utf-8")
    row_files.check_contamination(DATA, folder)
    row_files.check_contamination(AnswerData(source="pvc:mine", taught="test"), folder)
    with pytest.raises(UserError, match=r"taught/names.jsonl:1: 'Who is it\?' is also trained on, at .*names.jsonl:1"):
        row_files.check_contamination(AnswerData(source="pvc:mine", taught="dev"), folder)


def test_questions_that_differ_in_case_only_validate_no_other(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    rows = [
        {"id": f"{n}", "question": ("Why {}?" if n % 2 else "why {}").format(n // 2), "answer": "a"} for n in range(40)
    ]
    (tmp_path / "train" / "a.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    train, validation = chat_rows.split_by_question(chat_rows.load_train(DATA, tmp_path), 0.5, seed=0)
    assert len(train) == len(validation) == 20
    assert not {chat_rows.normal(row["question"]) for row in train} & {
        chat_rows.normal(row["question"]) for row in validation
    }


def test_the_page_says_what_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its table, its command word for word, and the phase of its playbook."""
    page = (ROOT / "docs" / "present" / "own-questions.md").read_text(encoding="utf-8")
    table = re.search(r"```csv\n(.*?)```", page, re.S)
    line = re.search(r"^\.venv/bin/trainlab (.*)$", page, re.MULTILINE)
    overrides = re.search(r"-e '(\{.*\})'", page)
    assert table and line and overrides
    (tmp_path / "faq.csv").write_text(textwrap.dedent(table[1]), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "training" / "src")}
    command = [sys.executable, "-m", "trainlab.cli", *line[1].split()]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "3 rows read, 0 were repeats, 2 questions: 1 to train on, 1 to ask" in done.stdout
    overlay = tmp_path / "overlay.yaml"
    overlay.write_text(json.dumps({"phase": json.loads(overrides[1])["trainlab_phase_overrides"]}), encoding="utf-8")
    phase = load_values([VALUES / "survival.yaml", VALUES / "local" / "survival.yaml", overlay]).phase
    monkeypatch.setenv("TRAINLAB_DATA", str(tmp_path / "data"))
    folder = row_files.folder(phase.data, tmp_path)
    assert chat_rows.load_train(phase.data, folder) and chat_rows.load_heldout(phase.data, folder)
