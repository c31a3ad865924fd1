"""Texts from JSONL, JSON, CSV, TXT and Parquet, row by row in bounded memory; used by ingest.py.

The readers of data/text_files.py hold whole files; these hold one row, and yield an unusable row as `Bad` instead of
raising, so that the caller decides (--skip-bad). What makes the whole file unusable raises UserError.
"""

import csv
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from trainlab import files
from trainlab.config.references import TOPICS
from trainlab.data import text_files
from trainlab.errors import UserError

LIMIT = 1 << 22  # characters of one document: tokenizing takes some 150 bytes per character
BYTES = 4 * LIMIT  # of one line; UTF-8 has at most 4 bytes per character
WHOLE = 1 << 26  # bytes of a .json file, which is read whole
CUT = "split it into documents"
COLUMN = "--column"


@dataclass(frozen=True)
class Source:
    """A file, and the name that its documents carry wherever the file is."""

    path: Path
    name: str

    def at(self, number: int) -> str:
        """Return where row `number` is, for messages; 0 is the file itself."""
        if not number:
            return str(self.path)
        lines = self.path.suffix.lower() in (".jsonl", ".csv", ".txt")
        return f"{self.path}:{number}" if lines else f"{self.path}, row {number}"


@dataclass(frozen=True)
class Row:
    """One text; `number` is its line, or its row if the file has no lines."""

    number: int
    text: str


@dataclass(frozen=True)
class Bad:
    """An unusable row: why, and what to do."""

    number: int
    reason: str


Item = Row | Bad


def sources(given: Sequence[str]) -> list[Source]:
    """Return the files named, those of folders sorted by name; raises UserError for missing ones."""
    found: list[Source] = []
    for one in given:
        path = Path(one)
        if one == TOPICS or path.is_file():
            found.append(Source(path, path.name))
        elif path.is_dir():
            inside = sorted(p for p in path.rglob("*") if p.is_file() and p.suffix.lower() in READERS)
            if not inside:
                raise UserError(f"{path}: no file that ends in {', '.join(READERS)}; correct the path")
            found += [Source(p, p.relative_to(path).as_posix()) for p in inside]
        else:
            raise UserError(f"{path}: no such file or folder; correct the path")
    for source in found:
        if source.name != TOPICS and source.path.suffix.lower() not in READERS:
            raise UserError(f"{source.path}: must end in {', '.join(READERS)}; rename or convert it")
    return found


def content(source: Source) -> Iterator[bytes]:
    """Yield what the texts of a source depend on: the bytes of its file, or the topics of this Python."""
    if source.name == TOPICS:
        yield from (row.text.encode() for row in rows(source, None, None) if isinstance(row, Row))
        return
    with source.path.open("rb") as stream:
        yield from iter(lambda: stream.read(files.CHUNK), b"")


def rows(source: Source, column: str | None, start: str | None) -> Iterator[Item]:
    """Yield the rows of a source; `column` and `start` are --column and --document-start."""
    if source.name == TOPICS:
        from trainlab.data.corpus import topics

        yield from (Row(number, one.text) for number, one in enumerate(topics(), start=1))
        return
    empty = True
    for item in READERS[source.path.suffix.lower()](source.path, column, start):
        empty = False
        yield _usable(item) if isinstance(item, Row) else item
    if empty:
        yield Bad(0, "is empty; remove it or put text into it")


def _usable(row: Row) -> Item:
    if len(row.text) > LIMIT:
        return Bad(row.number, f"{len(row.text)} characters, the limit is {LIMIT}; {CUT}")
    fault = text_files.half_pair(row.text)
    return Bad(row.number, f"{fault}; correct or remove the row") if fault else row


def _lines(path: Path) -> Iterator[tuple[int, str | Bad]]:
    """Yield each line with its line end; a line too long or not UTF-8 as Bad."""
    offset = 0
    with path.open("rb") as stream:
        for number, line in enumerate(iter(lambda: stream.readline(BYTES), b""), start=1):
            long = len(line) == BYTES and not line.endswith(b"\n")
            while long and (more := stream.readline(BYTES)):
                offset += len(more)
                if more.endswith(b"\n"):
                    break
            if number == 1 and text_files.is_utf16(line):
                raise UserError(f"{path}: {text_files.UTF16}")
            try:
                text: str | Bad = line.decode("utf-8")
                if number == 1:
                    text = str(text).removeprefix("\ufeff")
            except UnicodeDecodeError as error:
                text = Bad(number, f"not UTF-8 at byte {offset + error.start} of the file; save it as UTF-8")
            yield number, Bad(number, f"a line of {BYTES} bytes or more; {CUT}") if long else text
            offset += len(line)


