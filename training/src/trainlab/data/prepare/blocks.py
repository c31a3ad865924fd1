"""The files that `trainlab prepare` writes, and how training reads them. NumPy only, so that loader workers stay small.

DIR/index.json: {"dtype", "block_length" L, "blocks" N, "tokens" N*L, "vocab_size", "eos", "documents", "shards": [{"file",
"blocks", "sha256", "starts", "starts_sha256"}]}; `documents` counts those with a token in some block.
DIR/blocks-*.bin: tokens, little-endian `dtype` (uint16 if the vocabulary fits), row-major (blocks of the shard, L).
DIR/starts-*.bin: little-endian uint32: first blocks+1 numbers `bounds`, then the offsets themselves: documents start in
block i at the offsets [bounds[i], bounds[i+1]), ascending, each below L. A block whose first offset is not 0 begins inside
a document of the previous block; the order of shards and blocks is the order of the text.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainlab import files
from trainlab.errors import UserError

INDEX = "index.json"
OFFSETS = np.dtype("<u4")
DTYPES = ("uint16", "uint32")
NUMBERS = ("block_length", "blocks", "vocab_size", "eos", "documents")
SHARD = {"file": str, "blocks": int, "sha256": str, "starts": str, "starts_sha256": str}
AGAIN = "remove the folder and prepare again"


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
        self._ends = np.cumsum([shard["blocks"] for shard in self._shards], dtype=np.int64)
        self._open: dict[int, tuple[NDArray[Any], NDArray[Any]]] = {}
        for shard in self._shards:
            self._size(shard)

    def __len__(self) -> int:
        """Blocks."""
        return int(self.index["blocks"])

    def __getitem__(self, index: int) -> NDArray[np.int64]:
        shard, row = self._place(index)
        tokens: NDArray[np.int64] = self._maps(shard)[0][row].astype(np.int64)
        return tokens

    def starts(self, index: int) -> NDArray[np.int64]:
        """Return the offsets at which documents start in a block."""
        shard, row = self._place(index)
        table = self._maps(shard)[1]
        head = int(self._shards[shard]["blocks"]) + 1
        begin, end = int(table[row]), int(table[row + 1])
        found: NDArray[np.int64] = table[head + begin : head + end].astype(np.int64)
        return found

    def segments(self, index: int) -> NDArray[np.int64]:
        """Return the bounds of the parts that must not attend to each other: 0, each later start, block_length."""
        starts = self.starts(index)
        return np.concatenate([[0], starts[starts > 0], [self.block_length]]).astype(np.int64)

    def verify(self) -> None:
        """Compare every file with its SHA-256; raises UserError for the first that differs."""
        for shard in self._shards:
            for name, digest in ((shard["file"], shard["sha256"]), (shard["starts"], shard["starts_sha256"])):
                if files.sha256(self.folder / name) != digest:
                    raise UserError(f"{self.folder / name}: does not match {INDEX}; {AGAIN}")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": {}}  # a pickled memmap would carry its whole content to each loader worker

    def _place(self, index: int) -> tuple[int, int]:
        if not -len(self) <= index < len(self):
            raise IndexError(f"block {index} of {len(self)}")
        index %= len(self)
        shard = int(np.searchsorted(self._ends, index, side="right"))
        return shard, index - (int(self._ends[shard - 1]) if shard else 0)

    def _maps(self, shard: int) -> tuple[NDArray[Any], NDArray[Any]]:
        if shard not in self._open:
            entry = self._shards[shard]
            tokens = np.memmap(self.folder / entry["file"], dtype=self._dtype, mode="r")
            starts = np.memmap(self.folder / entry["starts"], dtype=OFFSETS, mode="r")
            self._open[shard] = (tokens.reshape(-1, self.block_length), starts)
        return self._open[shard]

    def _size(self, shard: dict[str, Any]) -> None:
        path = self.folder / shard["file"]
        wanted = shard["blocks"] * self.block_length * self._dtype.itemsize
        for one, least in ((path, wanted), (self.folder / shard["starts"], 4 * (shard["blocks"] + 1))):
            size = one.stat().st_size if one.is_file() else -1
            if size < least or (one is path and size != wanted):
                raise UserError(f"{one}: {max(size, 0)} bytes, {INDEX} says {least}; {AGAIN}")


def _index(path: Path) -> dict[str, Any]:
    """Return index.json; raises UserError for a key that is missing or wrong."""
    index = files.read_json(path)
    for key in NUMBERS:
        value = index.get(key) if isinstance(index, dict) else None
        if not isinstance(value, int) or value < 0:
            raise UserError(f"{path}: {key} is {value!r}: must be a whole number; {AGAIN}")
    if index.get("dtype") not in DTYPES:
        raise UserError(f"{path}: dtype is {index.get('dtype')!r}: must be {' or '.join(DTYPES)}; {AGAIN}")
    shards = index.get("shards")
    if not isinstance(shards, list) or not all(_is_shard(shard) for shard in shards):
        raise UserError(f"{path}: shards must each have {', '.join(SHARD)}; {AGAIN}")
    if sum(shard["blocks"] for shard in shards) != index["blocks"]:
        raise UserError(f"{path}: the shards do not hold {index['blocks']} blocks; {AGAIN}")
    return dict(index)


def _is_shard(shard: Any) -> bool:
    return isinstance(shard, dict) and all(isinstance(shard.get(key), kind) for key, kind in SHARD.items())
