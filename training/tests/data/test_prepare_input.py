"""trainlab prepare: files of all kinds, rows and sources that cannot be used, options and folders that do not fit."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import pyarrow
import pytest
from corpora import made, make_tokenizer, text, write_rows
from pyarrow import parquet
from tokenizers import Tokenizer, models, pre_tokenizers
from trainlab import cli
from trainlab.data import table_files
from trainlab.data.prepare.blocks import Blocks
from trainlab.data.prepare.options import Options
from trainlab.errors import UserError
from transformers import PreTrainedTokenizerFast

DISTINCT = [text(seed) for seed in range(40)]


@pytest.mark.parametrize("kind", ["json", "csv", "semicolons", "parquet", "txt", "folder"])
def test_every_kind_of_file_gives_the_same_blocks(kind: str, tmp_path: Path, options: Options) -> None:
    made(write_rows(tmp_path / "a.jsonl", DISTINCT), tmp_path / "jsonl", options)
    path = tmp_path / f"b.{kind}"
    if kind == "json":
        path.write_text(json.dumps([{"text": one} for one in DISTINCT]), encoding="utf-8")
    elif kind == "csv":
        with path.open("w", encoding="utf-8", newline="") as stream:
            csv.writer(stream).writerows([["n", " text "], *enumerate(DISTINCT)])
    elif kind == "semicolons":
        path = path.with_suffix(".csv")
        with path.open("w", encoding="utf-8", newline="") as stream:
            csv.writer(stream, delimiter=";").writerows(
                [["n", "text", ""], *((n, one, "") for n, one in enumerate(DISTINCT))]
            )
    elif kind == "parquet":
        parquet.write_table(pyarrow.table({"text": DISTINCT}), path, row_group_size=7)
    elif kind == "txt":
        path.write_text("\n".join(f"#\n{one}" for one in DISTINCT), encoding="utf-8")
        options = replace(options, document_start="^#$")
        made(path, tmp_path / "txt", options)
        assert len(Blocks(tmp_path / "txt").starts()) >= len(DISTINCT) - 1
        return
    else:
        path.mkdir()
        for i, one in enumerate(DISTINCT):
            (path / f"{i:03d}.txt").write_text(one, encoding="utf-8")
    made(path, tmp_path / kind, options)
    assert (tmp_path / kind / "index.json").read_bytes() == (tmp_path / "jsonl/index.json").read_bytes()


GOOD = json.dumps({"text": text(1)}).encode()
BAD = [
    (b'{"text": "half a', r"a.jsonl:2: not JSON .*truncated or invalid"),
    (b'{"body": "x"}', r"a.jsonl:2: column 'text' is missing; there is 'body': name another column with --column"),
    (b"[" * table_files.MAX_LINE, r"a.jsonl:2: a line of \d+ bytes or more; split it into documents"),
]


@pytest.mark.parametrize(("line", "sentence"), BAD, ids=lambda one: repr(one[:40]))  # a line may be 16 MB
def test_a_bad_row_is_an_error_or_counted(line: bytes, sentence: str, tmp_path: Path, options: Options) -> None:
    source = tmp_path / "a.jsonl"
    source.write_bytes(b"\n".join([GOOD, line, json.dumps({"text": text(2)}).encode()]))
    with pytest.raises(UserError, match=sentence):
        made(source, tmp_path / "out", options)
    report = made(source, tmp_path / "out", replace(options, skip_bad=1))
    assert (report["documents"]["bad"], report["documents"]["kept"]) == (1, 2)
    assert len(report["bad_rows"]) == 1 and "a.jsonl:2: " in report["bad_rows"][0]


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        (
            "a.jsonl",
            b'{"a": "x", "b": "y"}',
            r"a.jsonl: the columns 'a', 'b' hold texts .*; name the right one with --column",
        ),
        ("a.jsonl", b'{"text": "too short"}', r"a.jsonl: 0 tokens left, less than one block of 64"),
    ],
)
def test_a_source_that_cannot_be_used(
    name: str, content: bytes, sentence: str, tmp_path: Path, options: Options
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=sentence):
        made(tmp_path / name, tmp_path / "out", options)


def test_options_and_folders_that_do_not_fit(
    tmp_path: Path, options: Options, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_rows(tmp_path / "a.jsonl", DISTINCT[:9])
    for change, sentence in (
        ({"near": 1.5}, "--near 1.5: must be 0"),
        ({"without": ("x",)}, "--without x: no such rule; the rules are broken, letters"),
        ({"block_length": 1}, "--block-length 1: must be 2 or more"),
        ({"document_start": "("}, r"--document-start '\(': not a regular expression"),
        ({"tokenizer": tmp_path}, "no tokenizer_config.json there"),
        ({"tokenizer": make_tokenizer(tmp_path / "no_eos", eos=None)}, "has no EOS to end a document; set eos_token"),
    ):
        with pytest.raises(UserError, match=sentence):
            made(source, tmp_path / "out", replace(options, **change))
    args = ["prepare", str(source), "--out", str(tmp_path / "out"), "--tokenizer", str(options.tokenizer)]
    for more, code, said in (
        (["--block-length", "64"], 0, "9 of 9 documents kept (bad 0; dropped: none; duplicates: exact 0, near 0)"),
        (["--block-length", "64"], 0, "is up to date"),
        (["--block-length", "32"], 2, "was made with a different block_length; name another --out, or remove it"),
    ):
        with pytest.raises(SystemExit) as end:
            cli.main([*args, *more])
        output = capsys.readouterr()
        assert end.value.code == code and said in output.out + output.err
    with pytest.raises(UserError, match=r"--out .*a/b: is inside the source .*, whose files it would change"):
        made(tmp_path, tmp_path / "a/b", options)
    with pytest.raises(UserError, match="no such file or folder"):
        made(tmp_path / "none", tmp_path / "out2", options)


def test_a_tokenizer_whose_eos_stands_for_other_words_is_refused(tmp_path: Path) -> None:
    """Documents are told apart by it."""
    tokenizer = Tokenizer(models.WordLevel({"</s>": 0, "word": 1}, unk_token="</s>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>").save_pretrained(tmp_path / "words")
    with pytest.raises(UserError, match=r"--tokenizer .*words: its EOS stands inside texts, too; use another model"):
        made(write_rows(tmp_path / "a.jsonl", DISTINCT), tmp_path / "out", Options(tmp_path / "words", block_length=64))


def test_blocks_longer_than_the_model_are_refused(tmp_path: Path, options: Options) -> None:
    source = write_rows(tmp_path / "a.jsonl", DISTINCT[:9])
    folder = make_tokenizer(tmp_path / "model")
    for config in ({"max_position_embeddings": 63}, {"text_config": {"max_position_embeddings": 63}}):
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
        with pytest.raises(UserError, match=r"--block-length 64: the model in --tokenizer .*model has 63 positions"):
            made(source, tmp_path / "out", replace(options, tokenizer=folder))
        made(source, tmp_path / f"out-{next(iter(config))}", replace(options, tokenizer=folder, block_length=63))