def _jsonl(path: Path, column: str | None, start: str | None) -> Iterator[Item]:
    for number, line in _lines(path):
        if isinstance(line, Bad):
            yield line
        elif line.strip():
            try:
                row = text_files.parsed(line)
            except ValueError as error:
                yield Bad(number, f"not JSON ({error}); the line is truncated or invalid: correct or remove it")
                continue
            if not isinstance(row, dict):
                yield Bad(number, f"holds a {type(row).__name__}; each row must be an object")
                continue
            column = column or text_files.detected(path, row, COLUMN)
            yield _value(number, row, column)


def _json(path: Path, column: str | None, start: str | None) -> Iterator[Item]:
    size = path.stat().st_size
    if size > WHOLE:
        raise UserError(f"{path}: {size} bytes; a .json file is read whole, at most {WHOLE}: convert it to .jsonl")
    data = path.read_bytes()
    if text_files.is_utf16(data):
        raise UserError(f"{path}: {text_files.UTF16}")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 at byte {error.start} of the file; save it as UTF-8") from None
    reader = text_files.READERS[".json"]
    if not text.strip() or reader is None:
        return
    for number, row in enumerate(reader(path, text), start=1):
        column = column or text_files.detected(path, row.columns, COLUMN)
        yield _value(number, row.columns, column)


def _csv(path: Path, column: str | None, start: str | None) -> Iterator[Item]:
    def text() -> Iterator[str]:
        for number, line in _lines(path):
            if isinstance(line, Bad):  # the next row cannot be found: a quote may be unclosed
                raise UserError(f"{path}:{number}: {line.reason}")
            yield line

    csv.field_size_limit(LIMIT)
    lines = text()
    first = next(lines, "")
    reader = csv.reader(chain([first], lines), strict=True, delimiter=text_files.separator(first))
    try:
        names = text_files.column_names(path, next(reader, []))
        if column and names and column not in names:
            raise UserError(f"{path}:1: {_missing(column, names)}")
        for fields in filter(None, reader):
            try:
                row = text_files.cells(names, fields)
            except ValueError as error:
                yield Bad(reader.line_num, str(error))
                continue
            column = column or text_files.detected(path, row, COLUMN)
            yield _value(reader.line_num, row, column)
    except csv.Error as error:
        raise UserError(f"{path}:{reader.line_num}: not CSV ({error}); correct the row; is a quote unclosed?") from None


def _txt(path: Path, column: str | None, start: str | None) -> Iterator[Item]:
    """Yield the file as one text, or, with `start`, a text from each line that it matches to the next."""
    begins = re.compile(start) if start else None
    first, parts, size = 1, list[str](), 0
    for number, line in _lines(path):
        if isinstance(line, Bad):
            yield line
            continue
        if begins and size and begins.search(line.rstrip("\r\n")):
            yield Row(first, "".join(parts))
            first, parts, size = number, [], 0
        if size <= LIMIT:
            parts.append(line)
        elif not begins:
            raise UserError(f"{path}: more than {LIMIT} characters; say with --document-start where documents begin")
        size += len(line) if size or line.strip() else 0
    if size:
        yield Row(first, "".join(parts))


def _parquet(path: Path, column: str | None, start: str | None) -> Iterator[Item]:
    import pyarrow
    from pyarrow import parquet

    if not path.stat().st_size:
        return
    try:
        file = parquet.ParquetFile(path)
        kinds = {field.name: field.type for field in file.schema_arrow}
        texts = {name: "" for name, kind in kinds.items() if str(kind) in ("string", "large_string", "string_view")}
        column = column or text_files.detected(path, texts, COLUMN)
        if column not in texts:
            what = f"column {column!r} is of type {kinds[column]}" if column in kinds else _missing(column, list(kinds))
            raise UserError(f"{path}: {what}; name a column of texts with --column")
        number = 0
        for batch in file.iter_batches(batch_size=64, columns=[column]):
            for scalar in batch.column(0):
                number += 1
                try:
                    yield _value(number, {column: scalar.as_py()}, column)
                except UnicodeDecodeError as error:
                    yield Bad(number, f"not UTF-8 at byte {error.start}; correct or remove the row")
    except (pyarrow.ArrowException, OSError) as error:
        first = str(error).splitlines()[0]
        raise UserError(f"{path}: cannot be read as Parquet ({first}); is it truncated? fetch it again") from None


def _value(number: int, row: dict[str, Any], column: str) -> Item:
    if column not in row:
        return Bad(number, _missing(column, list(row)))
    value = row[column]
    if not isinstance(value, str):
        return Bad(
            number, f"column {column!r} is {value!r:.60}: must be a text; correct the row or name another column"
        )
    return Row(number, value)


def _missing(column: str, have: list[str]) -> str:
    return f"column {column!r} is missing; there is {', '.join(map(repr, have))}: name another column with --column"


READERS: dict[str, Callable[[Path, str | None, str | None], Iterator[Item]]] = {
    ".jsonl": _jsonl,
    ".json": _json,
    ".csv": _csv,
    ".txt": _txt,
    ".parquet": _parquet,
}
