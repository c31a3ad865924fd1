"""Running text: files of five kinds, columns, what is refused, parts by document, blocks that keep every token."""

import json
from pathlib import Path
from typing import Any

import pytest
from corpora import make_tokenizer
from pydantic import ValidationError
from tiny import make_phase, write_text
from trainlab.config import Phase
from trainlab.data import corpus, hub_download, pack, table_files, text_files
from trainlab.data.text_files import Document
from trainlab.errors import UserError
from transformers import AutoTokenizer

SET = "hf:own/set@" + "0" * 40


@pytest.fixture
def text_phase(phase_dict: dict[str, Any]) -> dict[str, Any]:
    """A phase of recipe cpt; its text is the Python manual."""
    changed = {"recipe": "cpt", "data": {"source": "pydoc:topics"}, "gate": {"metric": "perplexity"}}
    return {**phase_dict, "unfreeze": {}, **changed}


@pytest.fixture(scope="module")
def tokenizer(tiny_model: Path) -> Any:
    return AutoTokenizer.from_pretrained(tiny_model)


def test_lines_and_rows_are_joined_where_a_document_begins(tmp_path: Path) -> None:
    lines = ["", " = One = ", "", "text", " = = Part = = ", "more", " = Two = ", "end"]
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"text": line}) + "\n" for line in lines), encoding="utf-8")
    plain = tmp_path / "plain.txt"
    plain.write_text("\n".join(lines) + "\n", encoding="utf-8")
    for path in (rows, plain):
        found, _ = text_files.documents(path, None, "^ = [^=].* = $")
        assert [" ".join(one.text.split()) for one in found] == ["= One = text = = Part = = more", "= Two = end"]
        assert "".join(one.text for one in found) == "\n".join(lines) + "\n"
        assert [one.id for one in found] == [f"{path.name}:1", f"{path.name}:7"]
    paragraphs = tmp_path / "paragraphs.txt"
    paragraphs.write_text("one\none\n\ntwo\n\n\nthree", encoding="utf-8")
    assert [document.text.strip() for document in text_files.documents(paragraphs, None, "^$")[0]] == [
        "one\none",
        "two",
        "three",
    ]


