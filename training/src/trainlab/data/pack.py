"""The documents of a corpus as blocks of tokens of one length, without truncation; used by cpt_recipe.py, stored_blocks.py and tests.

Each document is ended by EOS and, if the tokenizer puts a BOS before a text (Gemma), begins with one: as `trainlab prepare`
stores them (data/prepare/tokens.py). What does not fill the last block is dropped and counted.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trainlab.data.corpus import Corpus
from trainlab.data.packer import Packer
from trainlab.data.packer import Tokens as Ids
from trainlab.data.prepare import tokens
from trainlab.data.text_files import Document
from trainlab.errors import UserError


@dataclass(frozen=True)
class Packed:
    """Blocks of equal length, drawn from `made` ones; `tokens` counts all, EOS included, `remainder` the leftover."""

    blocks: Sequence[list[int]]
    topics: list[str]  # for each block, the document of its first token
    documents: int
    tokens: int
    remainder: int
    made: int

    def __len__(self) -> int:
        """Blocks."""
        return len(self.blocks)


@dataclass(frozen=True)
class Blocks:
    """The three parts of a corpus, packed."""

    train: Packed
    validation: Packed
    heldout: Packed

    def sentence(self) -> str:
        """Return a summary of the packed text, for the log."""
        parts = (("training", self.train), ("validation", self.validation), ("held out", self.heldout))
        return "; ".join(
            f"{name}: {part.documents} documents, {part.tokens} tokens, {len(part)}"
            + (f" of {part.made}" if part.made > len(part) else "")
            + f" blocks, {part.remainder} tokens over"
            for name, part in parts
            if part.documents
        )


def pack(names: Sequence[str], documents: Sequence[Sequence[int] | Ids], length: int) -> Packed:
    """Return documents of tokens, EOS included, as blocks of `length` tokens each; `names` are those of the documents."""
    packer = Packer(length)
    blocks, starts = packer.add(documents)
    owners = np.searchsorted(starts, np.arange(len(blocks)) * length, side="right") - 1
    total = blocks.size + len(packer.rest)
    topics = [names[owner] for owner in owners]
    return Packed(blocks.tolist(), topics, len(documents), total, len(packer.rest), len(blocks))


def pack_corpus(
    tokenizer: Any, corpus: Corpus, length: int, train_rows: int | None, heldout_rows: int | None
) -> Blocks:
    """Return the parts of a corpus as blocks, with limits for the training and held-out parts, drawn evenly.

    Raises UserError if a required part fills no block, or documents cannot be told apart: a tokenizer without EOS.
    """
    read = tokens.of(tokenizer, "phase.model.source: its tokenizer")

    def packed(part: str, documents: Sequence[Document]) -> Packed:
        ids = read.documents([document.text for document in documents])
        found = pack([document.id for document in documents], ids, length)
        if documents and not found.blocks:
            raise UserError(
                f"phase.model.max_length is {length}: the {part} part has {found.tokens} tokens, less than one block; "
                "lower it, or provide more text"
            )
        return found

    train, heldout = packed("training", corpus.train), packed("held-out", corpus.heldout)
    return Blocks(thin(train, train_rows), packed("validation", corpus.validation), thin(heldout, heldout_rows))


def thin(part: Packed, count: int | None) -> Packed:
    """Return a part with at most `count` of its blocks, spread evenly over it."""
    if count is None or count >= len(part):
        return part
    chosen = spread(len(part), count)
    return replace(part, blocks=[part.blocks[i] for i in chosen], topics=[part.topics[i] for i in chosen])


def spread(have: int, count: int) -> list[int]:
    """Return `count` of the indices 0 to `have` - 1, ascending, spread evenly over them."""
    return [index * have // count for index in range(count)]
