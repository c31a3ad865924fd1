"""Documents from JSONL, JSON, CSV and TXT files, with file and place in every error; used by corpus.py. No torch."""

import codecs
import csv
import io
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainlab.errors import UserError

COLUMN = "phase.text.column"
UTF16 = "is UTF-16; save it as UTF-8"
SEPARATORS = ",;\t"
"""Of the columns of a CSV file. Spreadsheets write ; or tabs where the comma is the decimal sign."""


@dataclass(frozen=True)
class Document:
    """One text; `id` says where it came from."""

    id: str
    text: str


@dataclass(frozen=True)
class Row:
    """One row of a table: where it is, and its columns."""

    at: str
    columns: dict[str, Any]


def documents(path: Path, column: str | None, start: str | None) -> tuple[list[Document], int]:
    """Return the documents in a file, or in all files of a folder, and how many rows without any text were dropped
    (with `start` they are part of the documents).

    `column` and `start` come from the block `text:`. Raises UserError for unreadable input.
    """
    found: list[Document] = []
    blank = 0
    for name in _files(path):
        texts = [(at.removeprefix(f"{name.parent}/"), text) for at, text in _texts(name, column, start)]
        filled = [(at, text) for at, text in texts if text.strip()]
        if not filled:
            raise UserError(f"{name}: holds no text; remove the file, or name another column with {COLUMN}")
        if start is None:
            blank += len(texts) - len(filled)
            found += [Document(at, text) for at, text in filled]
        else:
            found += _joined(texts, start)
    return found, blank


def _files(path: Path) -> list[Path]:
    if path.is_file():
        if path.suffix.lower() not in READERS:
            raise UserError(f"{path}: a file of running text must end in {', '.join(READERS)}; rename or convert it")
        return [path]
    names = sorted(one for one in path.glob("*") if one.is_file() and one.suffix.lower() in READERS)
    if not names:
        raise UserError(f"{path}: no file that ends in {', '.join(READERS)}; put text there or correct the path")
    return names


def _texts(path: Path, column: str | None, start: str | None) -> Iterator[tuple[str, str]]:
    """Yield (place, text) of each row; a TXT file is one row, or, with `start`, each of its lines is."""
    if READERS[path.suffix.lower()] is None:
        text = _decoded(path)
        lines = [text] if start is None else io.StringIO(text, newline="\n")
        yield from ((f"{path}:{number}", line) for number, line in enumerate(lines, start=1))
        return
    rows = table(path)
    wanted = column or detected(path, rows[0].columns, COLUMN)
    yield from ((row.at, cell(row, wanted, COLUMN)) for row in rows)


def cell(row: Row, column: str, key: str) -> str:
    """Return the text in a column; raises UserError, which says that `key` names the column, if there is none."""
    if column not in row.columns:
        raise UserError(
            f"{row.at}: column {column!r} is missing; the row has {', '.join(map(repr, row.columns))}: correct the "
            f"row, or name another column with {key}"
        )
    value = row.columns[column]
    if not isinstance(value, str):
        raise UserError(f"{row.at}: column {column!r} is {value!r:.60}: must be a text; name another with {key}")
    if fault := half_pair(value):
        raise UserError(f"{row.at}: column {column!r}: {fault}; correct or remove the row")
    return value


def half_pair(text: str) -> str | None:
    """Return where a text holds half of a surrogate pair, which JSON can encode and UTF-8 cannot; None if nowhere."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        return f"half a surrogate pair at character {error.start}"
    return None


def parsed(text: str) -> Any:
    """Return what a JSON text holds; raises ValueError, also for one nested too deep, of which json raises RecursionError."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError(str(error)) from None


def is_utf16(start: bytes) -> bool:
    """True for bytes that begin as UTF-16 does: with its mark, or with a letter of ASCII in two bytes."""
    return start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in start[:2]


def separator(header: str) -> str:
    """Return what separates the columns of a CSV file whose first line this is."""
    return next((sign for sign in SEPARATORS if sign in header), SEPARATORS[0])


