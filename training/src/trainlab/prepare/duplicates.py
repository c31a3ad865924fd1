"""Which documents repeat an earlier one, by signatures on disk and in bounded memory; used by pipeline.py.

A signature is a row of `width` 32-bit numbers: a digest (exact duplicates) or a MinHash (near ones; near.py). It is cut
into bands; documents that agree in a whole band are compared in full (locality-sensitive hashing: Leskovec, Rajaraman,
Ullman, Mining of Massive Datasets, 3.4). An index in memory, as rensa has it, grows by about 2 kB a document. Here the
band keys of all documents are sorted, at most ENTRIES at a time, and the signatures are read once for each such part.
"""

import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

ENTRIES = 1 << 21  # keys that are sorted at once; 40 bytes each
CHUNK = 1 << 12  # signatures that are read at once
Numbers = NDArray[np.uint32]


class Signatures:
    """Rows of `width` numbers in files that follow each other; a context manager, since it keeps them open."""

    def __init__(self, paths: Sequence[Path], width: int) -> None:
        self.width = width
        self._files = [path.open("rb") for path in paths]
        rows = [os.fstat(file.fileno()).st_size // (4 * width) for file in self._files]
        self._ends = list(accumulate(rows))

    def __enter__(self) -> "Signatures":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for file in self._files:
            file.close()

    def __len__(self) -> int:
        """Documents."""
        return self._ends[-1] if self._ends else 0

    def chunks(self) -> Iterator[tuple[int, Numbers]]:
        """Yield (first document, signatures of shape (n, width)); never across two files."""
        first = 0
        for file, end in zip(self._files, self._ends, strict=True):
            file.seek(0)
            while first < end:
                count = min(CHUNK, end - first)
                found = np.frombuffer(file.read(4 * self.width * count), dtype="<u4").reshape(-1, self.width)
                yield first, found
                first += count

    def row(self, document: int) -> Numbers:
        """Return the signature of one document."""
        index = bisect_right(self._ends, document)
        begin = self._ends[index - 1] if index else 0
        size = 4 * self.width
        data = os.pread(self._files[index].fileno(), size, size * (document - begin))
        return np.frombuffer(data, dtype="<u4")


def duplicates(
    signatures: Signatures,
    bands: int,
    threshold: float,
    skip: NDArray[np.bool_] | None = None,
    entries: int | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> NDArray[np.bool_]:
    """Return for each document whether it repeats an earlier one that stays.

    That is: both agree in one of `bands` bands, and in at least `threshold` of all numbers. Documents in `skip` are left
    out. The result depends on signatures and arguments only; memory: `entries` keys (ENTRIES), and a byte for each document.
    """
    total = len(signatures)
    repeats = np.zeros(total, dtype=np.bool_)
    parts = max(1, -(-total * bands // (entries or ENTRIES)))
    for part in range(parts):
        say(f"part {part + 1} of {parts}, {int(repeats.sum())} duplicates so far")
        for bucket in _buckets(signatures, bands, skip, part, parts):
            _compare(signatures, bucket, threshold, repeats)
    return repeats


def _buckets(
    signatures: Signatures, bands: int, skip: NDArray[np.bool_] | None, part: int, parts: int
) -> Iterator[list[int]]:
    """Yield the documents that share a band key, in their order, for the keys of one part."""
    rows = signatures.width // bands
    # Multilinear hashing with odd multipliers, another one for each number: bands have keys of their own.
    factors = np.random.default_rng(0).integers(0, 1 << 63, size=(bands, rows), dtype=np.uint64) * np.uint64(
        2
    ) + np.uint64(1)
    offsets = np.random.default_rng(1).integers(0, 1 << 63, size=bands, dtype=np.uint64)
    keys: list[NDArray[np.uint64]] = []
    owners: list[NDArray[np.int64]] = []
    for first, chunk in signatures.chunks():
        cut = chunk[:, : bands * rows].reshape(-1, bands, rows)
        key = offsets + np.einsum("nbr,br->nb", cut.astype(np.uint64), factors)
        wanted = (key >> np.uint64(32)) % np.uint64(parts) == part
        if skip is not None:
            wanted &= ~skip[first : first + len(chunk), None]
        keys.append(key[wanted])
        owners.append(np.nonzero(wanted)[0] + first)
    if not keys:
        return
    key, owner = np.concatenate(keys), np.concatenate(owners)
    del keys, owners
    order = np.argsort(key)
    key, owner = key[order], owner[order]
    del order
    same = np.concatenate([[False], key[1:] == key[:-1], [False]])
    begins = np.nonzero(~same[:-1] & same[1:])[0]
    ends = np.nonzero(same[:-1] & ~same[1:])[0] + 1
    members = owner[same[:-1] | same[1:]].tolist()
    at = 0
    for count in (ends - begins).tolist():
        yield sorted(members[at : at + count])
        at += count


def _compare(signatures: Signatures, bucket: list[int], threshold: float, repeats: NDArray[np.bool_]) -> None:
    """Mark each document of a bucket that is like an earlier one of it."""
    left = [document for document in bucket[1:] if not repeats[document]]
    if not left:  # each pair meets in most of the bands
        return
    kept = signatures.row(bucket[0])[None]
    for document in left:
        row = signatures.row(document)
        if np.count_nonzero(kept == row, axis=1).max() >= threshold * signatures.width:
            repeats[document] = True
        else:
            kept = np.concatenate([kept, row[None]])
