"""Blocks that `trainlab prepare` made (format: data/prepare/blocks.py), read in place for training. No torch."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from trainlab.config import TextPhase
from trainlab.data.prepare.blocks import INDEX
from trainlab.data.prepare.blocks import Blocks as Prepared
from trainlab.errors import UserError

if TYPE_CHECKING:
    from trainlab.data.pack import Blocks

MOST = 512  # at most this many blocks validate, and are held out unless data.heldout_rows says otherwise


class Part(Sequence[list[int]]):
    """The blocks `first` to `last` of a prepared folder as lists of token ids, read on access."""

    def __init__(self, blocks: Prepared, first: int, last: int) -> None:
        self._blocks, self._first, self._length = blocks, first, last - first

    def __len__(self) -> int:
        """Blocks."""
        return self._length

    @overload
    def __getitem__(self, index: int) -> list[int]:  # one block
        ...

    @overload
    def __getitem__(self, index: slice) -> list[list[int]]:  # several
        ...

    def __getitem__(self, index: int | slice) -> list[int] | list[list[int]]:
        """Return one block, or those of a slice."""
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self._length))]
        if not -self._length <= index < self._length:
            raise IndexError(index)
        found: list[int] = self._blocks[self._first + index % self._length].tolist()
        return found


def opened(folder: Path, phase: TextPhase) -> Prepared:
    """Return the blocks of a folder; raises UserError for broken ones, and for blocks whose length is not the phase's."""
    blocks = Prepared(folder)
    if blocks.block_length != phase.model.max_length:
        raise UserError(
            f"{folder / INDEX}: blocks have {blocks.block_length} tokens, phase.model.max_length is "
            f"{phase.model.max_length}; set {blocks.block_length}"
        )
    return blocks


def load(folder: Path, phase: TextPhase, tokenizer: Any, vocabulary: int) -> "Blocks":
    """Return the parts: the last blocks are held out, those before validate, the rest train; one block between parts is left out.

    Raises UserError if tokenizer and blocks do not match, or there are too few blocks.
    """
    from trainlab.data.pack import Blocks, Packed

    prepared = opened(folder, phase)
    index = prepared.index
    if index["eos"] != tokenizer.eos_token_id:
        raise UserError(
            f"{folder / INDEX}: eos is {index['eos']}, the tokenizer's is {tokenizer.eos_token_id}; set "
            "phase.stage.tokenizer to the one that made the blocks"
        )
    if index["vocab_size"] > vocabulary:
        raise UserError(
            f"{folder / INDEX}: vocab_size is {index['vocab_size']}, the model has {vocabulary}; use a larger model"
        )
    total = index["blocks"]
    judge = phase.data.heldout_rows or min(MOST, max(2, round(total * phase.text.heldout_fraction)))
    fraction = phase.train.validation_fraction
    choose = min(MOST, max(1, round(total * fraction))) if fraction else 0
    train = total - judge - choose - 1 - bool(choose)
    if train < 1:
        raise UserError(
            f"{folder / INDEX}: {total} blocks are too few for {judge} held out and {choose} for validation; add text"
        )
    used = min(train, phase.data.train_rows or train)
    length, topics = prepared.block_length, [f"blocks of {folder.name}"]
    blocks: Any = Part(prepared, 0, used)
    return Blocks(
        Packed(blocks, topics, index["documents"], used * length, 0, train),
        Packed(Part(prepared, train + 1, train + 1 + choose)[:], topics * choose, 0, choose * length, 0, choose),
        Packed(
            Part(prepared, total - judge, total)[:],
            _documents(prepared, total - judge, total),
            1,
            judge * length,
            0,
            judge,
        ),
    )


def _documents(prepared: Prepared, first: int, last: int) -> list[str]:
    """Return the document in which each of the blocks `first` to `last` begins, numbered from the first block's on."""
    names, number = [], 1
    for index in range(first, last):
        starts = prepared.starts(index)
        number += bool(index > first and len(starts) and starts[0] == 0)
        names.append(f"{prepared.folder.name}, held-out document {number}")
        number += int((starts > 0).sum())
    return names
