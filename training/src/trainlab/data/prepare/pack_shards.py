"""Step 3: kept documents, as blocks of tokens in shards; used by pipeline.py. The files are described in blocks.py.

They are packed by data/packer.py, each document ended by EOS. What does not fill the last block is dropped and counted. pack-N.json, written after the files of shard N,
carries over the tokens of the unfinished block, so that a stopped run resumes where it was.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

from trainlab import files
from trainlab.data.packer import Packer
from trainlab.data.prepare.blocks import PLACES
from trainlab.data.prepare.ingest import name
from trainlab.data.prepare.tokens import Tokens

CHARACTERS = 1 << 18  # tokenized at once


@dataclass
class Packed:
    """Contents of pack-N.json of a shard; `starts` counts the documents that begin in its blocks, `rest` are
    the tokens of the unfinished block, `rest_starts` the offsets at which documents begin in it."""

    blocks: int = 0
    documents: int = 0
    characters: int = 0
    tokens: int = 0
    starts: int = 0
    sha256: str = ""
    starts_sha256: str = ""
    rest: list[int] = field(default_factory=list)
    rest_starts: list[int] = field(default_factory=list)


def dtype(size: int) -> str:
    """Return the smallest dtype that holds the ids below `size`."""
    return "uint16" if size <= 1 << 16 else "uint32"


def pack_shard(
    batches: Iterator[list[str]], tokens: Tokens, length: int, before: Packed, out: Path, work: Path, ordinal: int
) -> Packed:
    """Write blocks-N.bin and starts-N.bin of a shard, then pack-N.json; return its contents."""
    packer = Packer(length, before.rest, before.rest_starts)
    found = Packed()
    kind = np.dtype(dtype(tokens.size)).newbyteorder("<")
    with (
        files.whole_file(name(out, "blocks", ordinal, "bin")) as blocks_file,
        files.whole_file(name(out, "starts", ordinal, "bin")) as starts_file,
    ):
        digest, starts_digest = _Digest(blocks_file), _Digest(starts_file)
        for texts in cut(batches):
            documents = tokens.documents(texts)
            blocks, starts = packer.add(documents)
            digest.write(blocks.astype(kind).tobytes())
            starts_digest.write((starts + found.blocks * length).astype(PLACES).tobytes())
            found.starts += len(starts)
            found.blocks += len(blocks)
            found.documents += len(texts)
            found.characters += sum(map(len, texts))
            found.tokens += sum(map(len, documents))
        found.sha256, found.starts_sha256 = digest.hex(), starts_digest.hex()
    found.rest, found.rest_starts = packer.rest.tolist(), packer.rest_starts.tolist()
    files.write_json(name(work, "pack", ordinal, "json"), asdict(found))
    return found


def read_packed(work: Path, ordinal: int) -> Packed | None:
    """Return the contents of pack-N.json, None if that shard is not packed."""
    path = name(work, "pack", ordinal, "json")
    return Packed(**files.read_json(path)) if path.exists() else None


def cut(batches: Iterator[list[str]]) -> Iterator[list[str]]:
    """Yield batches of at most about CHARACTERS."""
    for texts in batches:
        begin, size = 0, 0
        for end, text in enumerate(texts):
            if size and size + len(text) > CHARACTERS:
                yield texts[begin:end]
                begin, size = end, 0
            size += len(text)
        if texts[begin:]:
            yield texts[begin:]


class _Digest:
    """Writes to a stream and computes the SHA-256 of what it wrote."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._sha: Any = hashlib.sha256()

    def write(self, data: bytes) -> None:
        self._stream.write(data)
        self._sha.update(data)

    def hex(self) -> str:
        return str(self._sha.hexdigest())
