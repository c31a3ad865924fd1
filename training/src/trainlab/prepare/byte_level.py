"""tiktoken in the place of a byte-level BPE of tokenizers: the same ids at several times the speed; used by tokens.py.

Both join the neighbours of lowest rank first; tokenizers ranks pairs, tiktoken the bytes that a pair makes. What stands
between two borders that stay is joined as if it stood alone. So both agree on every text when each token that tiktoken
gets is what tokenizers makes of that token's bytes. A token that is not, tokenizers can never make: it is left out.
How a text is cut into words before that is a pattern in both, but for two engines: tests compare them on each character.
"""

import json
import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import tiktoken
from tiktoken_ext.openai_public import r50k_pat_str
from tokenizers import Tokenizer
from tokenizers.models import BPE
from transformers.convert_slow_tokenizer import bytes_to_unicode

RUN = 1 << 15  # characters; tiktoken's patterns give up on a run of some hundred thousand (openai/tiktoken#15)
RUNS = re.compile(r"\S+|\s+")
# The pattern of GPT-2 (r50k) where each digit was cut off before: a blank before a digit stands at the end of its part.
DIGITS = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++|\p{N}| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?![^\s\p{N}])|\s"""
LLAMA = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
    r"\s+(?!\S)|\s+"
)
NEW = "[\U00011de0-\U00011de9\U00016ff4-\U00016ff6]"  # of Unicode 17: digits to tokenizers, not yet to tiktoken
SPLITS = (LLAMA, LLAMA.replace("{1,3}", ""))  # Llama 3, Qwen 2: they stand in tokenizer.json as they are


class Unsuited(Exception):
    """Why a tokenizer stays with the library tokenizers."""


@dataclass(frozen=True)
class ByteLevel:
    """A tokenizer; `apart` finds what only tokenizers knows, ids from `size` on stand for bytes that no token has."""

    encoding: tiktoken.Encoding
    size: int
    apart: re.Pattern[str] | None
    normalizer: Any

    def encode(self, texts: Sequence[str]) -> list[list[int] | None]:
        """Return the tokens of each text, None where tokenizers has to be asked, using all cores."""
        cores = len(os.sched_getaffinity(0))
        found: list[list[int] | None] = [None] * len(texts)
        with ThreadPoolExecutor(cores) as pool:  # tiktoken does not hold the lock of the interpreter
            parts = pool.map(lambda part: [self._one(text) for text in part], (texts[i::cores] for i in range(cores)))
            for first, part in enumerate(parts):
                found[first::cores] = part
        return found

    def _one(self, text: str) -> list[int] | None:
        plain = text if self.normalizer is None else self.normalizer.normalize_str(text)
        if self.apart and (self.apart.search(text) or self.apart.search(plain)):
            return None
        if len(plain) > RUN and any(one.end() - one.start() > RUN for one in RUNS.finditer(plain)):
            return None
        ids = self.encoding.encode_ordinary(plain)
        return None if max(ids, default=0) >= self.size else ids


def build(backend: Tokenizer) -> ByteLevel:
    """Return the same tokenizer on tiktoken; raises Unsuited."""
    described: dict[str, Any] = json.loads(backend.to_str())
    model, added = described["model"], described["added_tokens"]
    if model["type"] != "BPE":
        raise Unsuited(f"its model is {model['type']}, not BPE")
    for key in ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"):
        if model.get(key):
            raise Unsuited(f"its BPE has {key}")
    pattern = _pattern(described["pre_tokenizer"])
    size = max(backend.get_vocab(with_added_tokens=True).values()) + 1
    ranks = _ranks(model, {token["content"] for token in added}, size)
    apart = [re.escape(token["content"]) for token in added if not token["special"]]
    apart += [NEW] if pattern == DIGITS else []
    return ByteLevel(
        tiktoken.Encoding("trainlab", pat_str=pattern, mergeable_ranks=ranks, special_tokens={}),
        size,
        re.compile("|".join(apart)) if apart else None,
        backend.normalizer,
    )


def _pattern(pre: Any) -> str:
    """Return the pattern that cuts a text into words as a pre-tokenizer does."""
    parts = pre["pretokenizers"] if pre and pre["type"] == "Sequence" else [pre]
    last, before = parts[-1], parts[:-1]
    if not last or last["type"] != "ByteLevel" or last["add_prefix_space"] or len(before) > 1:
        raise Unsuited("its pre-tokenizer is not one of the byte-level ones known here")
    if not before and last["use_regex"]:
        return str(r50k_pat_str)
    if before and before[0] == {"type": "Digits", "individual_digits": True} and last["use_regex"]:
        return DIGITS
    for pattern in SPLITS:
        split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        if before and before[0] == split and not last["use_regex"]:
            return pattern
    raise Unsuited("its pre-tokenizer is not one of the byte-level ones known here")


def _ranks(model: dict[str, Any], added: set[str], size: int) -> dict[bytes, int]:
    """Return the bytes of each token that can be made with its id, which is its rank; missing bytes from `size` on."""
    vocabulary: dict[str, int] = model["vocab"]
    merges = [tuple(merge) for merge in model["merges"]]
    made = [left + right for left, right in merges]
    ids = [vocabulary[token] for token in made]
    if any(one >= other for one, other in pairwise(ids)):
        raise Unsuited("its ids are not in the order of its merges")
    plain = Tokenizer(BPE(vocab=vocabulary, merges=merges))
    found = plain.encode_batch_fast(made, add_special_tokens=False)
    reached = {token: one for token, one, tokens in zip(made, ids, found, strict=True) if tokens.ids == [one]}
    letters = bytes_to_unicode()
    if model.get("ignore_merges") and set(vocabulary) - set(reached) - set(letters.values()) - added:
        raise Unsuited("it knows words that its merges do not make")
    values = {letter: byte for byte, letter in letters.items()}
    if not values.keys() >= set("".join(reached)):
        raise Unsuited("its tokens are not made of bytes")
    single = {bytes([byte]): vocabulary.get(letter, size + byte) for byte, letter in letters.items()}
    return single | {bytes(values[letter] for letter in token): one for token, one in reached.items()}
