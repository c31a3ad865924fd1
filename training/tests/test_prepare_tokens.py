"""trainlab prepare: tiktoken gives the ids of tokenizers, character by character, or is not used and that is said."""

from collections.abc import Callable
from itertools import product
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import pytest
from corpora import make_tokenizer, text
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
from trainlab.prepare import byte_level
from trainlab.prepare.tokens import Tokens, load, quicken
from transformers.convert_slow_tokenizer import bytes_to_unicode

LETTERS = list(bytes_to_unicode().values())  # letter of each byte
VALUES = {letter: byte for byte, letter in bytes_to_unicode().items()}
MANUAL = list(topics.values())


def words(use_regex: bool = True) -> Any:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


def split(pattern: str) -> Any:
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), words(False)])


PRE: dict[str, Callable[[], Any]] = {
    "gpt2": words,
    "digits": lambda: pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), words()]),
    "llama": lambda: split(byte_level.SPLITS[0]),
    "qwen": lambda: split(byte_level.SPLITS[1]),
}


def bpe(merges: list[tuple[str, str]], pre: Any, without: str = "") -> Tokenizer:
    """Return a byte-level BPE of these merges, whose vocabulary lacks the letters `without`."""
    tokens = [*(letter for letter in LETTERS if letter not in without), *(one + other for one, other in merges)]
    tokenizer = Tokenizer(models.BPE(vocab={token: number for number, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre
    return tokenizer


def backwards() -> Tokenizer:
    """Return one whose first merge has the higher id."""
    vocabulary = {token: number for number, token in enumerate([*LETTERS, "bc", "ab"])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[("a", "b"), ("b", "c")]))
    tokenizer.pre_tokenizer = words()
    return tokenizer


def ids(tokenizer: Tokenizer, texts: list[str]) -> list[list[int]]:
    return [one.ids for one in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]


def as_tokens(tokenizer: Tokenizer) -> Tokens:
    return Tokens(tokenizer, [], 0, tokenizer.get_vocab_size(), None)


@pytest.mark.parametrize("name", PRE)
def test_both_cut_words_alike_at_each_character(name: str) -> None:
    """Any two bytes can be joined, the lowest pair first: a border of a word elsewhere gives other ids.

    All characters of the planes in use, of the ideographs and Hangul syllables one in fifty.
    """
    alike = [range(0x3400, 0xA000), range(0xAC00, 0xD7A4), range(0x17000, 0x18D00), range(0x20000, 0x33480)]
    points = [
        *(point for point in [*range(0x20000), *range(0xE0000, 0xE0200)] if not any(point in one for one in alike)),
        *(point for one in alike for point in one[::50]),
    ]
    characters = [chr(point) for point in points if not 0xD800 <= point < 0xE000]
    texts = [
        "".join(f"a{one}1{one}!{one} {one}{one}" for one in characters[first : first + 64])
        for first in range(0, len(characters), 64)
    ]
    pairs = sorted(product(LETTERS, repeat=2), key=lambda pair: (VALUES[pair[0]], VALUES[pair[1]]))
    tokenizer = bpe(pairs, PRE[name]())
    fast = byte_level.build(tokenizer).encode(texts)
    slow = ids(tokenizer, texts)
    assert sum(one is None for one in fast) <= (3 if name == "digits" else 0)
    other = [number for number, one in enumerate(fast) if one is not None and one != slow[number]]
    assert not other, [hex(ord(one)) for one in texts[other[0]]]


@pytest.mark.parametrize("name", PRE)
def test_a_trained_tokenizer_gives_the_same_ids_of_real_text(name: str) -> None:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = PRE[name]()
    trainer = trainers.BpeTrainer(
        vocab_size=3000, special_tokens=["<|end|>"], initial_alphabet=LETTERS, show_progress=False
    )
    tokenizer.train_from_iterator(MANUAL[::3], trainer)
    quick, said = quicken(as_tokens(tokenizer), MANUAL[:5])
    assert said.startswith("tiktoken ") and said.endswith(" on 5 documents)")
    assert quick.fast and None not in quick.fast.encode(MANUAL)
    assert quick.encode(MANUAL) == ids(tokenizer, MANUAL)


def test_a_token_that_no_merge_can_reach_is_not_made() -> None:
    """ "abc" is a and bc, but ab is joined first: the bytes are in the vocabulary, and tokenizers never makes the token."""
    tokenizer = bpe([("a", "b"), ("b", "c"), ("a", "bc"), ("abc", "d")], words())
    assert ids(tokenizer, ["abc abcd bc"]) == quicken(as_tokens(tokenizer), [])[0].encode(["abc abcd bc"])
    assert tokenizer.token_to_id("abc") not in ids(tokenizer, ["abc"])[0]


def test_texts_that_only_tokenizers_knows_go_there() -> None:
    tokenizer = bpe([("a", "b")], words(), without="\u00a1")  # a byte that stands in an inverted exclamation mark
    tokenizer.add_tokens([AddedToken("<think>", normalized=False)])
    tokenizer.normalizer = normalizers.NFC()
    quick = quicken(as_tokens(tokenizer), [])[0]
    run = byte_level.RUN + 1
    texts = ["ab\u00a1ab", "ab<think>ab", "x" * run, " " * run + "x", "e\u0301 ab", "", "ab " * run]
    assert quick.fast and [one is None for one in quick.fast.encode(texts)] == [True] * 4 + [False] * 3
    assert quick.encode(texts) == ids(tokenizer, texts)


@pytest.mark.parametrize(
    ("tokenizer", "reason"),
    [
        (Tokenizer(models.Unigram([("a", -1.0)])), "its model is Unigram, not BPE"),
        (
            bpe([("a", "b")], pre_tokenizers.Metaspace()),
            "its pre-tokenizer is not one of the byte-level ones known here",
        ),
        (bpe([], split("a+")), "its pre-tokenizer is not one of the byte-level ones known here"),
        (backwards(), "its ids are not in the order of its merges"),
        (
            Tokenizer(models.BPE(vocab={"a": 0, "</w>": 1}, merges=[], end_of_word_suffix="</w>")),
            "its BPE has end_of_word_suffix",
        ),
    ],
)
def test_another_tokenizer_stays_with_its_library_and_that_is_said(tokenizer: Tokenizer, reason: str) -> None:
    tokens = as_tokens(tokenizer)
    same, said = quicken(tokens, ["ab"])
    assert same is tokens and said.startswith("tokenizers ") and said.endswith(f" ({reason})")


def test_a_probe_that_differs_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = load(make_tokenizer(tmp_path))
    monkeypatch.setattr(byte_level, "r50k_pat_str", r"\w|\W")
    same, said = quicken(tokens, ["", text(1)])
    assert same is tokens and said.endswith("(tiktoken gives other ids for document 2 of the probe)")
