"""Blocks of tokens that were prepared beforehand: a folder with index.json and shards, read where they lie (memory map).

index.json: {"dtype": "uint16"|"uint32", "block_length", "blocks", "tokens", "vocab_size", "eos", "shards": [{"file", "blocks",
"sha256"}], "documents"}; a shard holds its blocks row by row, (blocks, block_length), little-endian. No torch.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from trainlab import files
from trainlab.config import Phase
from trainlab.errors import UserError

if TYPE_CHECKING:
    from trainlab.text.pack import Blocks

INDEX = "index.json"
DTYPES = {"uint16": "<u2", "uint32": "<u4"}
NUMBERS = ("block_length", "blocks", "vocab_size", "eos")
MOST = 512  # blocks that validate, and that judge, unless data.heldout_rows says otherwise


class Stored(Sequence[list[int]]):
    """The blocks `first` to `last` of a prepared folder as lists of token ids, read when asked for."""

    def __init__(self, folder: Path, index: dict[str, Any], first: int, last: int) -> None:
        self._first, self._length = first, last - first
        shards = [shard for shard in index["shards"] if shard["blocks"]]  # a shard of duplicates is empty
        counts = [int(shard["blocks"]) for shard in shards]
        self._starts = [0, *accumulate(counts)]
        self._maps = [
            np.memmap(folder / shard["file"], DTYPES[index["dtype"]], "r", shape=(count, index["block_length"]))
            for shard, count in zip(shards, counts, strict=True)
        ]

    def __len__(self) -> int:
        """Blocks."""
        return self._length

    @overload
    def __getitem__(self, index: int) -> list[int]: ...
    @overload
    def __getitem__(self, index: slice) -> list[list[int]]: ...
    def __getitem__(self, index: int | slice) -> list[int] | list[list[int]]:
        """Return one block, or those of a slice."""
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self._length))]
        if not -self._length <= index < self._length:
            raise IndexError(index)
        at = self._first + index % self._length
        shard = bisect_right(self._starts, at) - 1
        found: list[int] = self._maps[shard][at - self._starts[shard]].tolist()
        return found


def is_prepared(path: Path) -> bool:
    """True for a folder that holds blocks, not text."""
    return (path / INDEX).is_file()


def check(folder: Path, phase: Phase, digests: bool = True) -> dict[str, Any]:
    """Return index.json; raises UserError for a broken one, a shard that is cut or changed, or blocks of another length."""
    path = folder / INDEX
    index = files.read_json(path)
    for key in NUMBERS:
        value = index.get(key) if isinstance(index, dict) else None
        if not isinstance(value, int) or value < 0:
            raise UserError(f"{path}: {key} is {value!r}: must be a whole number; prepare the data again")
    if index.get("dtype") not in DTYPES:
        raise UserError(
            f"{path}: dtype is {index.get('dtype')!r}: must be {' or '.join(DTYPES)}; prepare the data again"
        )
    length = index["block_length"]
    if length != phase.model.max_length:
        raise UserError(
            f"{path}: blocks have {length} tokens, phase.model.max_length is {phase.model.max_length}; set {length}"
        )
    size = np.dtype(DTYPES[index["dtype"]]).itemsize
    shards = index.get("shards")
    if not isinstance(shards, list) or not all(_is_shard(shard) for shard in shards):
        raise UserError(f"{path}: shards must each have file, blocks and sha256; prepare the data again")
    if sum(shard["blocks"] for shard in shards) != index["blocks"]:
        raise UserError(f"{path}: the shards do not hold {index['blocks']} blocks; prepare the data again")
    for shard in shards:
        file, wanted = folder / shard["file"], shard["blocks"] * length * size
        have = file.stat().st_size if file.is_file() else 0
        if have != wanted:
            raise UserError(f"{file}: has {have} of {wanted} bytes; prepare the data again")
        if digests and files.sha256(file) != shard["sha256"]:
            raise UserError(f"{file}: its digest is not the one of {INDEX}: it was changed; prepare the data again")
    return dict(index)


def _is_shard(shard: Any) -> bool:
    kinds = {"file": str, "blocks": int, "sha256": str}
    return isinstance(shard, dict) and all(isinstance(shard.get(key), kind) for key, kind in kinds.items())


def load(folder: Path, phase: Phase, tokenizer: Any, vocabulary: int) -> "Blocks":
    """Return the parts: the last blocks judge, those before validate, the rest trains; one block between parts is left out.

    Raises UserError where tokenizer and blocks do not belong together, or there are too few blocks.
    """
    from trainlab.text.pack import Blocks, Packed

    index = check(folder, phase, digests=False)
    if index["eos"] != tokenizer.eos_token_id:
        raise UserError(
            f"{folder / INDEX}: eos is {index['eos']}, the tokenizer's is {tokenizer.eos_token_id}; set "
            "phase.stage.tokenizer to the one that made the blocks"
        )
    if index["vocab_size"] > vocabulary:
        raise UserError(
            f"{folder / INDEX}: vocab_size is {index['vocab_size']}, the model has {vocabulary}; take a larger model"
        )
    total = index["blocks"]
    judge = phase.data.heldout_rows or min(MOST, max(2, round(total * phase.text.heldout_fraction)))
    fraction = phase.train.validation_fraction
    choose = min(MOST, max(1, round(total * fraction))) if fraction else 0
    train = total - judge - choose - 1 - bool(choose)
    if train < 1:
        raise UserError(
            f"{folder / INDEX}: {total} blocks are too few for {judge} held out and {choose} to validate; add text"
        )
    used = min(train, phase.data.train_rows or train)

    def part(first: int, count: int) -> list[list[int]]:
        return Stored(folder, index, first, first + count)[:]

    length = index["block_length"]
    blocks: Any = Stored(folder, index, 0, used)
    topics = [f"blocks of {folder.name}"]
    return Blocks(
        Packed(blocks, topics, int(index.get("documents", 0)), used * length, 0, train),
        Packed(part(train + 1, choose), topics * choose, 0, choose * length, 0, choose),
        Packed(part(total - judge, judge), topics * judge, 1, judge * length, 0, judge),
    )
