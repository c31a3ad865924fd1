"""The first line of an answer, `Topic: first aid. Emergency: yes.`, which can be judged for every question, taught or not.

Used by chat_rows.py (`data.label_line`), models/chat.py (training and loss) and answer_score.py (accuracy).
"""

import re

_LINE = re.compile(r"\s*(topic\b.*?\bemergency\W+\w+)[^\w\n]*", re.IGNORECASE)


def line(topic: str, emergency: bool) -> str:
    """Return the line for a topic (name of its file) and whether the question tells of an emergency."""
    return f"Topic: {topic.replace('_', ' ')}. Emergency: {'yes' if emergency else 'no'}."


def split(text: str) -> tuple[str, str]:
    """Return (the line that `text` starts with, empty if none; the rest)."""
    match = _LINE.match(text)
    return (match[1].strip(), text[match.end() :].strip()) if match else ("", text)


def right(said: str, wanted: str) -> bool:
    """Return whether a line states the wanted topic and emergency; case, spacing and punctuation do not count."""
    words, expected = (re.findall(r"\w+", each.casefold()) for each in (said, wanted))
    return words == expected
