"""Step 1: rows of the sources, cleaned, as Parquet shards with a digest of each text; used by pipeline.py.

Shard N is clean-N.parquet (text; row groups of at most about GROUP characters), exact-N.bin (XXH3-128 of each text, 16 bytes) and
clean-N.json, written last: where its rows came from, what was dropped, where the next shard begins. A stopped run
resumes after the last clean-N.json, and makes the same shards as one that was never stopped."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow
from pyarrow import parquet

from trainlab import files
from trainlab.config.types import TOPICS
from trainlab.data import table_files, text_files
from trainlab.data.prepare.clean import cleaned
from trainlab.data.prepare.options import Options
from trainlab.data.prepare.workers import Workers
from trainlab.data.table_files import Bad, Item, Row, at
from trainlab.data.text_files import Keys
from trainlab.errors import UserError
from trainlab.progress import Progress

OPTIONS = Keys("--column", "--document-start")
SCHEMA = pyarrow.schema([("text", pyarrow.large_string())])
GROUP = 1 << 18  # characters of a row group, which is tokenized at once
MAX_LISTED = 100  # bad rows that the report names


@dataclass(frozen=True)
class Source:
    """A file or the topics of Python's manual, and its name wherever the file is."""

    path: Path
    name: str


def sources_of(names: Sequence[str]) -> list[Source]:
    """Return the files named, those of folders sorted by name; raises UserError for missing ones."""
    sources: list[Source] = []
    for name in names:
        path = Path(name)
        if name == TOPICS:
            sources.append(Source(path, path.name))
        elif not path.exists():
            raise UserError(f"{path}: no such file or folder; correct the path")
        else:
            root = path if path.is_dir() else path.parent
            sources += [
                Source(p, p.relative_to(root).as_posix()) for p in table_files.listed(path, text_files.SUFFIXES, "**/*")
            ]
    return sources


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

        yield from (Row(number, topic.text) for number, topic in enumerate(topics(), start=1))
    else:
        yield from text_files.texts(source.path, column, start, OPTIONS)


@dataclass
class Shard:
    """Contents of clean-N.json; `next` is where the next shard starts: source, and its rows already done."""

    documents: int = 0
    next: tuple[int, int] = (0, 0)
    done: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    bad: list[str] = field(default_factory=list)


def file_name(work: Path, what: str, ordinal: int, suffix: str) -> Path:
    """Return the path of a file of shard `ordinal`."""
    return work / f"{what}-{ordinal:05d}.{suffix}"


def ingest(
    sources: Sequence[Source], options: Options, work: Path, workers: Workers, progress: Progress
) -> list[Shard]:
    """Write the missing shards; return all. Raises UserError for more bad rows than --skip-bad."""
    shards = _existing(work)
    if not (shards and shards[-1].done):
        items = _items(sources, options, shards[-1].next if shards else (0, 0))
        clean = partial(_cleaned, min_chars=options.min_chars, without=options.without)
        stream = (each for batch in workers.map(clean, _batches(items)) for each in zip(*batch, strict=True))
        shards += _shards(stream, sources, options, work, shards, progress)
    return shards


def texts(work: Path, ordinal: int) -> Iterator[list[str]]:
    """Yield the texts of a shard, one row group at a time."""
    with parquet.ParquetFile(file_name(work, "clean", ordinal, "parquet")) as file:
        for group in range(file.num_row_groups):
            yield file.read_row_group(group, columns=["text"]).column(0).to_pylist()


def _existing(work: Path) -> list[Shard]:
    shards: list[Shard] = []
    while (marker := file_name(work, "clean", len(shards), "json")).exists():
        value: dict[str, Any] = files.read_json(marker)
        shards.append(Shard(**{**value, "next": tuple(value["next"]), "counts": Counter(value["counts"])}))
    return shards


