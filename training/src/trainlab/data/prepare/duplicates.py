"""Which documents repeat an earlier one, by signatures on disk and in bounded memory; used by pipeline.py and bench/dedup.py.

A signature is a row of `width` 32-bit numbers: a digest (exact duplicates) or a MinHash by rensa (near ones). It is cut
into bands; documents that agree in a whole band are compared in full (locality-sensitive hashing: Leskovec, Rajaraman,
Ullman, Mining of Massive Datasets, 3.4). An in-memory index, like rensa's, grows by about 2 kB per document. Here the
band keys of all documents are sorted, at most ENTRIES at a time, and the signatures are read once for each such part.

For a MinHash two documents are compared by the sets of their word 5-grams; the share of equal numbers in two signatures estimates the
Jaccard similarity of the sets (Broder 1997) with a standard error of at most 0.044 for 128 numbers."""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rensa import RMinHash

ENTRIES = 1 << 23  # keys sorted at once, 24 bytes each; fewer would read all signatures more often
CHUNK = 1 << 12  # signatures read at once
OPEN = 64
HALF = np.uint64(32)  # bits; a document has a number below 2**32
LOW = np.uint64(0xFFFFFFFF)
Numbers = NDArray[np.uint32]
WIDTH = 128  # numbers per signature
SEED = 42
BATCH = 64  # sets at once: their numbers as Python objects stay in the processor's cache
GRAM = 5  # words; a shorter text is one gram
RECALL = 0.9  # of pairs exactly at the threshold


def grams(text: str) -> list[str]:
    """Return the word 5-grams of a text in lower case, in order and with repetitions."""
    words = text.lower().split()
    return [" ".join(words[i : i + GRAM]) for i in range(max(1, len(words) - GRAM + 1))]


def minhashes(sets: Sequence[Sequence[str]]) -> NDArray[np.uint32]:
    """Return the MinHash signatures of sets of strings, shape (len(sets), WIDTH)."""
    parts = []
    for first in range(0, len(sets), BATCH):
        matrix = RMinHash.digest_matrix_from_token_sets(sets[first : first + BATCH], num_perm=WIDTH, seed=SEED)
        parts += [array("I", row).tobytes() for row in matrix.to_rows()]  # half the time of np.array over the lists
    return np.frombuffer(b"".join(parts), dtype=np.uint32).reshape(-1, WIDTH).astype("<u4", copy=False)


def signatures(group: tuple[Sequence[str], NDArray[np.bool_]]) -> NDArray[np.uint32]:
    """Return the signatures of texts, shape (n, WIDTH); those of texts without the flag are zeros."""
    texts, kept = group
    rows = np.zeros((len(texts), WIDTH), dtype="<u4")
    rows[kept] = minhashes([grams(text) for text, keep in zip(texts, kept, strict=True) if keep])
    return rows


