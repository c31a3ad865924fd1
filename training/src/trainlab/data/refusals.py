"""Refusals that are taught: refusals.json of a data set, and what counts as a refusal; pure text, no torch."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from trainlab import files
from trainlab.errors import UserError

NAME = "refusals.json"
OTHER, EMERGENCY = "other", "emergency"
SAME_ANSWER = 0.5
"""Word F1 from which on two answers are taken for the same one. Measured over all pairs of 67 taught answers: one pair reaches
0.53, all others stay below 0.46; what a tuned model of the probe said with a neighbor's answer reached 0.62 to 1."""


@dataclass(frozen=True)
class Refusals:
    """The sentences of a data set: `begins` starts each of them, `answers` has one for each topic, other and emergency."""

    begins: str
    answers: Mapping[str, str]

    def sentence(self, topic: str, emergency: bool) -> str:
        """Return the answer to a question of `topic` (name of its file) that is refused."""
        return self.answers[EMERGENCY if emergency else topic if topic in self.answers else OTHER]


def load(folder: Path) -> Refusals:
    """Return the refusals of a data set; raises UserError that names the file and the key, also where there is no file."""
    path = folder / NAME
    if not path.is_file():
        raise UserError(f"{path}: no such file, which phase.data.refused_rows needs; add it, or set refused_rows to 0")
    content = files.read_json(path)
    begins, answers = (content.get(key) if isinstance(content, dict) else None for key in ("begins", "answers"))
    if not isinstance(begins, str) or not begins.strip():
        raise UserError(f"{path}: begins must be the text that each refusal starts with")
    if not isinstance(answers, dict) or not {OTHER, EMERGENCY} <= answers.keys():
        raise UserError(f"{path}: answers must have a sentence for each topic, for {OTHER} and for {EMERGENCY}")
    for key, sentence in answers.items():
        if not isinstance(sentence, str) or not is_refusal(sentence, begins):
            raise UserError(f"{path}: answers.{key} is {sentence!r}: must be a text that starts with {begins!r}")
    return Refusals(begins, answers)


def is_refusal(text: str, begins: str) -> bool:
    """Return whether an answer, without its label line, starts with `begins`; case and spacing do not count."""
    return " ".join(text.casefold().split()).startswith(" ".join(begins.casefold().split()))


def overlap(text: str, other: str) -> float:
    """Return the F1 (0 to 1) of the words of two texts, however they are ordered; 0 where one has no words."""
    one, two = _words(text), _words(other)
    common = sum(min(count, two[word]) for word, count in one.items() if word in two)
    return 2 * common / (one.total() + two.total()) if common else 0.0


@lru_cache(maxsize=4096)
def _words(text: str) -> Counter[str]:
    return Counter(re.findall(r"\w+", text.casefold()))


def same_answer(text: str, others: Iterable[str]) -> bool:
    """Return whether `text` is in effect one of `others`: an overlap of at least SAME_ANSWER."""
    return any(overlap(text, other) >= SAME_ANSWER for other in others)
