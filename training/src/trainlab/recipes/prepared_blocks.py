"""Blocks that `trainlab prepare` made (format: data/prepare/blocks.py), read in place for training. No torch.

Held out and validated are whole documents, drawn from all files: nothing of them is in a block that is trained on.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainlab.config import TextPhase
from trainlab.data.pack import Blocks, Packed, pack
from trainlab.data.prepare.blocks import INDEX
from trainlab.data.prepare.blocks import Blocks as Prepared
from trainlab.errors import UserError

MAX_BLOCKS = 512  # at most this many blocks validate, and are held out unless data.heldout_rows says otherwise
SHUFFLE = 0  # seed of the documents' order, not the phase's: what models are compared on depends on the text alone


class Part(Sequence[list[int]]):
    """Blocks of what a prepared folder holds without some of its documents, as lists of token ids, read on access."""

    def __init__(self, prepared: Prepared, left_out: NDArray[np.int64], count: int | None) -> None:
        """Leave out the tokens [first, last) of each row of `left_out`, ascending; keep at most `count` blocks, spread evenly."""
        total = len(prepared) * prepared.block_length
        ends = np.append(left_out[:, 0], total)
        self._prepared, self._first = prepared, np.insert(left_out[:, 1], 0, 0)
        self._sizes = ends - self._first
        self._before = np.cumsum(self._sizes) - self._sizes  # tokens kept before each stretch
        self.made, self.remainder = divmod(int(self._sizes.sum()), prepared.block_length)
        self._length = min(count or self.made, self.made)

    def __len__(self) -> int:
        """Blocks."""
        return self._length

    def __getitem__(self, index: int) -> list[int]:  # type: ignore[override]
        """Return one block; slices are not offered."""
        if not 0 <= index < self._length:
            raise IndexError(index)
        place = index * self.made // self._length * self._prepared.block_length
        block: list[int] = []
        stretch = int(np.searchsorted(self._before, place, side="right")) - 1
        while (missing := self._prepared.block_length - len(block)) > 0:
            offset = place + len(block) - int(self._before[stretch])
            first = int(self._first[stretch]) + offset
            block += self._prepared.tokens(first, first + min(missing, int(self._sizes[stretch]) - offset)).tolist()
            stretch += 1
        return block


def open_blocks(folder: Path, phase: TextPhase) -> Prepared:
    """Return the blocks of a folder; raises UserError for broken ones, and for blocks whose length is not the phase's."""
    blocks = Prepared(folder)
    if blocks.block_length != phase.model.max_length:
        raise UserError(
            f"{folder / INDEX}: blocks have {blocks.block_length} tokens, phase.model.max_length is "
            f"{phase.model.max_length}; set {blocks.block_length}"
        )
    return blocks


def load(folder: Path, phase: TextPhase, tokenizer: Any, vocabulary: int) -> Blocks:
    """Return the parts: documents in an order shuffled over all files are held out, the next ones validate, the rest trains.

    Raises UserError if tokenizer and blocks do not match, or the parts cannot be drawn.
    """
    prepared = open_blocks(folder, phase)
    index, length = prepared.index, prepared.block_length
    if index["eos"] != tokenizer.eos_token_id:
        raise UserError(
            f"{folder / INDEX}: eos is {index['eos']}, the tokenizer's is {tokenizer.eos_token_id}; set "
            "phase.stage.tokenizer to the one that made the blocks"
        )
    if index["vocab_size"] > vocabulary:
        raise UserError(
            f"{folder / INDEX}: vocab_size is {index['vocab_size']}, the model has {vocabulary}; use a larger model"
        )
    total, fraction = len(prepared), phase.set_aside
    n_heldout = phase.data.heldout_rows or min(MAX_BLOCKS, max(2, round(total * phase.text.heldout_fraction)))
    n_validation = min(MAX_BLOCKS, max(1, round(total * fraction))) if fraction else 0
    starts = prepared.starts()
    bounds = np.stack([starts, np.append(starts[1:], total * length)], axis=1)
    sizes = bounds[:, 1] - bounds[:, 0]
    order = np.random.default_rng(SHUFFLE).permutation(max(0, len(bounds) - 1))  # the last one may be cut
    chosen: list[int] = []
    parts: list[Packed] = []
    for count in (n_heldout, n_validation):
        picked = draw(order[~np.isin(order, chosen)], sizes, count, length)
        chosen += picked
        documents = [prepared.tokens(*bounds[document]) for document in picked]
        parts.append(pack([f"document {document + 1} of {folder.name}" for document in picked], documents, length))
    train = Part(prepared, bounds[sorted(chosen)].reshape(-1, 2), phase.data.train_rows)
    if not (parts[0].blocks and len(parts[1]) >= bool(n_validation) and train.made):
        raise UserError(
            f"{folder / INDEX}: {total} blocks in {len(bounds)} documents are too few for {n_heldout} held out and "
            f"{n_validation} for validation, which are whole documents; add text, or split long documents"
        )
    topics, documents_left = [f"blocks of {folder.name}"], len(bounds) - len(chosen)
    trained = Packed(train, topics, documents_left, len(train) * length, train.remainder, train.made)
    return Blocks(trained, parts[1], parts[0])


def draw(order: NDArray[np.int64], sizes: NDArray[np.int64], blocks: int, length: int) -> list[int]:
    """Return documents in their order for at most `blocks` blocks; one that is too long for what is still missing is skipped."""
    picked: list[int] = []
    room = (blocks + 1) * length - 1 if blocks else 0
    for document in order[sizes[order] <= room]:
        if room < length:  # all blocks are full
            break
        if sizes[document] <= room:
            picked.append(int(document))
            room -= int(sizes[document])
    return picked
