"""Normalizes a text, and the rules that drop texts which teach nothing; used by ingest.py.

Rules and thresholds marked Gopher: Rae et al. 2021, arXiv:2112.11446, appendix A.1.1. They are meant for
languages that separate words by spaces; `--without` turns one off.
"""

import re
import unicodedata
from collections.abc import Callable, Sequence

CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f\ufeff\u200b]")
TRAILING = re.compile(r"[ \t]+$", re.MULTILINE)
BLANK = re.compile(r"\n{3,}")


def normalize(text: str) -> str:
    """Return `text` in NFC with \\n as line end, without control characters, trailing blanks and runs of empty lines."""
    text = unicodedata.normalize("NFC", text.replace("\r\n", "\n").replace("\r", "\n"))
    return BLANK.sub("\n\n", TRAILING.sub("", CONTROL.sub("", text))).strip("\n")


def dropped_by(text: str, min_chars: int, without: tuple[str, ...] = ()) -> str | None:
    """Return the name of the first rule that drops a normalized text, None for a text that is kept."""
    if not text:
        return "empty"
    if len(text) < min_chars:
        return "short"
    return next((name for name, rule in RULES.items() if name not in without and rule(text)), None)


def cleaned(texts: Sequence[str], min_chars: int, without: tuple[str, ...] = ()) -> list[tuple[str, str | None, bytes]]:
    """Return for each text the normalized one, the rule that drops it if one does, and its XXH3-128."""
    import xxhash  # a report needs none of what prepares a corpus

    normalized = [normalize(text) for text in texts]
    return [(text, dropped_by(text, min_chars, without), xxhash.xxh3_128_digest(text.encode())) for text in normalized]


def _letters(text: str) -> bool:
    """Gopher: at least 80 % of the words contain a letter."""
    words = text.split()
    return sum(any(map(str.isalpha, word)) for word in words) < 0.8 * len(words)


def _word_length(text: str) -> bool:
    """Gopher: the mean word has 3 to 10 characters."""
    words = text.split()
    return not 3 * len(words) <= sum(map(len, words)) <= 10 * len(words)


def _repeated_lines(text: str) -> bool:
    """Gopher: at most 30 % of the lines repeat an earlier one."""
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    return len(lines) - len(set(lines)) > 0.3 * len(lines)


def _broken(text: str) -> bool:
    """More than one character in a thousand is U+FFFD: wrongly decoded earlier (our own threshold)."""
    return text.count("\ufffd") * 1000 > len(text)


RULES: dict[str, Callable[[str], bool]] = {
    "broken": _broken,
    "letters": _letters,
    "word_length": _word_length,
    "repeated_lines": _repeated_lines,
}
