"""Documents as blocks of tokens of one length, and where documents begin in them; used by pack.py and prepare/pack_shards.py. NumPy only.

The tokens of all documents are concatenated and cut into blocks; no document is truncated.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.int64]


class Packer:
    """Cuts documents into blocks of `length` tokens; `rest` are the tokens of the unfinished block, `rest_starts` the
    offsets in it at which documents begin."""

    def __init__(self, length: int, rest: Sequence[int] = (), rest_starts: Sequence[int] = ()) -> None:
        self._length = length
        self.rest = np.array(rest, dtype=np.int64)
        self.rest_starts = np.array(rest_starts, dtype=np.int64)

    def add(self, documents: Sequence[Sequence[int] | Tokens]) -> tuple[Tokens, Tokens]:
        """Return the blocks that are now full, shape (n, length), and where documents begin in them, in tokens from the
        first one of the first block."""
        lengths = np.array([len(document) for document in documents], dtype=np.int64)
        begins = len(self.rest) + np.cumsum(lengths) - lengths
        row = np.concatenate([self.rest, *(np.asarray(document, dtype=np.int64) for document in documents)])
        starts = np.concatenate([self.rest_starts, begins])
        end = len(row) // self._length * self._length
        self.rest, self.rest_starts = row[end:], starts[starts >= end] - end
        return row[:end].reshape(-1, self._length), starts[starts < end]
