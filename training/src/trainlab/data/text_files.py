"""Texts and tables from JSONL, JSON, CSV, TXT and Parquet, row by row in bounded memory; used by corpus.py, own_questions.py and prepare/. No torch.

An unusable row is `Bad`, so that the caller decides (`trainlab prepare --skip-bad`). What makes the whole file unusable raises
UserError.
"""

import codecs
import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar

from trainlab.errors import UserError
from trainlab.progress import note

T = TypeVar("T")
MAX_CHARACTERS = 1 << 22  # characters of one document: tokenizing takes some 150 bytes per character
MAX_LINE = 4 * MAX_CHARACTERS  # of one line; UTF-8 has at most 4 bytes per character
MAX_JSON = 1 << 26  # bytes of a .json file, which is read whole
CUT = "split it into documents"
EMPTY = "remove it or put text into it"
UTF16 = "is UTF-16; save it as UTF-8"
SEPARATORS = ",;\t"
"""Of the columns of a CSV file. Spreadsheets write ; or tabs where the comma is the decimal sign."""


@dataclass(frozen=True)
class Document:
    """One text; `id` says where it came from."""

    id: str
    text: str


@dataclass(frozen=True)
class Keys:
    """What names the column of the texts, and where documents begin in a TXT file, for messages."""

    column: str
    start: str


PHASE = Keys("phase.text.column", "phase.text.document_start")


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
Record = tuple[int, dict[str, Any]] | Bad


def at(path: Path, number: int) -> str:
    """Return where row `number` of a file is, for messages; 0 is the file itself."""
    if not number:
        return str(path)
    return f"{path}:{number}" if path.suffix.lower() in (".jsonl", ".csv", ".txt") else f"{path}, row {number}"


def listed(path: Path, pattern: str) -> list[Path]:
    """Return the file, or the files of text in a folder that `pattern` matches, sorted; raises UserError if there are none."""
    if path.is_dir():
        files = sorted(file for file in path.glob(pattern) if file.is_file() and file.suffix.lower() in SUFFIXES)
        if not files:
            raise UserError(f"{path}: no file that ends in {', '.join(SUFFIXES)}; put text there or correct the path")
        return files
    if path.suffix.lower() not in SUFFIXES:
        raise UserError(f"{path}: must end in {', '.join(SUFFIXES)}; rename or convert it")
    return [path]


def documents(path: Path, column: str | None, start: str | None) -> tuple[list[Document], int]:
    """Return the documents in a file, or in all files of a folder, and how many rows without any text were dropped
    (with `start` they are part of the documents).

    `column` and `start` come from the block `text:`. Raises UserError for unreadable input.
    """
    documents: list[Document] = []
    blank = 0
    for name in listed(path, "*"):
        items = _good(name, texts(name, column, start, PHASE))
        if start and name.suffix.lower() != ".txt":  # whose documents `texts` has split
            items = _good(name, _joined((Row(row.number, row.text.removesuffix("\n") + "\n") for row in items), start))
        rows = list(items)
        filled = [row for row in rows if row.text.strip()]
        if not filled:
            raise UserError(f"{name}: holds no text; remove the file, or name another column with {PHASE.column}")
        blank += len(rows) - len(filled)
        documents += [Document(at(name, row.number).removeprefix(f"{name.parent}/"), row.text) for row in filled]
    return documents, blank


def texts(path: Path, column: str | None, start: str | None, keys: Keys) -> Iterator[Item]:
    """Yield the texts of a file; `column` names their column, `start` matches the lines of a TXT file that begin a document."""
    empty = True
    try:
        items = _txt(path, start, keys) if path.suffix.lower() == ".txt" else _cells(path, column, keys)
        for item in items:
            empty = False
            if isinstance(item, Row) and len(item.text) > MAX_CHARACTERS:
                item = Bad(item.number, f"{len(item.text)} characters, the limit is {MAX_CHARACTERS}; {CUT}")
            yield item
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; correct the path") from None
    if empty:
        yield Bad(0, f"is empty; {EMPTY}")


