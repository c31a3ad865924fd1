"""The sources of `trainlab prepare`: files and folders of text, or the topics of Python's manual; used by ingest.py."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainlab import files
from trainlab.config.types import TOPICS
from trainlab.data import text_files
from trainlab.data.text_files import Item, Keys, Row
from trainlab.errors import UserError

OPTIONS = Keys("--column", "--document-start")


@dataclass(frozen=True)
class Source:
    """A file, and the name that its documents carry wherever the file is."""

    path: Path
    name: str

    def at(self, number: int) -> str:
        """Return where row `number` is, for messages; 0 is the file itself."""
        return text_files.at(self.path, number)


def sources(given: Sequence[str]) -> list[Source]:
    """Return the files named, those of folders sorted by name; raises UserError for missing ones."""
    found: list[Source] = []
    for one in given:
        path = Path(one)
        if one == TOPICS:
            found.append(Source(path, path.name))
        elif not path.exists():
            raise UserError(f"{path}: no such file or folder; correct the path")
        else:
            root = path if path.is_dir() else path.parent
            found += [Source(p, p.relative_to(root).as_posix()) for p in text_files.listed(path, "**/*")]
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
    else:
        yield from text_files.texts(source.path, column, start, OPTIONS)
