"""Step 1: rows of the sources, cleaned, as shards of compressed texts with a digest of each; used by pipeline.py.

Shard N is text-N.bin (Arrow streams with zstd, each of the texts of about GROUP characters that were read), exact-N.bin (XXH3-128 of each
text, 16 bytes) and text-N.json, written last: the bytes and texts of each stream, what was dropped, where the next shard begins. A stopped
run resumes after the last text-N.json, and makes the same shards as one that was never stopped.

One process reads and writes, others clean and compress: what it does for each row, no number of processors makes faster."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow
from pyarrow import ipc

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
GROUP = (
    1 << 20
)  # characters of a group of texts, which one process works on: handing one over takes the first process half a millisecond
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
    """Contents of text-N.json; `next` is where the next shard starts: source, and its rows already done."""

    documents: int = 0
    groups: list[tuple[int, int]] = field(default_factory=list)  # bytes and texts of each
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
        stream = workers.map(clean, _batches(items, options.shard_chars))
        shards += _shards(stream, sources, options, work, shards, progress)
    return shards


@dataclass(frozen=True)
class Group:
    """Texts of a shard, compressed: where they are."""

    path: Path
    offset: int
    size: int
    documents: int

    def texts(self) -> list[str]:
        """Return the texts."""
        with self.path.open("rb") as stream:
            stream.seek(self.offset)
            content = stream.read(self.size)
        with ipc.open_stream(content) as reader:
            texts: list[str] = reader.read_all().column(0).to_pylist()
        return texts


def groups(work: Path, ordinal: int, shard: Shard) -> Iterator[Group]:
    """Yield the groups of texts of a shard."""
    offset = 0
    for size, documents in shard.groups:
        yield Group(file_name(work, "text", ordinal, "bin"), offset, size, documents)
        offset += size


def _compressed(texts: list[str]) -> bytes:
    sink = pyarrow.BufferOutputStream()
    with ipc.new_stream(sink, SCHEMA, options=ipc.IpcWriteOptions(compression="zstd", use_threads=False)) as writer:
        writer.write_table(pyarrow.table({"text": texts}, schema=SCHEMA))
    return bytes(sink.getvalue())


def _existing(work: Path) -> list[Shard]:
    shards: list[Shard] = []
    while (marker := file_name(work, "text", len(shards), "json")).exists():
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


@dataclass
class Batch:
    """What is known of rows whose texts another process cleans: how many, up to where, and those that are unusable."""

    next: tuple[int, int] = (0, 0)
    rows: int = 0
    characters: int = 0
    bad: list[tuple[int, Bad]] = field(default_factory=list)  # each with its source
    ends: bool = False  # a shard


def _batches(items: Iterator[tuple[int, int, Item]], shard_chars: int) -> Iterator[tuple[Batch, list[str]]]:
    """Yield rows and their texts, of about GROUP characters; none has rows of two shards."""
    batch, texts, shard = Batch(), list[str](), 0
    for index, done, item in items:
        batch.next = (index, done)
        batch.rows += 1
        if isinstance(item, Row):
            texts.append(item.text)
            batch.characters += len(item.text)
        else:
            batch.bad.append((index, item))
        batch.ends = shard + batch.characters >= shard_chars
        if batch.ends or batch.characters >= GROUP:
            yield batch, texts
            shard = 0 if batch.ends else shard + batch.characters
            batch, texts = Batch(), []
    if batch.rows:
        yield batch, texts


@dataclass(frozen=True)
class Cleaned:
    """The texts of a batch that are kept, compressed, their digests, how many, and how many each rule dropped."""

    content: bytes
    digests: bytes
    documents: int
    dropped: Counter[str]


def _cleaned(texts: list[str], min_chars: int, without: tuple[str, ...]) -> Cleaned:
    """Return what clean.py makes of texts."""
    made = cleaned(texts, min_chars, without)
    kept = [text for text, rule, _digest in made if not rule]
    digests = b"".join(digest for _text, rule, digest in made if not rule)
    dropped = Counter(f"dropped.{rule}" for _text, rule, _digest in made if rule)
    return Cleaned(_compressed(kept) if kept else b"", digests, len(kept), dropped)


def _shards(
    stream: Iterator[tuple[Batch, Cleaned]],
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
            files.atomic_write(file_name(work, "text", ordinal, "bin")) as texts,
            files.atomic_write(file_name(work, "exact", ordinal, "bin")) as digests,
        ):
            for batch, made in stream:
                read += batch.rows
                progress.status(f"clean: {read} rows read, in {sources[batch.next[0]].name}")
                bad = _skip(batch.bad, bad, sources, options, shard)
                shard.next = batch.next
                shard.documents += made.documents
                shard.counts.update(read=batch.rows, characters_read=batch.characters)
                shard.counts += made.dropped
                if made.documents:
                    texts.write(made.content)
                    digests.write(made.digests)
                    shard.groups.append((len(made.content), made.documents))
                if batch.ends:
                    shard.done = False
                    break
        place = shard.next
        marker = {**asdict(shard), "counts": dict(sorted(shard.counts.items()))}
        files.write_json(file_name(work, "text", ordinal, "json"), marker)
        ordinal += 1
        yield shard
        if shard.done:
            return


def _skip(rows: list[tuple[int, Bad]], bad: int, sources: Sequence[Source], options: Options, shard: Shard) -> int:
    """Count unusable rows after `bad` others; return how many there are by then. Raises UserError for one too many."""
    for index, row in rows:
        bad += 1
        sentence = f"{at(sources[index].path, row.number)}: {row.reason}"
        if bad > options.skip_bad:
            more = f"; {options.skip_bad} were already skipped" if options.skip_bad else ""
            raise UserError(f"{sentence} (or skip and count such rows with --skip-bad N{more})")
        shard.counts["bad"] += 1
        if len(shard.bad) < MAX_LISTED:
            shard.bad.append(sentence)
    return bad
