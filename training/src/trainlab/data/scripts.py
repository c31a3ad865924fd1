"""What a word is, in any script: letters and digits with their marks, as Unicode has them; used wherever texts are compared. No torch.

Chinese, Japanese, Thai and their like put no space between words: there a letter is no boundary of another. Korean words take
particles, Arabic and Hebrew ones an article and prefixes.
"""

import unicodedata

import regex

_UNSPACED = (
    r"\p{Han}\p{Hiragana}\p{Katakana}\p{Bopomofo}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}\p{Javanese}\p{Balinese}"
    r"\p{Tai_Le}\p{New_Tai_Lue}\p{Tai_Tham}\p{Tai_Viet}\u30fc"
)
_IN_WORD = rf"[[\p{{L}}\p{{N}}\p{{M}}]--[{_UNSPACED}]]"
_INVISIBLE = regex.compile(r"[\u00ad\u200b-\u200d\u2060\ufeff]")
_WORD = regex.compile(r"[\p{L}\p{N}\p{M}_]+(?:(?<=[\p{L}\p{M}])[+#]+)?")
_PIECE = regex.compile(rf"(?V1)[{_UNSPACED}]|[[\p{{L}}\p{{N}}\p{{M}}_]--[{_UNSPACED}]]{{2,}}")
_PARTICLES = (  # of Korean nouns: topic, subject, object, place, direction, with, also, only, until, from, is
    "\uc774|\uac00|\uc740|\ub294|\uc744|\ub97c|\uc758|\uc5d0|\uc5d0\uc11c|\uc5d0\uac8c|\uaed8|\ud55c\ud14c|\ub85c|"
    "\uc73c\ub85c|\uc640|\uacfc|\ub791|\uc774\ub791|\ub3c4|\ub9cc|\uae4c\uc9c0|\ubd80\ud130|\ubcf4\ub2e4|"
    "\ucc98\ub7fc|\ub9c8\ub2e4|\ubc16\uc5d0|\uc870\ucc28|\ub9c8\uc800|"
    "\uc774\ub098|\ub098|\uc774\uba70|\uba70|\uc774\uace0|\uace0|\uc774\ub2e4|\ub2e4|\uc785\ub2c8\ub2e4|"
    "\uc774\uc5d0\uc694|\uc608\uc694|\uc774\ub77c\uace0|\ub77c\uace0|\uc774\ub77c\ub294|\ub77c\ub294|\ub4e4"
)
_HANGUL, _ARABIC, _HEBREW = (regex.compile(rf"\p{{{script}}}") for script in ("Hangul", "Arabic", "Hebrew"))
_JUDGED = regex.compile(r"[\p{L}\p{N}]")


def normal(text: str) -> str:
    """Return a text without the case, punctuation and spacing that do not make it a different one, as + and # after a letter do
    (C++, C#)."""
    return " ".join(_WORD.findall(_INVISIBLE.sub("", unicodedata.normalize("NFKC", text).casefold())))


def pieces(text: str) -> list[str]:
    """Return the words of a text that a search compares: those of two characters or more, and each letter of an unspaced script."""
    return [str(piece) for piece in _PIECE.findall(text)]


def pattern(plain: str) -> str:
    """Return the pattern, for `regex` with (?V1), that finds `plain` as whole words and numbers; the last word may have a simple ending.

    "30" is neither "300" nor "1,300", "car" is not "carbon"; but "1.6" is said by "1.609" and "235" by "235.2".
    """
    first, last, literal = plain[:1], plain[-1:], regex.escape(plain)
    before = after = ""
    if first.isdigit():
        before = rf"(?<!{_IN_WORD})(?<!\d[.,])"
    elif _is_spaced(first):
        before = rf"(?<!{_IN_WORD})"
        if _ARABIC.match(first):
            literal = regex.escape(plain.removeprefix("\u0627\u0644")) if len(plain) > 3 else literal
            before += "(?:[\u0648\u0641]?[\u0628\u0643]?(?:\u0627\u0644)?|[\u0648\u0641]?\u0644\u0644?)"
        elif _HEBREW.match(first):
            before += "[\u05d5\u05d4\u05d1\u05dc\u05de\u05e9\u05db]{0,3}"
    if not _is_spaced(last):
        after = r"(?!\p{M})" if regex.match(r"[\p{L}\p{M}]", last) else ""
        if last.isdigit() and regex.search(r"(?<![.,\d])\d+$", plain):
            after = r"(?!\d|,\d)"
    elif _HANGUL.match(last):
        after = rf"(?:{_PARTICLES}){{0,3}}(?!{_IN_WORD})"
    elif _ARABIC.match(last):
        after = (
            rf"(?:\u0647|\u0647\u0627|\u0647\u0645|\u0647\u0646|\u0643|\u0643\u0645|\u0646\u0627|\u064a|"
            rf"\u0627\u062a|\u0627\u0646|\u064a\u0646|\u0648\u0646|\u0627)?(?!{_IN_WORD})"
        )
    elif last.isalpha():
        literal, after = _inflected(literal, plain), rf"(?!{_IN_WORD})"
    else:
        after = rf"(?!{_IN_WORD})"
    return f"(?V1){before}{literal}{after}"


def not_judged(spelling: str) -> str | None:
    """Return why a text that an answer must contain cannot be found in it reliably, None if it can."""
    plain = unicodedata.normalize("NFKC", spelling).strip()
    if not _JUDGED.search(plain):
        return "has no letter and no digit"
    if regex.fullmatch(rf"[{_UNSPACED}]", plain):
        return "is one letter of a script without spaces, which other words contain; write the whole word"
    return None


def latin_only(text: str) -> bool:
    """Say whether all letters of a text are Latin."""
    return not regex.search(r"(?V1)[\p{L}--\p{Latin}]", text)


def _is_spaced(letter: str) -> bool:
    """Say whether a character is a letter or mark of a script that puts spaces between words."""
    return bool(regex.match(rf"(?V1)[[\p{{L}}\p{{M}}]--[{_UNSPACED}]]", letter))


def _inflected(literal: str, plain: str) -> str:
    """Return a pattern of a text, also with s, es, ed or ing as English adds them: "slide" sliding, "stir" stirred."""
    stem, last = literal[:-1], plain[-1]
    if not regex.match(r"\p{Latin}", last):
        return literal
    if last == "e":
        return stem + "(?:e(?:s|d|ing)?|ing)"
    if last == "y":
        return stem + "(?:y(?:s|ed|ing)?|ies|ied)"
    return stem + last + f"(?:s|es|{last}?ed|{last}?ing)?"
