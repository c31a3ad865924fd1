"""`trainlab questions`: turns tables of questions and answers into a data set, split by question; no torch.

A row is a question and its answer, or, for preference tuning, a question with a chosen and a rejected answer. Rows whose questions differ
only in case and punctuation stay on one side: otherwise the held-out score would cover questions that were trained on.
"""

import argparse
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainlab import files
from trainlab.data import scripts, table_files
from trainlab.errors import UserError

NAME = "questions"
HELDOUT = 0.2
MIN_HELDOUT = 50
"""Below this many held-out questions the interval of the gain is wide."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `trainlab questions`."""
    parser.epilog = (
        "Example: trainlab questions faq.csv --out mine. Then phase.data.source pvc:mine, or --data mine here."
    )
    text = f"files with a question column and an answer column: {', '.join(table_files.TABLES)}"
    parser.add_argument("source", type=Path, nargs="+", help=text)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder of the new data set")
    for column in ("question", "answer"):
        text = "name of this column (default %(default)s)"
        parser.add_argument(f"--{column}", default=column, metavar="NAME", help=text)
    text = "name of a column with a worse answer: makes pairs for recipe dpo (stage.pairs given), --answer being the better one"
    parser.add_argument("--rejected", metavar="NAME", help=text)
    text = "share of the questions held out for scoring (default %(default)s)"
    parser.add_argument("--heldout", type=float, default=HELDOUT, metavar="SHARE", help=text)
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed that picks them (default %(default)s)")


def from_args(args: argparse.Namespace) -> int:
    """Make the data set that the parsed arguments describe and print what is in it."""
    print(make(args.source, args.out, args.question, args.answer, args.heldout, args.seed, args.rejected))
    return 0


def make(
    sources: Sequence[Path],
    out: Path,
    question: str = "question",
    answer: str = "answer",
    heldout: float = HELDOUT,
    seed: int = 0,
    rejected: str | None = None,
) -> str:
    """Write `out`/train and `out`/heldout; return a summary of the rows. `heldout` is a share of the questions.

    With the column `rejected` rows are pairs; two equal answers are left out and counted.

    Raises UserError for unreadable input, for fewer than two questions, and if `out` exists.
    """
    if not 0 < heldout < 1:
        raise UserError(f"--heldout {heldout:g}: must be above 0 and below 1")
    if out.exists():
        raise UserError(f"{out}: already exists; remove it or name another folder with --out")
    groups, read, repeated, equal = _grouped(sources, question, answer, rejected)
    if len(groups) < 2:
        raise UserError(
            f"{sources[0]}: holds {'one' if groups else 'no'} question; a data set needs at least two, one to train on and "
            "one to ask"
        )
    count = min(len(groups) - 1, max(1, round(len(groups) * heldout)))
    heldout_keys = set(random.Random(seed).sample(sorted(groups), count))
    parts: dict[str, list[dict[str, Any]]] = {"train": [], "heldout": []}
    for number, (key, answers) in enumerate(groups.items(), start=1):
        for which, ((text, worse), wordings) in enumerate(answers.items()):
            row = {"id": f"{number:05}" + f"-{which}" * bool(which), "question": wordings[0]}
            if rejected:
                parts["heldout" if key in heldout_keys else "train"].append({**row, "chosen": text, "rejected": worse})
            elif key in heldout_keys:
                parts["heldout"].append({**row, "answer": text, "facts": []})
            else:
                parts["train"].append({**row, "phrasings": wordings[1:], "answer": text})
    with files.atomic_folder(out) as folder:
        for part, rows in parts.items():
            (folder / part).mkdir()
            text = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)
            files.write_text(folder / part / f"{NAME}.jsonl", text)
    to_ask = f"{count} to ask" + (
        f" (few: below {MIN_HELDOUT}, only a large gain can be shown)" if count < MIN_HELDOUT else ""
    )
    return (
        f"{out}: {read} rows read, {repeated} were repeats, "
        + (f"{equal} had two equal answers, " if rejected else "")
        + f"{len(groups)} questions: {len(groups) - count} to train on, {to_ask}"
    )


def _grouped(
    sources: Sequence[Path], question: str, answer: str, rejected: str | None
) -> tuple[dict[str, dict[tuple[str, str], list[str]]], int, int, int]:
    """Return (question without case and punctuation -> answer, rejected one or "" -> its wordings, rows read, repeats, equal pairs)."""
    groups: dict[str, dict[tuple[str, str], list[str]]] = {}
    read = repeated = equal = 0
    for path in sources:
        empty = True
        for number, row in table_files.records(path):
            empty = False
            if row and not any(str(value).strip() for value in row.values()):
                continue  # an empty row of a spreadsheet
            at = table_files.at(path, number)
            wording, answered = _text(at, row, question, "--question"), _text(at, row, answer, "--answer")
            key = scripts.normal(wording)
            if not key:
                raise UserError(f"{at}: {question} is {wording!r}: contains no words; correct or remove the row")
            worse = _text(at, row, rejected, "--rejected") if rejected else ""
            read += 1
            if worse.split() == answered.split():
                equal += 1
                continue
            wordings = groups.setdefault(key, {}).setdefault((answered, worse), [])
            if wording in wordings:
                repeated += 1
            else:
                wordings.append(wording)
        if empty:
            raise UserError(f"{path}: has no rows; {table_files.EMPTY}")
    return groups, read, repeated, equal


def _text(at: str, row: dict[str, Any], column: str, option: str) -> str:
    try:
        if value := table_files.cell(row, column, option).strip():
            return value
    except ValueError as error:
        raise UserError(f"{at}: {error}") from None
    raise UserError(f"{at}: {column} is {row[column]!r}: must be a text that is not empty; correct or remove the row")
