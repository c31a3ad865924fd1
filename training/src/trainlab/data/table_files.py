"""Rows of JSONL, JSON, CSV and Parquet files, one by one in bounded memory; used by text_files.py, row_files.py, table_rows.py, own_questions.py
and plan/. No torch.

An unusable row is `Bad`, so that the caller decides (`trainlab prepare --skip-bad`). What makes the whole file unusable raises
UserError.
"""

import codecs
import csv
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator
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
OBJECT = "each row must be an object"
UTF16 = "is UTF-16; save it as UTF-8"
SEPARATORS = ",;\t"
"""Of the columns of a CSV file. Spreadsheets write ; or tabs where the comma is the decimal sign."""


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


def records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line or row number, columns) of a table, as far as it is asked. Raises UserError for the first row that cannot be read."""
    reader = TABLES.get(path.suffix.lower())
    if reader is None:
        raise UserError(f"{path}: a table ends in {', '.join(TABLES)}; rename or convert it")
    try:
        yield from good(path, reader(path))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; correct the path") from None


def listed(path: Path, suffixes: Collection[str], pattern: str = "*") -> list[Path]:
    """Return the file, or the files in a folder that `pattern` matches, sorted; raises UserError if none has one of the suffixes."""
    if path.is_dir():
        files = sorted(file for file in path.glob(pattern) if file.is_file() and file.suffix.lower() in suffixes)
        if not files:
            raise UserError(f"{path}: no file that ends in {', '.join(suffixes)}; put one there or correct the path")
        return files
    if path.suffix.lower() not in suffixes:
        raise UserError(f"{path}: must end in {', '.join(suffixes)}; rename or convert it")
    return [path]


def good(path: Path, items: Iterable[T | Bad]) -> Iterator[T]:
    """Yield the usable rows; raises UserError for the first other one."""
    for item in items:
        if isinstance(item, Bad):
            raise UserError(f"{at(path, item.number)}: {item.reason}")
        yield item


def cell(row: dict[str, Any], column: str, key: str) -> str:
    """Return the text in a column; raises ValueError, which says that `key` names the column, if there is none."""
    if column not in row:
        raise ValueError(missing(column, list(row), key))
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


def missing(column: str, have: list[str], key: str) -> str:
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


def lines(path: Path) -> Iterator[Item]:
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
            item: Item = Bad(number, f"a line of {MAX_LINE} bytes or more; {CUT}")
            if not long:
                try:
                    item = Row(number, line.decode("utf-8").removeprefix("\ufeff" if number == 1 else ""))
                except UnicodeDecodeError as error:
                    item = Bad(number, f"not UTF-8 at byte {offset + error.start} of the file; save it as UTF-8")
            yield item
            offset += len(line)


class _Twice(ValueError):
    """An object has a key twice, of which json keeps the last value."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object; raises _Twice."""
    row = dict(pairs)
    if len(row) != len(pairs):
        names = [pair[0] for pair in pairs]
        twice = next(name for name in row if names.count(name) > 1)
        raise _Twice(f"key {twice!r} is in one object twice; remove one of the two")
    return row


_DECODER = json.JSONDecoder(object_pairs_hook=_object)  # as fast as json.loads, within 15 percent


def _jsonl(path: Path) -> Iterator[Record]:
    for line in lines(path):
        if isinstance(line, Bad):
            yield line
        elif line.text.strip():
            try:
                row = _DECODER.decode(line.text)
            except _Twice as error:
                yield Bad(line.number, str(error))
                continue
            except (ValueError, RecursionError) as error:
                why = f"not JSON ({error}); the line is truncated or invalid: correct or remove it"
                yield Bad(line.number, why)
                continue
            yield _record(line.number, row)


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
        rows = _DECODER.decode(text)
    except _Twice as error:
        raise UserError(f"{path}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"{path}:{getattr(error, 'lineno', 1)}: not JSON ({error}); the file is truncated or invalid, or has one "
            "object per line (then rename it to .jsonl)"
        ) from None
    if not isinstance(rows, list):
        raise UserError(f"{path}: holds a {type(rows).__name__}; must be a list of objects")
    yield from (_record(number, row) for number, row in enumerate(rows, start=1))


def _record(number: int, row: Any) -> Record:
    return (number, row) if isinstance(row, dict) else Bad(number, f"holds a {type(row).__name__}; {OBJECT}")


_SAID = re.compile(r"\"?sep=(.)\"?\s*")  # what spreadsheets read as the separator
_LINE_ENDS = re.compile(r"(?<=\r)(?!\n)")  # CR alone; in quotes the parts are joined again


def _csv(path: Path) -> Iterator[Record]:
    def parts() -> Iterator[str]:
        for line in good(path, lines(path)):  # after a bad line the next row cannot be found: a quote may be unclosed
            yield from filter(None, _LINE_ENDS.split(line.text))

    csv.field_size_limit(MAX_CHARACTERS)
    rest = parts()
    begin = list(islice(rest, 2))
    if match := _SAID.fullmatch(begin[0] if begin else ""):
        sign, begin = match[1], begin[1:]
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
        if "field limit" in str(error):
            raise UserError(
                f"{path}:{reader.line_num}: a field of more than {MAX_CHARACTERS} characters; {CUT}, or close its quote"
            ) from None
        raise UserError(f"{path}:{reader.line_num}: not CSV ({error}); correct the row; is a quote unclosed?") from None


@contextmanager
def parquet_file(path: Path) -> Iterator[Any]:
    """Open a Parquet file; what cannot be read raises UserError."""
    import pyarrow
    from pyarrow import parquet

    try:
        yield parquet.ParquetFile(path)
    except (pyarrow.ArrowException, OSError) as error:
        first = str(error).splitlines()[0]
        raise UserError(f"{path}: cannot be read as Parquet ({first}); is it truncated? fetch it again") from None


def parquet_rows(path: Path, columns: list[str] | None = None) -> Iterator[Record]:
    number = 0
    if not path.stat().st_size:
        return
    with parquet_file(path) as file:
        for batch in file.iter_batches(batch_size=64, columns=columns):
            for row in zip(*batch.columns, strict=True):
                number += 1
                try:
                    yield number, {name: cell.as_py() for name, cell in zip(batch.schema.names, row, strict=True)}
                except UnicodeDecodeError as error:
                    yield Bad(number, f"not UTF-8 at byte {error.start}; correct or remove the row")


TABLES: dict[str, Callable[[Path], Iterator[Record]]] = {
    ".jsonl": _jsonl,
    ".json": _json,
    ".csv": _csv,
    ".parquet": parquet_rows,
}