@pytest.mark.parametrize(
    ("row", "column", "expected"),
    [
        ({"text": "a", "title": "b"}, None, "a"),
        ({"id": 1, "body": "a"}, None, "a"),
        ({"text": "a", "title": "b"}, "title", "b"),
        (
            {"title": "a", "body": "b"},
            None,
            r"columns 'title', 'body' hold texts and none is called text; .*text.column",
        ),
        ({"id": 1}, None, "no column holds texts"),
        (
            {"text": "a"},
            "body",
            r"corpus.jsonl:1: column 'body' is missing; there is 'text': name another column with phase.text.column",
        ),
        (
            {"text": 3},
            None,
            r"corpus.jsonl:1: column 'text' is 3: must be a text; correct the row, or name another column with phase",
        ),
    ],
)
def test_the_column_is_chosen_detected_or_asked_for(
    row: dict[str, Any], column: str | None, expected: str, tmp_path: Path
) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text(json.dumps(row), encoding="utf-8")
    if len(expected) == 1:
        assert text_files.documents(path, column, None)[0][0].text == expected
    else:
        with pytest.raises(UserError, match=expected):
            text_files.documents(path, column, None)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.jsonl", b"", r"a.jsonl: is empty"),
        ("a.txt", b" \n", r"a.txt: is empty"),
        ("a.jsonl", b'{"text": ""}\n', r"a.jsonl: holds no text"),
        ("a.txt", b"good\nbad \xff\n", r"a.txt:2: not UTF-8 at byte 9 of the file"),
        ("a.jsonl", b'{"text": "a"}\n{"text": "cut', r"a.jsonl:2: not JSON .*the line is truncated or invalid"),
        ("a.jsonl", b"[1]\n", r"a.jsonl:1: holds a list; each row must be an object"),
        ("a.json", b'[{"text": "a"},\n{"te', r"a.json:2: not JSON"),
        ("a.json", b'{"text": "a"}', r"a.json: holds a dict; must be a list"),
        ("a.json", b"[]", r"a.json: is empty; remove it or put text into it"),
        ("a.csv", b"text,n\na,1\nb,2,3\n", r"a.csv:3: the row has 3 fields, the header 2"),
        ("a.csv", b'text,n\n"a,1\n', r"a.csv:2: not CSV .*is a quote unclosed\?"),
        ("a.csv", b"text,text\na,b\n", r"a.csv:1: the header .* names a column twice; give each its own name"),
        ("a.csv", b"n,text\n1,a,b\n", r"a.csv:2: the row has 3 fields, the header 2"),
        ("a.csv", b"title\nx\n" + b"y," * 3, r"a.csv:3: the row has 4 fields, the header 1"),
        ("a.csv", b"text\n\xff\n", r"a.csv:2: not UTF-8 at byte 5"),
        ("a.json", b'[{"text": "a"},\n"\xff"]', r"a.json:2: not UTF-8 at byte 17 of the file; save it as UTF-8"),
        ("a.txt", "text".encode("utf-16"), r"a.txt: is UTF-16; save it as UTF-8"),
        ("a.json", "[]".encode("utf-16-le"), r"a.json: is UTF-16; save it as UTF-8"),
        ("a.parquet", b"", r"a.parquet: is empty"),
        (
            "a.jsonl",
            rb'{"text": "\ud83d"}',
            r"a.jsonl:1: column 'text': half a surrogate pair at character 0; correct or",
        ),
        ("a.parquet", b"PAR1", r"a.parquet: cannot be read as Parquet .*is it truncated"),
        ("a.md", b"text", r"a.md: must end in .jsonl, .json, .csv, .txt, .parquet; rename or convert it"),
        (
            "a.txt",
            b"words\n" * (table_files.MAX_CHARACTERS // 6 + 2),
            r"a.txt: more than 4194304 characters; say with phase.text.document_start where documents begin",
        ),
        (
            "a.jsonl",
            b'{"text": "' + b"a" * (table_files.MAX_CHARACTERS + 1) + b'"}',
            r"a.jsonl:1: 4194305 characters, the limit is 4194304; split it into documents",
        ),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_what_cannot_be_read_is_told_with_its_place(name: str, content: bytes, expected: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UserError, match=expected):
        text_files.documents(path, None, None)


def test_a_folder_without_text_and_a_missing_path_are_refused(text_phase: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no file that ends in"):
        text_files.documents(tmp_path, None, None)
    for source, more in (("pvc:nowhere.txt", "put it there first"), (SET, "run `trainlab fetch`")):
        with pytest.raises(UserError, match=f"phase.data.source is {source}: nothing at .*{more}"):
            corpus.place(make_phase(text_phase, data={"source": source}), tmp_path, None)
    with pytest.raises(UserError, match=r"--data .*: no such file or folder"):  # and not the manual instead
        corpus.place(make_phase(text_phase), tmp_path, tmp_path / "gone")


def parts(phase: Phase, path: Path) -> list[list[Document]]:
    found = corpus.load(phase, path)
    return [found.train, found.validation, found.heldout]


def test_parts_are_whole_documents_and_the_same_every_time(text_phase: dict[str, Any], tmp_path: Path) -> None:
    phase = make_phase(text_phase, data={"source": "pvc:a.jsonl"}, train={"validation_fraction": 0.1})
    path = write_text(tmp_path / "a.jsonl")
    lines = path.read_text().splitlines()
    found = parts(phase, path)
    texts = [{one.text for one in part} for part in found]
    assert sum(map(len, texts)) == 60 and len(set.union(*texts)) == 60
    assert [len(part) for part in texts] == pytest.approx([48, 6, 6], abs=2)
    path.write_text("\n".join([*reversed(lines), lines[7], lines[7]]) + "\n")
    again = parts(
        make_phase(text_phase, seed=7, data={"source": "pvc:a.jsonl"}, train={"validation_fraction": 0.1}), path
    )
    assert [{one.text for one in part} for part in again] == texts
    assert corpus.load(phase, path).duplicates == 2


def test_too_few_documents_are_refused(text_phase: dict[str, Any], tmp_path: Path) -> None:
    path = write_text(tmp_path / "a.jsonl", documents=2)
    with pytest.raises(UserError, match=r"2 different documents, the parts need at least 3.*document_start"):
        corpus.load(make_phase(text_phase), path)


def test_the_manual_of_python_needs_no_file(text_phase: dict[str, Any], tmp_path: Path) -> None:
    phase = make_phase(text_phase)
    path = corpus.place(phase, tmp_path, None)
    found = corpus.load(phase, path)
    total = sum(len(one.text) for part in parts(phase, path) for one in part)
    assert total > 300_000 and {"assert", "lambda"} <= {one.id for part in parts(phase, path) for one in part}
    assert 0.05 < sum(len(one.text) for one in found.heldout) / total <= 0.1
    origin = corpus.origin(phase, path)
    assert len(origin["sha256"]) == 64 and origin["license"].startswith("PSF")


def test_a_hub_data_set_lands_in_the_model_volume_as_rows(
    text_phase: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_text(tmp_path / "own" / "set" / "train.jsonl")  # datasets takes a folder of that name for the hub's
    monkeypatch.chdir(tmp_path)
    phase = make_phase(text_phase, data={"source": SET})
    models = tmp_path / "models"
    corpus.fetch(phase, models)
    path = corpus.place(phase, models, None)
    assert corpus.load(phase, path).blank == 0 and len(text_files.documents(path, None, None)[0]) == 60
    assert corpus.origin(phase, path)["license"] == "not stated"
    assert sorted(one.name for one in path.parent.iterdir()) == ["source.json", "train.jsonl"]


def packed(tokenizer: Any, documents: list[Document], length: int) -> tuple[pack.Packed, list[list[int]]]:
    """Return the documents as blocks, as the training part of a corpus, and their tokens."""
    parts = pack.pack_corpus(tokenizer, corpus.Corpus(documents, [], documents, 0, 0), length, None, None)
    return parts.train, pack.tokenizer_of(tokenizer, "").documents([document.text for document in documents])


def test_blocks_keep_every_token_and_documents_end_with_eos(tokenizer: Any) -> None:
    documents = [Document(f"d{i}", f"the water {i} boils " * (i + 1)) for i in range(9)]
    part, rows = packed(tokenizer, documents, 32)
    ids = [token for row in rows for token in row]
    owners = [document.id for document, row in zip(documents, rows, strict=True) for _ in row]
    flat = [token for block in part.blocks for token in block]
    assert flat == ids[: len(flat)] and part.remainder == len(ids) - len(flat) < 32
    assert part.tokens == len(ids) and {len(block) for block in part.blocks} == {32}
    assert ids.count(tokenizer.eos_token_id) == 9
    texts = tokenizer.decode(ids, clean_up_tokenization_spaces=False).split(tokenizer.eos_token)
    assert texts == [*(document.text for document in documents), ""]  # nothing is cut: the longest has many blocks
    assert part.topics == [owners[start] for start in range(0, len(flat), 32)]


@pytest.mark.parametrize("bos", [False, True])
def test_special_tokens_in_a_text_stay_text_and_a_bos_stands_before_each_document(tmp_path: Path, bos: bool) -> None:
    own = AutoTokenizer.from_pretrained(make_tokenizer(tmp_path / "tokenizer", bos=bos))
    documents = [Document(f"d{i}", f"page {i} spells <|endoftext|> and <|begin|> " * 9) for i in range(5)]
    part, rows = packed(own, documents, 16)
    flat = [token for block in part.blocks for token in block]
    assert {row[-1] for row in rows} == {own.eos_token_id} and [row.count(own.eos_token_id) for row in rows] == [1] * 5
    assert [row.count(1) for row in rows] == [int(bos)] * 5 and (not bos or {row[0] for row in rows} == {1})
    assert flat == [token for row in rows for token in row][: len(flat)]
    assert own("a <|endoftext|>", add_special_tokens=False)["input_ids"][-1] == own.eos_token_id  # as it was


def test_fewer_blocks_are_spread_over_all_and_too_little_text_is_refused(tokenizer: Any) -> None:
    documents = [Document(f"d{i}", f"the water {i}") for i in range(40)]
    whole, _ = packed(tokenizer, documents, 8)
    some = pack.thin(whole, 5)
    assert len(some) == 5 and some.topics[0] == "d0" and int(some.topics[-1][1:]) > 28
    assert all(block in whole.blocks for block in some.blocks) and pack.thin(whole, 10**6) is whole
    short = corpus.Corpus(documents, [], documents[:1], 0, 0)
    with pytest.raises(UserError, match=r"the held-out part has .* tokens, less than one block"):
        pack.pack_corpus(tokenizer, short, 128, None, None)


def test_what_is_no_regular_expression_is_refused(text_phase: dict[str, Any]) -> None:
    """Everything else that does not fit is asked of Helm as well (tests/charts/test_refused.py)."""
    with pytest.raises(ValidationError, match=r"text.document_start: '\(' is not a regular expression"):
        make_phase(text_phase, text={"document_start": "("})


class Stopped(Exception):
    """What ends a process for the test."""


def test_a_stream_that_was_interrupted_goes_on_after_its_rows(
    text_phase: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"text": f"page {i} of the manual\n", "n": i} for i in range(200)]
    for part in range(4):
        path = tmp_path / "own" / "set" / f"train-{part}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows[part * 50 : part * 50 + 50]), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(hub_download, "SAVED_EVERY", 0.0)
    phase = make_phase(text_phase, data={"source": SET})
    dumps, seen = json.dumps, []

    def stopping(value: Any, **named: Any) -> str:
        if "n" in value:
            seen.append(value["n"])
            if len(seen) == 120:
                raise Stopped
        return dumps(value, **named)

    monkeypatch.setattr(hub_download.json, "dumps", stopping)
    with pytest.raises(Stopped):
        corpus.fetch(phase, tmp_path / "models")
    assert not list((tmp_path / "models").glob("data-*")), "a part has the name of the whole"
    corpus.fetch(phase, tmp_path / "models")
    path = corpus.place(phase, tmp_path / "models", None)
    assert [json.loads(line) for line in path.read_text("utf-8").splitlines()] == rows
    assert seen[120] >= 100 and "119 rows are there, going on after them" in capsys.readouterr().err
    assert sorted(one.name for one in path.parent.iterdir()) == ["source.json", "train.jsonl"]


def test_the_first_rows_of_a_hub_set_alone(
    text_phase: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_text(tmp_path / "own" / "set" / "train.jsonl")
    monkeypatch.chdir(tmp_path)
    phase = make_phase(text_phase, data={"source": SET}, text={"hub_rows": 7})
    corpus.fetch(phase, tmp_path / "models")
    assert len(corpus.place(phase, tmp_path / "models", None).read_text("utf-8").splitlines()) == 7