def column_names(path: Path, header: list[str]) -> list[str]:
    """Return the names in the header of a CSV file; raises UserError for one that is there twice, but for the empty one."""
    names = [name.strip() for name in header]
    given = [name for name in names if name]
    if len(set(given)) != len(given):
        raise UserError(f"{path}:1: the header {names} names a column twice; give each its own name")
    return names


def cells(names: list[str], fields: list[str]) -> dict[str, str]:
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


def table(path: Path) -> list[Row]:
    """Return the rows of a .jsonl, .json or .csv file, at least one. Raises UserError for unreadable input."""
    read, text = READERS.get(path.suffix.lower()), _decoded(path)
    if read is None:
        raise UserError(f"{path}: a table ends in {', '.join(TABLES)}; rename or convert it")
    rows = list(read(path, text))
    if not rows:
        raise UserError(f"{path}: has no rows; remove it or put text into it")
    return rows


def _decoded(path: Path) -> str:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; correct the path") from None
    if not data.strip():
        raise UserError(f"{path}: is empty; remove it or put text into it")
    if is_utf16(data):
        raise UserError(f"{path}: {UTF16}")
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path}:{line}: not UTF-8 at byte {error.start} of the file; save it as UTF-8") from None


def detected(path: Path, first: dict[str, Any], key: str) -> str:
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


def _jsonl(path: Path, text: str) -> Iterator[Row]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = parsed(line)
        except ValueError as error:
            raise UserError(
                f"{path}:{number}: not JSON ({error}); the line is truncated or invalid: correct or remove it"
            ) from None
        yield _object(f"{path}:{number}", row)


def _json(path: Path, text: str) -> Iterator[Row]:
    try:
        rows = parsed(text)
    except ValueError as error:
        raise UserError(
            f"{path}:{getattr(error, 'lineno', 1)}: not JSON ({error}); the file is truncated or invalid, or has one "
            "object per line (then rename it to .jsonl)"
        ) from None
    if not isinstance(rows, list):
        raise UserError(f"{path}: holds a {type(rows).__name__}; must be a list of objects")
    yield from (_object(f"{path}, entry {number}", row) for number, row in enumerate(rows, start=1))


def _csv(path: Path, text: str) -> Iterator[Row]:
    csv.field_size_limit(max(csv.field_size_limit(), len(text) + 1))  # a field may be a whole document
    sign = separator(text.partition("\n")[0])
    if sign != SEPARATORS[0]:
        print(f"trainlab: {path}: columns are separated by {sign!r}, as in its first line", file=sys.stderr, flush=True)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=sign)
    try:
        names = column_names(path, next(reader, []))
        for fields in filter(None, reader):
            yield Row(f"{path}:{reader.line_num}", cells(names, fields))
    except ValueError as error:
        raise UserError(f"{path}:{reader.line_num}: {error}") from None
    except csv.Error as error:
        raise UserError(f"{path}:{reader.line_num}: not CSV ({error}); correct the row") from None


def _object(at: str, row: Any) -> Row:
    if not isinstance(row, dict):
        raise UserError(f"{at}: holds a {type(row).__name__}; each row must be an object")
    return Row(at, row)


def _joined(texts: Iterable[tuple[str, str]], start: str) -> list[Document]:
    """Join rows up to the next one that `start` matches; lines keep their line ends, other rows get one."""
    begins = re.compile(start)
    found: list[Document] = []
    place, parts = "", ""
    for at, text in texts:
        if parts.strip() and begins.search(text.rstrip("\r\n")):
            found.append(Document(place, parts))
            parts = ""
        if not parts:
            place = at
        parts += text if text.endswith("\n") else text + "\n"
    return [*found, Document(place, parts)] if parts.strip() else found


READERS: dict[str, Callable[[Path, str], Iterator[Row]] | None] = {
    ".jsonl": _jsonl,
    ".json": _json,
    ".csv": _csv,
    ".txt": None,
}
TABLES = [suffix for suffix, read in READERS.items() if read]