def min_bands(threshold: float) -> int:
    """Return the fewest bands, a power of two, that find RECALL of the pairs at `threshold`: 16 for 0.8."""
    count = 1
    while count < WIDTH and 1 - (1 - threshold ** (WIDTH // count)) ** count < RECALL:
        count *= 2
    return count


class Signatures:
    """Rows of `width` numbers in consecutive files; at most OPEN of them are mapped at once."""

    def __init__(self, paths: Sequence[Path], width: int) -> None:
        self.width = width
        self._paths = list(paths)
        self._ends = list(accumulate(path.stat().st_size // (4 * width) for path in self._paths))
        self._mapped = lru_cache(OPEN)(self._map)

    def __len__(self) -> int:
        """Documents."""
        return self._ends[-1] if self._ends else 0

    def chunks(self) -> Iterator[tuple[int, Numbers]]:
        """Yield (first document, signatures of shape (n, width)); never across two files."""
        first = 0
        for path, end in zip(self._paths, self._ends, strict=True):
            with path.open("rb") as file:
                while first < end:
                    count = min(CHUNK, end - first)
                    yield first, np.fromfile(file, "<u4", self.width * count).reshape(count, self.width)
                    first += count

    def row(self, document: int) -> Numbers:
        """Return the signature of one document."""
        index = bisect_right(self._ends, document)
        signature: Numbers = self._mapped(index)[document - (self._ends[index - 1] if index else 0)]
        return signature

    def _map(self, index: int) -> Numbers:
        return np.asarray(np.memmap(self._paths[index], "<u4", "r")).reshape(-1, self.width)


def duplicates(
    signatures: Signatures,
    bands: int,
    threshold: float,
    skip: NDArray[np.bool_] | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> NDArray[np.bool_]:
    """Return for each document whether it repeats an earlier one, which may itself repeat an even earlier one.

    That is: both agree in one of `bands` bands, and in at least `threshold` of all numbers. Documents in `skip` are
    ignored. ENTRIES changes the memory, not the result: that many keys, a byte for each document, and the signatures of
    those that share one band.
    """
    total = len(signatures)
    repeats = np.zeros(total, dtype=np.bool_)
    parts = max(1, -(-total * bands // ENTRIES))
    for part in range(parts):
        say(f"part {part + 1} of {parts}, {int(repeats.sum())} duplicates so far")
        pairs, larger = _buckets(signatures, bands, skip, part, parts)
        _compare_pairs(signatures, pairs, threshold, repeats)
        for bucket in larger:
            _compare(signatures, bucket, threshold, repeats)
    return repeats


def _buckets(
    signatures: Signatures, bands: int, skip: NDArray[np.bool_] | None, part: int, parts: int
) -> tuple[NDArray[np.int64], list[list[int]]]:
    """Return the documents that share a band key, in order, for the keys of one part: by twos, each once (n, 2), and more."""
    rows = signatures.width // bands
    # Multilinear hashing with odd multipliers, a different one for each number: bands have their own keys.
    factors = np.random.default_rng(0).integers(0, 1 << 63, size=(bands, rows), dtype=np.uint64) * np.uint64(
        2
    ) + np.uint64(1)
    offsets = np.random.default_rng(1).integers(0, 1 << 63, size=bands, dtype=np.uint64)
    keys: list[NDArray[np.uint64]] = []
    for first, chunk in signatures.chunks():
        cut = chunk[:, : bands * rows].reshape(-1, bands, rows)
        key = offsets + np.einsum("nbr,br->nb", cut.astype(np.uint64), factors)
        wanted = (key >> HALF) % np.uint64(parts) == part
        if skip is not None:
            wanted &= ~skip[first : first + len(chunk), None]
        # Key and document in one number, which sorts fast; two keys that agree in half only cost a comparison.
        keys.append((key[wanted] << HALF) | (np.nonzero(wanted)[0] + first).astype(np.uint64))
    if not keys:
        return np.empty((0, 2), np.int64), []
    both = np.concatenate(keys)
    del keys
    both.sort()
    key = both >> HALF
    same = np.concatenate([[False], key[1:] == key[:-1], [False]])
    begins = np.nonzero(~same[:-1] & same[1:])[0]
    ends = np.nonzero(same[:-1] & ~same[1:])[0] + 1
    members, two = both & LOW, ends - begins == 2
    # Most buckets are pairs, and similar documents share many of them.
    pair = np.unique((members[begins[two]] << HALF) | members[begins[two] + 1])
    pairs = np.stack([pair >> HALF, pair & LOW], axis=1).astype(np.int64)
    spans = zip(begins[~two].tolist(), ends[~two].tolist(), strict=True)
    return pairs, [members[begin:end].tolist() for begin, end in spans]


def _compare_pairs(
    signatures: Signatures, pairs: NDArray[np.int64], threshold: float, repeats: NDArray[np.bool_]
) -> None:
    """Mark the second document of each pair (n, 2) that is similar to the first."""
    for first in range(0, len(pairs), CHUNK):
        chunk = pairs[first : first + CHUNK]
        chunk = chunk[~repeats[chunk[:, 1]]]
        if len(chunk):
            first_rows, second_rows = (
                np.stack([signatures.row(document) for document in column.tolist()]) for column in chunk.T
            )
            like = np.count_nonzero(first_rows == second_rows, axis=1) >= threshold * signatures.width
            repeats[chunk[like, 1]] = True


def _compare(signatures: Signatures, bucket: list[int], threshold: float, repeats: NDArray[np.bool_]) -> None:
    """Mark each document of a bucket that is similar to an earlier one in it."""
    if all(repeats[document] for document in bucket[1:]):  # each pair shares most of the bands
        return
    needed = threshold * signatures.width
    shape = (len(bucket), signatures.width)
    stay, gone = np.empty(shape, np.uint32), np.empty(shape, np.uint32)  # take memory as they fill
    staying = going = 0
    for document in bucket:
        row = signatures.row(document)
        # Kept ones first: there are few if one text occurs many times.
        if not repeats[document] and (_like(stay[:staying], row, needed) or _like(gone[:going], row, needed)):
            repeats[document] = True
        if repeats[document]:
            gone[going], going = row, going + 1
        else:
            stay[staying], staying = row, staying + 1


def _like(rows: Numbers, row: Numbers, needed: float) -> bool:
    return len(rows) > 0 and bool(np.count_nonzero(rows == row, axis=1).max() >= needed)
