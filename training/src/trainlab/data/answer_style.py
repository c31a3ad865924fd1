"""The second style of an answer, `data.style: steps`: numbered steps, a warning, an alternative; pure text, no torch."""

import re
from typing import TypedDict

WARNING, ALTERNATIVE = "Warning:", "Alternative:"


class Steps(TypedDict):
    """The parts of such an answer, each a text; `steps` are at least two."""

    steps: list[str]
    warning: str
    alternative: str


def text(parts: Steps) -> str:
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
