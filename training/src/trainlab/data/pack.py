"""Documents as tokens, and as blocks of tokens of one length; used by prepare/, cpt and pretrain.

Each document is ended by EOS and, if the tokenizer puts a BOS before a text (Gemma), begins with one. No document is truncated; what does
not fill the last block is dropped and counted."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from trainlab import files
from trainlab.data.corpus import Corpus
from trainlab.data.text_files import Document
from trainlab.errors import UserError
from trainlab.models.export import bos_prefix

Ids = Sequence[int] | NDArray[np.int64]


@dataclass(frozen=True)
class Tokens:
    """A fast tokenizer; `begin` is [BOS] if it puts one before every text (Gemma), `size` its highest id plus one."""

    backend: Any
    begin: list[int]
    eos: int
    size: int
    longest: int | None  # tokens that the folder's model accepts, None if the folder does not say

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the tokens of each text, without special ones, using all cores.

        A text that contains a special token (<|endoftext|> in a page about tokenizers) gives ordinary tokens.
        """
        return [encoding.ids for encoding in self.backend.encode_batch_fast(list(texts), add_special_tokens=False)]

    def documents(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the tokens of each text with BOS if the tokenizer has one, and EOS."""
        return [[*self.begin, *ids, self.eos] for ids in self.encode(texts)]

    def digest(self) -> str:
        """Return a digest that changes with the tokens that a text gets."""
        return xxhash.xxh3_128_hexdigest(f"{self.backend.to_str()} {self.begin} {self.eos}".encode())


def load_tokenizer(folder: Path) -> Tokens:
    """Return the tokenizer of a model folder; raises UserError if it is unusable."""
    if not (folder / "tokenizer_config.json").is_file():
        raise UserError(f"--tokenizer {folder}: no tokenizer_config.json there; name a model folder (`trainlab fetch`)")
    from transformers import AutoTokenizer

    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # transformers and tokenizers raise many classes here
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"--tokenizer {folder}: cannot be loaded ({first}); fetch the model again") from None
    return tokenizer_of(tokenizer, f"--tokenizer {folder}", _longest(folder))


OF_MODEL = "phase.model.source: its tokenizer"


def tokenizer_of(tokenizer: Any, name: str, longest: int | None = None) -> Tokens:
    """Return how a tokenizer reads running text; raises UserError, which begins with `name`, for one that cannot be used."""
    from tokenizers import Tokenizer

    if not tokenizer.is_fast:
        raise UserError(f"{name}: is not a fast tokenizer; convert it (it needs a tokenizer.json)")
    eos = tokenizer.eos_token_id
    if eos is None:
        raise UserError(
            f"{name}: has no EOS to end a document; set eos_token in its tokenizer_config.json, or use another model"
        )
    # A copy of our own: whoever calls the tokenizer sets its options back, encode_special_tokens among them.
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.encode_special_tokens = True
    backend.no_truncation()
    backend.no_padding()
    size = max(backend.get_vocab(with_added_tokens=True).values()) + 1
    return Tokens(backend, bos_prefix(tokenizer), int(eos), size, longest)


def _longest(folder: Path) -> int | None:
    """Return the positions of the folder's model, None if there is no config.json or it names none."""
    path = folder / "config.json"
    config = files.read_json(path) if path.is_file() else {}
    inner = config.get("text_config") or config  # Gemma 3 and other multimodal models
    value = inner.get("max_position_embeddings")
    return int(value) if value else None


class Packer:
    """Cuts documents of tokens into blocks of `length`; `rest` are the tokens of the unfinished block."""

    def __init__(self, length: int, rest: Sequence[int] = (), dtype: Any = np.int64) -> None:
        self._length, self._dtype = length, dtype
        self.rest: NDArray[Any] = np.array(rest, dtype=dtype)

    def add(self, documents: Sequence[Ids]) -> NDArray[Any]:
        """Return the blocks that are now full, shape (n, length)."""
        row = np.concatenate([self.rest, *(np.asarray(document, dtype=self._dtype) for document in documents)])
        end = len(row) // self._length * self._length
        self.rest = row[end:]
        return row[:end].reshape(-1, self._length)


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


def pack(names: Sequence[str], documents: Sequence[Ids], length: int) -> Packed:
    """Return documents of tokens, EOS included, as blocks of `length` tokens each; `names` are those of the documents."""
    packer = Packer(length)
    blocks = packer.add(documents)
    ends = np.cumsum([len(document) for document in documents])
    topics = [names[owner] for owner in np.searchsorted(ends, np.arange(len(blocks)) * length, side="right")]
    total = blocks.size + len(packer.rest)
    return Packed(blocks.tolist(), topics, len(documents), total, len(packer.rest), len(blocks))


def pack_corpus(
    tokenizer: Any, corpus: Corpus, length: int, train_rows: int | None, heldout_rows: int | None
) -> Blocks:
    """Return the parts of a corpus as blocks, with limits for the training and held-out parts, drawn evenly.

    Raises UserError if a required part fills no block, or documents cannot be told apart: a tokenizer without EOS.
    """
    read = tokenizer_of(tokenizer, OF_MODEL)
    train, heldout = (
        pack_part(read, part, documents, length)
        for part, documents in (("training", corpus.train), ("held-out", corpus.heldout))
    )
    validation = pack_part(read, "validation", corpus.validation, length)
    return Blocks(thin(train, train_rows), validation, thin(heldout, heldout_rows))


def pack_part(read: Tokens, part: str, documents: Sequence[Document], length: int) -> Packed:
    """Return one part of a corpus as blocks; raises UserError as pack_corpus does."""
    ids = read.documents([document.text for document in documents])
    blocks = pack([document.id for document in documents], ids, length)
    if documents and not blocks.blocks:
        raise UserError(
            f"phase.model.max_length is {length}: the {part} part has {blocks.tokens} tokens, less than one block; "
            "lower it, or provide more text"
        )
    return blocks


def thin(part: Packed, count: int | None) -> Packed:
    """Return a part with at most `count` of its blocks, spread evenly over it."""
    if count is None or count >= len(part):
        return part
    chosen = spread(len(part), count)
    return replace(part, blocks=[part.blocks[i] for i in chosen], topics=[part.topics[i] for i in chosen])


def spread(have: int, count: int) -> list[int]:
    """Return `count` of the indices 0 to `have` - 1, ascending, spread evenly over them."""
    return [index * have // count for index in range(count)]
