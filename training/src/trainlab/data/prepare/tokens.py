"""Documents as tokens, many at once; used by pipeline.py, pack_shards.py, data/pack.py and bench/tokenization.py."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash

from trainlab import files
from trainlab.errors import UserError


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
        return [one.ids for one in self.backend.encode_batch_fast(list(texts), add_special_tokens=False)]

    def documents(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the tokens of each text with BOS if the tokenizer has one, and EOS."""
        return [[*self.begin, *ids, self.eos] for ids in self.encode(texts)]

    def digest(self) -> str:
        """Return a digest that changes with the tokens that a text gets."""
        return xxhash.xxh3_128_hexdigest(f"{self.backend.to_str()} {self.begin} {self.eos}".encode())


def load(folder: Path) -> Tokens:
    """Return the tokenizer of a model folder; raises UserError if it is unusable."""
    if not (folder / "tokenizer_config.json").is_file():
        raise UserError(f"--tokenizer {folder}: no tokenizer_config.json there; name a model folder (`trainlab fetch`)")
    from transformers import AutoTokenizer

    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # transformers and tokenizers raise many classes here
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"--tokenizer {folder}: cannot be loaded ({first}); fetch the model again") from None
    return of(tokenizer, f"--tokenizer {folder}", _longest(folder))


def of(tokenizer: Any, name: str, longest: int | None = None) -> Tokens:
    """Return how a tokenizer reads running text; raises UserError, which begins with `name`, for one that cannot be used."""
    from tokenizers import Tokenizer

    from trainlab.models import chat  # imports torch, as transformers has just done

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
    return Tokens(backend, chat.begin(tokenizer), int(eos), size, longest)


def _longest(folder: Path) -> int | None:
    """Return the positions of the folder's model, None if there is no config.json or it names none."""
    path = folder / "config.json"
    config = files.read_json(path) if path.is_file() else {}
    inner = config.get("text_config") or config  # Gemma 3 and other multimodal models
    value = inner.get("max_position_embeddings")
    return int(value) if value else None