def _items(sources: Sequence[Source], options: Options, at: tuple[int, int]) -> Iterator[tuple[int, int, Item]]:
    """Yield (source, its rows done by then, row) from a place on."""
    for index in range(at[0], len(sources)):
        skip = at[1] if index == at[0] else 0
        for done, item in enumerate(rows(sources[index], options.column, options.document_start), start=1):
            if done > skip:
                yield index, done, item


Place = tuple[int, int, Item]
Cleaned = tuple[str, str | None, bytes] | None


def _batches(items: Iterator[Place]) -> Iterator[list[Place]]:
    """Yield rows in lists of about GROUP characters."""
    batch, size = list[Place](), 0
    for place in items:
        batch.append(place)
        size += len(place[2].text) if isinstance(place[2], Row) else 0
        if size >= GROUP:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _cleaned(batch: list[Place], min_chars: int, without: tuple[str, ...]) -> list[Cleaned]:
    """Return what clean.py makes of each row, None of a bad one."""
    done = iter(cleaned([place[2].text for place in batch if isinstance(place[2], Row)], min_chars, without))
    return [next(done) if isinstance(place[2], Row) else None for place in batch]


def _shards(
    stream: Iterator[tuple[Place, Cleaned]],
    sources: Sequence[Source],
    options: Options,
    work: Path,
    before: Sequence[Shard],
    progress: Progress,
) -> Iterator[Shard]:
    """Write the shards that follow those `before`, and yield each when it is complete on disk."""
    bad = sum(shard.counts["bad"] for shard in before)
    read = sum(shard.counts["read"] for shard in before)
    ordinal, place = len(before), before[-1].next if before else (0, 0)
    while True:
        shard = Shard(next=place, done=True)
        with (
            files.atomic_write(file_name(work, "clean", ordinal, "parquet")) as table,
            files.atomic_write(file_name(work, "exact", ordinal, "bin")) as digests,
            parquet.ParquetWriter(table, SCHEMA, compression="zstd") as writer,
        ):
            group, size = list[str](), 0
            for (index, rows_done, item), made in stream:
                shard.next = (index, rows_done)
                read += 1
                bad += isinstance(item, Bad)
                progress.status(f"clean: {read} rows read, in {sources[index].name}")
                used = _use(item, made, sources[index], bad, options, shard)
                if used is not None:
                    group.append(used[0])
                    digests.write(used[1])
                    size += len(used[0])
                if size >= GROUP:
                    writer.write_table(pyarrow.table({"text": group}, schema=SCHEMA))
                    group, size = [], 0
                if shard.counts["characters_read"] >= options.shard_chars:
                    shard.done = False
                    break
            if group:
                writer.write_table(pyarrow.table({"text": group}, schema=SCHEMA))
        place = shard.next
        marker = {**asdict(shard), "counts": dict(sorted(shard.counts.items()))}
        files.write_json(file_name(work, "clean", ordinal, "json"), marker)
        ordinal += 1
        yield shard
        if shard.done:
            return


def _use(
    item: Item, made: Cleaned, source: Source, bad: int, options: Options, shard: Shard
) -> tuple[str, bytes] | None:
    """Return the clean text of a row and its digest, None if it is dropped; counts it. Raises UserError for one bad row too many."""
    shard.counts["read"] += 1
    if isinstance(item, Bad):
        sentence = f"{at(source.path, item.number)}: {item.reason}"
        if bad > options.skip_bad:
            more = f"; {options.skip_bad} were already skipped" if options.skip_bad else ""
            raise UserError(f"{sentence} (or skip and count such rows with --skip-bad N{more})")
        shard.counts["bad"] += 1
        if len(shard.bad) < MAX_LISTED:
            shard.bad.append(sentence)
        return None
    shard.counts["characters_read"] += len(item.text)
    assert made is not None
    text, rule, digest = made
    if rule:
        shard.counts[f"dropped.{rule}"] += 1
        return None
    shard.documents += 1
    return text, digest
