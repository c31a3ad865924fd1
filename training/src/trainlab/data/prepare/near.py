"""MinHash signatures by rensa, for near-duplicate documents; used by pipeline.py and bench/dedup.py.

Two documents are compared by the sets of their word 5-grams; the share of equal numbers in two signatures estimates the
Jaccard similarity of the sets (Broder 1997) with a standard error of at most 0.044 for 128 numbers.
"""

from array import array
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from rensa import RMinHash

WIDTH = 128  # numbers per signature
SEED = 42
BATCH = 64  # sets at once: their numbers as Python objects stay in the processor's cache
GRAM = 5  # words; a shorter text is one gram
RECALL = 0.9  # of pairs exactly at the threshold


def grams(text: str) -> list[str]:
    """Return the word 5-grams of a text in lower case, in order and with repetitions."""
    words = text.lower().split()
    return [" ".join(words[i : i + GRAM]) for i in range(max(1, len(words) - GRAM + 1))]


def signatures(sets: Sequence[Sequence[str]]) -> NDArray[np.uint32]:
    """Return the MinHash signatures of sets of strings, shape (len(sets), WIDTH)."""
    parts = []
    for first in range(0, len(sets), BATCH):
        matrix = RMinHash.digest_matrix_from_token_sets(sets[first : first + BATCH], num_perm=WIDTH, seed=SEED)
        parts += [array("I", row).tobytes() for row in matrix.to_rows()]  # half the time of np.array over the lists
    return np.frombuffer(b"".join(parts), dtype=np.uint32).reshape(-1, WIDTH).astype("<u4", copy=False)


def bands(threshold: float, width: int = WIDTH) -> int:
    """Return the fewest bands, a power of two, that find RECALL of the pairs at `threshold`: 16 for 0.8 of 128 numbers."""
    count = 1
    while count < width and 1 - (1 - threshold ** (width // count)) ** count < RECALL:
        count *= 2
    return count
