"""Texts of files of all kinds, row by row in bounded memory; used by corpus.py and prepare/. No torch."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainlab.data import table_files
from trainlab.data.table_files import MAX_CHARACTERS, Bad, Item, Row, at, good, lines
from trainlab.errors import UserError


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


def documents(path: Path, column: str | None, start: str | None) -> tuple[list[Document], int]:
    """Return the documents in a file, or in all files of a folder, and how many rows without any text were dropped
    (with `start` they are part of the documents).

    `column` and `start` come from the block `text:`. Raises UserError for unreadable input.
    """
    documents: list[Document] = []
    blank = 0
    for name in table_files.listed(path, SUFFIXES):
        items = good(name, texts(name, column, start, PHASE))
        if start and name.suffix.lower() != ".txt":  # whose documents `texts` has split
            items = good(name, _joined((Row(row.number, row.text.removesuffix("\n") + "\n") for row in items), start))
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
                item = Bad(
                    item.number, f"{len(item.text)} characters, the limit is {MAX_CHARACTERS}; {table_files.CUT}"
                )
            yield item
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; correct the path") from None
    if empty:
        yield Bad(0, f"is empty; {table_files.EMPTY}")


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
    records = table_files.TABLES[path.suffix.lower()](path)
    if path.suffix.lower() == ".parquet" and path.stat().st_size:
        column = _parquet_column(path, column, keys)
        records = table_files.parquet_rows(path, [column])
    for record in records:
        if isinstance(record, Bad):
            yield record
            continue
        number, row = record
        column = column or _detected(path, row, keys.column)
        try:
            yield Row(number, table_files.cell(row, column, keys.column))
        except ValueError as error:
            yield Bad(number, str(error))


def _txt(path: Path, start: str | None, keys: Keys) -> Iterator[Item]:
    """Yield the file as one text, or, with `start`, a text from each line that it matches to the next."""
    if start:
        yield from _joined(lines(path), start)
        return
    parts, size = list[str](), 0
    for item in lines(path):
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


def _parquet_column(path: Path, column: str | None, keys: Keys) -> str:
    with table_files.parquet_file(path) as file:
        kinds = {field.name: str(field.type) for field in file.schema_arrow}
    texts = {name: "" for name, kind in kinds.items() if kind in ("string", "large_string", "string_view")}
    column = column or _detected(path, texts, keys.column)
    if column not in texts:
        have = f"column {column!r} is of type {kinds.get(column)}"
        what = have if column in kinds else table_files.missing(column, list(kinds), keys.column)
        raise UserError(f"{path}: {what}; name a column of texts with {keys.column}")
    return column


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


SUFFIXES = (".jsonl", ".json", ".csv", ".txt", ".parquet")
