"""The files that `trainlab prepare` writes, and how training reads them. NumPy only, so that loader workers stay small.

DIR/index.json: {"dtype", "block_length" L, "blocks" N, "tokens" N*L, "vocab_size", "eos", "shards": [{"file", "blocks", "sha256"}]}.
DIR/blocks-*.bin: tokens, little-endian `dtype` (uint16 if the vocabulary fits), row-major (blocks of the shard, L).
The order of shards and blocks is the order of the text. EOS ends each document and stands nowhere else (data/pack.py).
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainlab import files
from trainlab.errors import UserError

INDEX = "index.json"
DTYPES = ("uint16", "uint32")
NUMBERS = ("block_length", "blocks", "vocab_size", "eos")
SHARD = {"file": str, "blocks": int, "sha256": str}
FORMAT = 3  # of the folder: with another one it is made again
REMAKE = "remove the folder and prepare again"


def is_prepared(path: Path) -> bool:
    """True for a folder that holds blocks, not text."""
    return (path / INDEX).is_file()


class Blocks:
    """The blocks of a folder: `blocks[i]` are the tokens of block i, int64 of shape (block_length,)."""

    def __init__(self, folder: Path) -> None:
        """Open a folder; raises UserError if it is unfinished, or index and files do not match."""
        if not is_prepared(folder):
            raise UserError(f"{folder}: no {INDEX}; run `trainlab prepare --out {folder}` to its end")
        self.folder = folder
        self.index = _index(folder / INDEX)
        self.block_length = int(self.index["block_length"])
        self.eos = int(self.index["eos"])
        self._dtype = np.dtype(self.index["dtype"]).newbyteorder("<")
        self._shards: list[dict[str, Any]] = self.index["shards"]
        self._ends = np.cumsum([shard["blocks"] for shard in self._shards], dtype=np.int64) * self.block_length
        self._open: dict[int, NDArray[Any]] = {}
        for shard in self._shards:
            path, expected = folder / shard["file"], shard["blocks"] * self.block_length * self._dtype.itemsize
            size = path.stat().st_size if path.is_file() else 0
            if size != expected:
                raise UserError(f"{path}: {size} bytes, {INDEX} says {expected}; {REMAKE}")

    def __len__(self) -> int:
        """Blocks."""
        return int(self.index["blocks"])

    def __getitem__(self, index: int) -> NDArray[np.int64]:
        if not -len(self) <= index < len(self):
            raise IndexError(f"block {index} of {len(self)}")
        first = index % len(self) * self.block_length
        return self.tokens(first, first + self.block_length)

    def tokens(self, first: int, last: int) -> NDArray[np.int64]:
        """Return the tokens `first` to before `last` of the text, int64, whatever blocks and shards they are in."""
        pieces = [np.empty(0, dtype=np.int64)]
        while first < last:
            shard = int(np.searchsorted(self._ends, first, side="right"))
            begin = int(self._ends[shard - 1]) if shard else 0
            end = min(last, int(self._ends[shard]))
            pieces.append(self._map(shard)[first - begin : end - begin].astype(np.int64))
            first = end
        return np.concatenate(pieces)

    def starts(self) -> NDArray[np.int64]:
        """Return where each document begins, in tokens from the first one of the text, ascending."""
        ends = [np.flatnonzero(self._map(shard) == self.eos) for shard in range(len(self._shards))]
        begins = [0, *self._ends[:-1]]
        starts = [np.zeros(1, dtype=np.int64), *(end + begin + 1 for end, begin in zip(ends, begins, strict=True))]
        places = np.concatenate(starts)
        return places[places < len(self) * self.block_length]

    def verify(self) -> None:
        """Compare every file with its SHA-256; raises UserError for the first that differs."""
        for shard in self._shards:
            if files.sha256(self.folder / shard["file"]) != shard["sha256"]:
                raise UserError(f"{self.folder / shard['file']}: does not match {INDEX}; {REMAKE}")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": {}}  # a pickled memmap would carry its whole content to each loader worker

    def _map(self, shard: int) -> NDArray[Any]:
        if shard not in self._open:
            self._open[shard] = np.memmap(self.folder / self._shards[shard]["file"], dtype=self._dtype, mode="r")
        return self._open[shard]


def _index(path: Path) -> dict[str, Any]:
    """Return index.json; raises UserError for a key that is missing or wrong."""
    index = files.read_json(path)
    for key in NUMBERS:
        value = index.get(key) if isinstance(index, dict) else None
        if not isinstance(value, int) or value < 0:
            raise UserError(f"{path}: {key} is {value!r}: must be a whole number; {REMAKE}")
    if index.get("dtype") not in DTYPES:
        raise UserError(f"{path}: dtype is {index.get('dtype')!r}: must be {' or '.join(DTYPES)}; {REMAKE}")
    shards = index.get("shards")
    if not isinstance(shards, list) or not all(
        isinstance(shard, dict) and all(isinstance(shard.get(key), kind) for key, kind in SHARD.items())
        for shard in shards
    ):
        raise UserError(f"{path}: shards must each have {', '.join(SHARD)}; {REMAKE}")
    if sum(shard["blocks"] for shard in shards) != index["blocks"]:
        raise UserError(f"{path}: the shards do not hold {index['blocks']} blocks; {REMAKE}")
    return dict(index)
