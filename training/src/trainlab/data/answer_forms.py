"""What an answer consists of: the line with topic and emergency, numbered steps, refusals; pure text, no torch."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TypedDict

from trainlab import files
from trainlab.errors import UserError

WARNING, ALTERNATIVE = "Warning:", "Alternative:"
REFUSALS = "refusals.json"
OTHER, EMERGENCY = "other", "emergency"
SAME_ANSWER = 0.5
"""Word F1 from which on two answers are taken for the same one. Measured over all pairs of 67 taught answers: one pair reaches
0.53, all others stay below 0.46; what a tuned model of the probe said with a neighbor's answer reached 0.62 to 1."""
_LINE = re.compile(r"\s*(topic\b.*?\bemergency\W+\w+)[^\w\n]*", re.IGNORECASE)


def label_line(topic: str, emergency: bool) -> str:
    """Return the line for a topic (name of its file) and whether the question tells of an emergency."""
    return f"Topic: {topic.replace('_', ' ')}. Emergency: {'yes' if emergency else 'no'}."


def split_label(text: str) -> tuple[str, str]:
    """Return (the line that `text` starts with, empty if none; the rest)."""
    match = _LINE.match(text)
    return (match[1].strip(), text[match.end() :].strip()) if match else ("", text)


def same_label(label: str, wanted: str) -> bool:
    """Return whether a line states the wanted topic and emergency; case, spacing and punctuation do not count."""
    words, expected = (re.findall(r"\w+", each.casefold()) for each in (label, wanted))
    return words == expected


class Steps(TypedDict):
    """The parts of such an answer, each a text; `steps` are at least two."""

    steps: list[str]
    warning: str
    alternative: str


def steps_text(parts: Steps) -> str:
    """Return the answer as it is trained: one line for each step, for the warning and for the alternative."""
    steps = (f"{number}. {step}" for number, step in enumerate(parts["steps"], start=1))
    return "\n".join([*steps, f"{WARNING} {parts['warning']}", f"{ALTERNATIVE} {parts['alternative']}"])


def structure(answer: str) -> float:
    """Return the share (0 to 1) of the three parts that an answer has: lines 1., 2. and so on, one with a warning, one with an
    alternative."""
    numbers = [int(number) for number in re.findall(r"^\s*(\d{1,2})[.)]\s+\S", answer, re.MULTILINE)]
    parts = [re.search(rf"^\s*{name}\s*\S", answer, re.MULTILINE | re.IGNORECASE) for name in (WARNING, ALTERNATIVE)]
    ordered = len(numbers) > 1 and numbers == list(range(1, len(numbers) + 1))
    return (ordered + sum(part is not None for part in parts)) / 3


@dataclass(frozen=True)
class Refusals:
    """The sentences of a data set: `begins` starts each of them, `answers` has one for each topic, other and emergency."""

    begins: str
    answers: Mapping[str, str]

    def sentence(self, topic: str, emergency: bool) -> str:
        """Return the answer to a question of `topic` (name of its file) that is refused."""
        return self.answers[EMERGENCY if emergency else topic if topic in self.answers else OTHER]


def load_refusals(folder: Path) -> Refusals:
    """Return the refusals of a data set; raises UserError that names the file and the key, also where there is no file."""
    path = folder / REFUSALS
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
    words, other_words = _words(text), _words(other)
    common = sum(min(count, other_words[word]) for word, count in words.items() if word in other_words)
    return 2 * common / (words.total() + other_words.total()) if common else 0.0


@lru_cache(maxsize=4096)
def _words(text: str) -> Counter[str]:
    return Counter(re.findall(r"\w+", text.casefold()))


def same_answer(text: str, others: Iterable[str]) -> bool:
    """Return whether `text` is in effect one of `others`: an overlap of at least SAME_ANSWER."""
    return any(overlap(text, other) >= SAME_ANSWER for other in others)
