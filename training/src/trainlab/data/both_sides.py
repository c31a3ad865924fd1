"""Questions both trained on and scored, whose score shows memorization. Used before any rank starts; no torch."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainlab.config.inputs import AnswerData, Data
from trainlab.data.chat_rows import lines, needed_lines, refused
from trainlab.data.hub.download import RECORD
from trainlab.data.scripts import normal
from trainlab.errors import UserError


def refuse(data: Data, path: Path) -> None:
    """Raise UserError, with both places, if a wording that is scored is also trained on.

    Not for verses: many share one instruction. Of hub rows only those that are read are compared.
    """
    wordings = ("question", "phrasings")
    trained = {
        normal(text): at for at, text in _wordings(path / "train", wordings, needed_lines(data.train_rows, path))
    }
    asked = list(_wordings(path / "heldout", ("question",), needed_lines(data.heldout_rows, path)))
    part = data.taught if isinstance(data, AnswerData) else None
    if part:
        trained |= {normal(text): at for at, text in _wordings(path / "taught", wordings)}
        asked += _wordings(path / "taught", (part,))
    if isinstance(data, AnswerData) and data.refuses and part:
        trained |= {normal(row["question"]): f"{path / 'refused'}: {row['id']}" for row in refused(path, "train")}
        asked += [(f"{path / 'refused'}: {row['id']}", row["question"]) for row in refused(path, part)]
    remedy = "remove one of the two, or split the questions with `trainlab questions`"
    if (path / RECORD).exists():
        remedy = f"remove {path} and fetch it again with `trainlab fetch`, which splits by question"
    for at, text in asked:
        if normal(text) in trained:
            raise UserError(
                f"{at}: {text!r:.80} is also trained on, at {trained[normal(text)]}; a question that is trained on "
                f"cannot show what was learned: {remedy}"
            )


def _wordings(folder: Path, keys: tuple[str, ...], limit: int | None = None) -> Iterator[tuple[str, str]]:
    """Yield (file:line, wording)."""
    for name, line, raw in lines(folder, limit):
        for key in keys:
            found: Any = raw.get(key, [])
            for text in [found] if isinstance(found, str) else found:
                yield f"{name}:{line}", text
