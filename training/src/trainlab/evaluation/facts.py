"""Fact recall: which of the facts that a right answer must contain does a text contain? Pure text, no model.

Used by answer_score (share per item) and report (marking). It sees neither negation nor wrong additions: the answer loss and
the texts themselves are reported with it. Data sets document how they write facts (data/*/README.md).
"""

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby

Fact = Sequence[str]
_SAME = str.maketrans(
    {"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u2044": "/"} | dict.fromkeys("*`\u00b0")
)
_DASHES = re.compile("[\u2010-\u2015\u2212]")


def normalize(text: str) -> str:
    """Return `text` in lower case with plain quotes, dashes and single spaces, without emphasis and degree signs."""
    return _mapped(unicodedata.normalize("NFC", text))[0].rstrip()


def marked(text: str, facts: Sequence[Fact]) -> list[tuple[str, bool]]:
    """Return `text` cut into (piece, whether it is a spelling of one of `facts`), in order; joined they are the text."""
    text = unicodedata.normalize("NFC", text)
    plain, origin = _mapped(text)
    inside = [False] * len(text)
    for fact in facts:
        for spelling in fact:
            for match in _pattern(spelling).finditer(plain):
                for place in range(origin[match.start()], origin[match.end() - 1] + 1):
                    inside[place] = True
    runs = groupby(zip(text, inside, strict=True), key=lambda pair: pair[1])
    return [("".join(letter for letter, _ in run), said) for said, run in runs]


def found(text: str, facts: Sequence[Fact]) -> list[bool]:
    """Return for each fact whether one of its spellings occurs in `text` (any text; normalized here)."""
    plain = normalize(text)
    return [any(_pattern(spelling).search(plain) for spelling in fact) for fact in facts]


def recall(text: str, facts: Sequence[Fact]) -> float | None:
    """Return the share (0 to 1) of `facts` found in `text`; None where there are no facts to find."""
    hits = found(text, facts)
    return sum(hits) / len(hits) if hits else None


def _mapped(text: str) -> tuple[str, list[int]]:
    """Return the normalized text and, for each of its characters, the index in `text` that it came from."""
    plain: list[str] = []
    origin: list[int] = []
    for index, letter in enumerate(text):
        for part in _DASHES.sub("-", unicodedata.normalize("NFKC", letter).translate(_SAME)).lower():
            if not part.isspace():
                plain.append(part)
                origin.append(index)
            elif plain and plain[-1] != " ":
                plain.append(" ")
                origin.append(index)
    return "".join(plain), origin


@lru_cache(maxsize=8192)
def _pattern(spelling: str) -> re.Pattern[str]:
    """Return the pattern of one spelling: it starts at the start of a word or number.

    Its end may lie inside a word ("62 mi" stands for "62 miles") and before or inside decimals ("1.6" for "1.609", "235"
    for "235.2"), but not inside the whole part of a number: "30" is not "300", "1" is not "1,000".
    """
    plain = normalize(spelling)
    before = r"(?<![^\W_])(?<!\d[.,])" if plain[:1].isdigit() else r"(?<![^\W_])" if plain[:1].isalnum() else ""
    whole = re.search(r"(?<![.,\d])\d+$", plain)
    after = r"(?!\d|,\d)" if whole else ""
    return re.compile(before + re.escape(plain) + after)