def records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line or row number, columns) of a table, as far as it is asked. Raises UserError for the first row that cannot be read."""
    reader = TABLES.get(path.suffix.lower())
    if reader is None:
        raise UserError(f"{path}: a table ends in {', '.join(TABLES)}; rename or convert it")
    try:
        yield from _good(path, reader(path))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; correct the path") from None


def _good(path: Path, items: Iterable[T | Bad]) -> Iterator[T]:
    """Yield the usable rows; raises UserError for the first other one."""
    for item in items:
        if isinstance(item, Bad):
            raise UserError(f"{at(path, item.number)}: {item.reason}")
        yield item


def cell(row: dict[str, Any], column: str, key: str) -> str:
    """Return the text in a column; raises ValueError, which says that `key` names the column, if there is none."""
    if column not in row:
        raise ValueError(_missing(column, list(row), key))
    value = row[column]
    if not isinstance(value, str):
        raise ValueError(
            f"column {column!r} is {value!r:.60}: must be a text; correct the row, or name another column with {key}"
        )
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:  # JSON can encode what UTF-8 cannot
        where = f"half a surrogate pair at character {error.start}"
        raise ValueError(f"column {column!r}: {where}; correct or remove the row") from None
    return value


def _missing(column: str, have: list[str], key: str) -> str:
    return f"column {column!r} is missing; there is {', '.join(map(repr, have))}: name another column with {key}"


def _is_utf16(start: bytes) -> bool:
    """True for bytes that begin as UTF-16 does: with its mark, or with a letter of ASCII in two bytes."""
    return start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in start[:2]


_AROUND = re.compile(r"^[\s\ufeff\u200b-\u200f\u2060]+|[\s\ufeff\u200b-\u200f\u2060]+$")  # blanks, seen or not


def _separator(header: str, row: str = "") -> str:
    """Return what separates the columns of a CSV file that begins with these two lines: what divides both alike, signs in quotes
    left out."""
    parts = {sign: [len(next(csv.reader([line], delimiter=sign), [])) for line in (header, row)] for sign in SEPARATORS}
    divides = [sign for sign in SEPARATORS if parts[sign][0] > 1]
    return next((sign for sign in divides if len(set(parts[sign])) == 1), (divides or [*SEPARATORS])[0])


def _column_names(path: Path, header: list[str]) -> list[str]:
    """Return the names in the header of a CSV file; raises UserError for one that is there twice, but for the empty one."""
    names = [_AROUND.sub("", name) for name in header]
    filled = [name for name in names if name]
    if len(set(filled)) != len(filled):
        raise UserError(f"{path}:1: the header {names} names a column twice; give each its own name")
    return names


def _fields_of(names: list[str], fields: list[str]) -> dict[str, str]:
    """Return a row of a CSV file by column; raises ValueError, with the remedy, if it has more or fewer fields than the header.

    Spreadsheets add empty columns without a name on the right, not to all rows alike, and rows of empty cells.
    """
    if not any(map(str.strip, fields)):
        fields = [""] * len(names)
    more, missing = fields[len(names) :], names[len(fields) :]
    if any(map(str.strip, more)) or any(missing):
        raise ValueError(
            f"the row has {len(fields)} fields, the header {len(names)}; put texts with commas or line breaks in quotes"
        )
    return {name: field for name, field in zip(names, [*fields, *missing], strict=False) if name or field.strip()}


def _detected(path: Path, first: dict[str, Any], key: str) -> str:
    """Return the column named text, else the only one that holds text in the first row.

    Raises UserError, which says that `key` names a column, if there is neither.
    """
    if "text" in first:
        return "text"
    texts = [name for name, value in first.items() if isinstance(value, str)]
    if len(texts) == 1:
        return texts[0]
    what = f"the columns {', '.join(map(repr, texts))} hold texts" if texts else "no column holds texts"
    raise UserError(f"{path}: {what} and none is called text; name the right one with {key}")


def _cells(path: Path, column: str | None, keys: Keys) -> Iterator[Item]:
    """Yield the texts in one column of a table."""
    records = TABLES[path.suffix.lower()](path)
    if path.suffix.lower() == ".parquet" and path.stat().st_size:
        column = _parquet_column(path, column, keys)
        records = _parquet(path, [column])
    for record in records:
        if isinstance(record, Bad):
            yield record
            continue
        number, row = record
        column = column or _detected(path, row, keys.column)
        try:
            yield Row(number, cell(row, column, keys.column))
        except ValueError as error:
            yield Bad(number, str(error))


def _lines(path: Path) -> Iterator[tuple[int, str | Bad]]:
    """Yield each line with its line end; a line too long or not UTF-8 as Bad."""
    offset = 0
    with path.open("rb") as stream:
        for number, line in enumerate(iter(lambda: stream.readline(MAX_LINE), b""), start=1):
            long = len(line) == MAX_LINE and not line.endswith(b"\n")
            while long and (more := stream.readline(MAX_LINE)):
                offset += len(more)
                if more.endswith(b"\n"):
                    break
            if number == 1 and _is_utf16(line):
                raise UserError(f"{path}: {UTF16}")
            try:
                text: str | Bad = line.decode("utf-8")
                if number == 1:
                    text = str(text).removeprefix("\ufeff")
            except UnicodeDecodeError as error:
                text = Bad(number, f"not UTF-8 at byte {offset + error.start} of the file; save it as UTF-8")
            yield number, Bad(number, f"a line of {MAX_LINE} bytes or more; {CUT}") if long else text
            offset += len(line)


def _jsonl(path: Path) -> Iterator[Record]:
    for number, line in _lines(path):
        if isinstance(line, Bad):
            yield line
        elif line.strip():
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                yield Bad(number, f"not JSON ({error}); the line is truncated or invalid: correct or remove it")
                continue
            yield _object(number, row)


def _json(path: Path) -> Iterator[Record]:
    size = path.stat().st_size
    if size > MAX_JSON:
        raise UserError(f"{path}: {size} bytes; a .json file is read whole, at most {MAX_JSON}: convert it to .jsonl")
    data = path.read_bytes()
    if _is_utf16(data):
        raise UserError(f"{path}: {UTF16}")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path}:{line}: not UTF-8 at byte {error.start} of the file; save it as UTF-8") from None
    if not text.strip():
        return
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"{path}:{getattr(error, 'lineno', 1)}: not JSON ({error}); the file is truncated or invalid, or has one "
            "object per line (then rename it to .jsonl)"
        ) from None
    if not isinstance(rows, list):
        raise UserError(f"{path}: holds a {type(rows).__name__}; must be a list of objects")
    yield from (_object(number, row) for number, row in enumerate(rows, start=1))


def _object(number: int, row: Any) -> Record:
    if not isinstance(row, dict):
        return Bad(number, f"holds a {type(row).__name__}; each row must be an object")
    return number, row


_SAID = re.compile(r"\"?sep=(.)\"?\s*")  # what spreadsheets read as the separator
_LINE_ENDS = re.compile(r"(?<=\r)(?!\n)")  # CR alone; in quotes the parts are joined again


def _csv(path: Path) -> Iterator[Record]:
    def lines() -> Iterator[str]:
        for number, line in _lines(path):
            if isinstance(line, Bad):  # the next row cannot be found: a quote may be unclosed
                raise UserError(f"{path}:{number}: {line.reason}")
            yield from filter(None, _LINE_ENDS.split(line))

    csv.field_size_limit(MAX_CHARACTERS)
    rest = lines()
    begin = list(islice(rest, 2))
    if said := _SAID.fullmatch(begin[0] if begin else ""):
        sign, begin = said[1], begin[1:]
    else:
        sign = _separator(*begin) if begin else SEPARATORS[0]
    if sign != SEPARATORS[0]:
        note(f"{path}: columns are separated by {sign!r}, as in its first line")
    reader = csv.reader(chain(begin, rest), strict=True, delimiter=sign)
    try:
        names = _column_names(path, next(reader, []))
        for fields in filter(None, reader):
            try:
                yield reader.line_num, _fields_of(names, fields)
            except ValueError as error:
                yield Bad(reader.line_num, str(error))
    except csv.Error as error:
        raise UserError(f"{path}:{reader.line_num}: not CSV ({error}); correct the row; is a quote unclosed?") from None


def _txt(path: Path, start: str | None, keys: Keys) -> Iterator[Item]:
    """Yield the file as one text, or, with `start`, a text from each line that it matches to the next."""
    items = (line if isinstance(line, Bad) else Row(number, line) for number, line in _lines(path))
    if start:
        yield from _joined(items, start)
        return
    parts, size = list[str](), 0
    for item in items:
        if isinstance(item, Bad):
            yield item
            continue
        if size > MAX_CHARACTERS:
            raise UserError(
                f"{path}: more than {MAX_CHARACTERS} characters; say with {keys.start} where documents begin"
            )
        parts.append(item.text)
        size += len(item.text)
    if any(map(str.strip, parts)):
        yield Row(1, "".join(parts))


@contextmanager
def _parquet_file(path: Path) -> Iterator[Any]:
    """Open a Parquet file; what cannot be read raises UserError."""
    import pyarrow
    from pyarrow import parquet

    try:
        yield parquet.ParquetFile(path)
    except (pyarrow.ArrowException, OSError) as error:
        first = str(error).splitlines()[0]
        raise UserError(f"{path}: cannot be read as Parquet ({first}); is it truncated? fetch it again") from None


def _parquet_column(path: Path, column: str | None, keys: Keys) -> str:
    with _parquet_file(path) as file:
        kinds = {field.name: str(field.type) for field in file.schema_arrow}
    texts = {name: "" for name, kind in kinds.items() if kind in ("string", "large_string", "string_view")}
    column = column or _detected(path, texts, keys.column)
    if column not in texts:
        have = f"column {column!r} is of type {kinds.get(column)}"
        what = have if column in kinds else _missing(column, list(kinds), keys.column)
        raise UserError(f"{path}: {what}; name a column of texts with {keys.column}")
    return column


def _parquet(path: Path, columns: list[str] | None = None) -> Iterator[Record]:
    number = 0
    if not path.stat().st_size:
        return
    with _parquet_file(path) as file:
        for batch in file.iter_batches(batch_size=64, columns=columns):
            for row in zip(*batch.columns, strict=True):
                number += 1
                try:
                    yield number, {name: cell.as_py() for name, cell in zip(batch.schema.names, row, strict=True)}
                except UnicodeDecodeError as error:
                    yield Bad(number, f"not UTF-8 at byte {error.start}; correct or remove the row")


def _joined(items: Iterable[Item], start: str) -> Iterator[Item]:
    """Join rows up to the next one that `start` matches."""
    begins = re.compile(start)
    first, parts, filled, size = 0, list[str](), False, 0
    for item in items:
        if isinstance(item, Bad):
            yield item
            continue
        if filled and begins.search(item.text.rstrip("\r\n")):
            yield Row(first, "".join(parts))
            parts, filled, size = [], False, 0
        first = first if parts else item.number
        if size <= MAX_CHARACTERS:  # enough for `texts` to refuse it
            parts.append(item.text)
        size += len(item.text)
        filled = filled or bool(item.text.strip())
    if filled:
        yield Row(first, "".join(parts))


TABLES: dict[str, Callable[[Path], Iterator[Record]]] = {
    ".jsonl": _jsonl,
    ".json": _json,
    ".csv": _csv,
    ".parquet": _parquet,
}
SUFFIXES = (".jsonl", ".json", ".csv", ".txt", ".parquet")
