"""Preference pairs: a question, a chosen and a rejected answer; used by the recipe dpo. No torch.

given: rows {"id", "question", "chosen", "rejected"} in train/*.jsonl and heldout/*.jsonl. truncated_answers: a data set of
questions (data/chat_rows.py), where each answer's first half is the rejected one: what is learned is to finish an answer.
"""

from pathlib import Path
from typing import Any

from trainlab.config import DpoPhase
from trainlab.data import chat_rows, row_files
from trainlab.errors import UserError


def load(phase: DpoPhase, path: Path) -> tuple[list[Any], list[Any]]:
    """Return (training, held-out) rows of chat_rows.py plus `rejected`; raises UserError with file and line."""
    if phase.stage.pairs == "truncated_answers":
        train: list[Any] = [dict(row) for row in chat_rows.load_train(phase.data, path)]
        heldout: list[Any] = [dict(row) for row in chat_rows.load_heldout(phase.data, path)]
        for row in (*train, *heldout):
            row["rejected"] = truncated_answers(row["id"], row["answer"])
        return train, heldout
    train, heldout = _given(path / "train"), _given(path / "heldout")
    return chat_rows.even(train, phase.data.train_rows), chat_rows.even(heldout, phase.data.heldout_rows)


def truncated_answers(name: str, answer: str) -> str:
    """Return the first half of the words of an answer (rounded down), without trailing punctuation."""
    words = answer.split()
    if len(words) < 2:
        raise UserError(
            f"row {name}: its answer is one word, which cannot be truncated; supply pairs with stage.pairs given"
        )
    return " ".join(words[: len(words) // 2]).rstrip(".,;:!?")


def _given(path: Path) -> list[Any]:
    rows: list[Any] = []
    asked: dict[str, str] = {}
    for line in row_files.lines(path):
        texts = line.texts("id", "question", "chosen", "rejected")
        if texts["chosen"].split() == texts["rejected"].split():
            raise UserError(
                f"{line.at}: chosen and rejected are identical: {texts['chosen'][:60]!r}; a pair needs two answers: fix the line or "
                "remove it"
            )
        answers = {"answer": texts["chosen"], "rejected": texts["rejected"]}
        row = {"id": texts["id"], "topic": line.topic, "question": texts["question"], **answers, "facts": []}
        rows.append(row | row_files.group_of(texts["id"], texts["question"], asked))
    return rows
