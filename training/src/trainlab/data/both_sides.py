"""Questions both trained on and scored, whose score shows memorization. Used before any rank starts; no torch."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainlab.config.section_data import AnswerData, Data
from trainlab.data.chat_rows import lines, normal
from trainlab.data.hub.download import RECORD
from trainlab.errors import UserError


def refuse(data: Data, path: Path) -> None:
    """Raise UserError, with both places, if a wording that is scored is also trained on.

    Not for verses: many share one instruction. Hub rows were split by question when they were fetched.
    """
    if (path / RECORD).exists():
        return
    trained = {normal(text): at for at, text in _wordings(path / "train", ("question", "phrasings"))}
    asked = list(_wordings(path / "heldout", ("question",)))
    part = data.taught if isinstance(data, AnswerData) else None
    if part:
        trained |= {normal(text): at for at, text in _wordings(path / "taught", ("question", "phrasings"))}
        asked += _wordings(path / "taught", (part,))
    for at, text in asked:
        if normal(text) in trained:
            raise UserError(
                f"{at}: {text!r:.80} is also trained on, at {trained[normal(text)]}; a question that is trained on "
                "cannot show what was learned: remove one of the two, or split the questions with `trainlab questions`"
            )


def _wordings(folder: Path, keys: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield (file:line, wording)."""
    for name, line, raw in lines(folder):
        for key in keys:
            found: Any = raw.get(key, [])
            for text in [found] if isinstance(found, str) else found:
                yield f"{name}:{line}", text
