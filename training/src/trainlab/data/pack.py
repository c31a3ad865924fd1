"""Documents as blocks of tokens of one length, without truncation; used by cpt_recipe.py and tests.

The tokens of all documents are concatenated, each document ended by EOS, and cut into blocks. What does not fill the
last block is dropped and counted. If the tokenizer puts a BOS before a text (Gemma), each block begins with one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from trainlab.data.corpus import Corpus
from trainlab.data.text_files import Document
from trainlab.errors import UserError
from trainlab.models.chat import begin

BATCH = 256  # documents tokenized at once


@dataclass(frozen=True)
class Packed:
    """Blocks of equal length, drawn from `made` ones; `tokens` counts all, EOS included, `remainder` the leftover."""

    blocks: list[list[int]]
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


def row(tokenizer: Any, documents: Sequence[Document]) -> tuple[list[int], list[str]]:
    """Return the tokens of all documents in a row, EOS after each, and for each token the id of its document.

    Raises UserError when the tokenizer has no EOS: documents would run into each other.
    """
    if tokenizer.eos_token_id is None:
        raise UserError("phase.model.source: its tokenizer has no EOS to end a document; use another model")
    tokens: list[int] = []
    owners: list[str] = []
    for first in range(0, len(documents), BATCH):
        batch = documents[first : first + BATCH]
        encoded = tokenizer([one.text for one in batch], add_special_tokens=False)["input_ids"]
        for one, ids in zip(batch, encoded, strict=True):
            tokens += [*ids, tokenizer.eos_token_id]
            owners += [one.id] * (len(ids) + 1)
    return tokens, owners


def pack(tokenizer: Any, documents: Sequence[Document], length: int) -> Packed:
    """Return blocks of `length` tokens each."""
    tokens, owners = row(tokenizer, documents)
    head = begin(tokenizer)
    size = length - len(head)
    starts = range(0, len(tokens) - size + 1, size)
    blocks = [[*head, *tokens[start : start + size]] for start in starts]
    topics = [owners[start] for start in starts]
    return Packed(blocks, topics, len(documents), len(tokens), len(tokens) - len(blocks) * size, len(blocks))


def pack_corpus(
    tokenizer: Any, corpus: Corpus, length: int, train_rows: int | None, heldout_rows: int | None
) -> Blocks:
    """Return the parts of a corpus as blocks, with limits for the training and held-out parts, drawn evenly.

    Raises UserError if a required part fills no block.
    """
    parts = {
        name: pack(tokenizer, documents, length)
        for name, documents in (
            ("training", corpus.train),
            ("validation", corpus.validation),
            ("held-out", corpus.heldout),
        )
    }
    for name, part in parts.items():
        if part.documents and not part.blocks:
            raise UserError(
                f"phase.model.max_length is {length}: the {name} part has {part.tokens} tokens, less than one block; "
                "lower it, or provide more text"
            )
    return Blocks(thin(parts["training"], train_rows), parts["validation"], thin(parts["held-out"], heldout_rows))


def thin(part: Packed, count: int | None) -> Packed:
    """Return a part with at most `count` of its blocks, spread evenly over it."""
    have = len(part.blocks)
    if count is None or count >= have:
        return part
    chosen = [index * have // count for index in range(count)]
    return replace(part, blocks=[part.blocks[i] for i in chosen], topics=[part.topics[i] for i in chosen])
