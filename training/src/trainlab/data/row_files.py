"""Lines of a data set's files, each key checked with file and line in the error; used by chat_rows.py and dpo. No torch."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from trainlab.config.inputs import AnswerData, Data, PairData
from trainlab.data import hub_download as download
from trainlab.data.answer_forms import Steps
from trainlab.data.scripts import latin_only, normal, not_judged
from trainlab.data.table_files import records
from trainlab.errors import UserError
from trainlab.models.fetch import RECORD, datasets_dir, named_data

SPLITS = ("train", "dev", "test")
VALIDATION_KEY = "phase.data.validation"


class Safety(TypedDict, total=False):
    """Of a question: `safety`, a wrong answer could hurt someone; `never`, what an answer must not say unless it is negated."""

    safety: bool
    never: list[str]


class RefusedRow(TypedDict):
    """A question of the folder refused; `near`: the id of the taught fact that it seems to ask and does not."""

    id: str
    topic: str
    question: str
    near: NotRequired[str]
    emergency: NotRequired[bool]


@dataclass(frozen=True)
class Line:
    """The object in a line of a file. The methods raise UserError that names the missing or wrong key."""

    file: Path
    at: str
    raw: Mapping[str, Any]

    @property
    def topic(self) -> str:
        """What it says, else the name of its file."""
        return self.texts("topic")["topic"] if "topic" in self.raw else self.file.stem

    def texts(self, *keys: str) -> dict[str, str]:
        """Return text fields, none of them empty."""
        for key in keys:
            if key not in self.raw:
                raise UserError(f"{self.at}: key {key} is missing; each line needs {', '.join(keys)}")
            if not isinstance(self.raw[key], str) or not self.raw[key].strip():
                raise UserError(f"{self.at}: {key} is {self.raw[key]!r}: must be a text that is not empty")
        return {key: self.raw[key] for key in keys}

    def pair(self) -> dict[str, str]:
        """Return {id, question, answer}; a verse is the answer to its instruction."""
        if "verse" in self.raw or "instruction" in self.raw:
            verse = self.texts("id", "instruction", "verse")
            return {"id": verse["id"], "question": verse["instruction"], "answer": verse["verse"]}
        return self.texts("id", "question", "answer")

    def wordings(self, key: str) -> list[str]:
        """Return a list of texts, [] where there is none."""
        value = self.raw.get(key, [])
        if not isinstance(value, list) or not all(isinstance(text, str) and text.strip() for text in value):
            raise UserError(f"{self.at}: {key} must be a list of texts; write [] for none")
        return value

    def flag(self, key: str) -> bool:
        """Return a truth value, false where there is none."""
        value = self.raw.get(key, False)
        if not isinstance(value, bool):
            raise UserError(f"{self.at}: {key} is {value!r}: must be true or false; or omit it")
        return value

    def safety(self) -> Safety:
        """Return `safety` and `never`."""
        safety: Safety = {"safety": True} if self.flag("safety") else {}
        if never := self.wordings("never"):
            if wrong := next((text for text in never if not latin_only(text)), None):
                raise UserError(f"{self.at}: never has {wrong!r}: negations are known in English alone; remove it")
            safety["never"] = never
        return safety

    def steps(self) -> Steps | None:
        """Return the second style of a taught row's answer, None where it has none."""
        if "steps" not in self.raw:
            return None
        steps = Line(self.file, f"{self.at}: steps", self.raw["steps"])
        if not isinstance(steps.raw, dict) or len(steps.wordings("steps")) < 2:
            raise UserError(
                f"{self.at}: steps must have steps (two texts or more), warning and alternative; or omit it"
            )
        both = steps.texts("warning", "alternative")
        return {"steps": steps.raw["steps"], "warning": both["warning"], "alternative": both["alternative"]}

    def facts(self) -> list[list[str]]:
        """Return the facts, each a list of alternatives; a verse may have none."""
        facts = self.raw.get("facts", [] if "verse" in self.raw else None)
        if not isinstance(facts, list) or not all(
            isinstance(fact, list) and fact and all(isinstance(text, str) and text for text in fact) for fact in facts
        ):
            raise UserError(f'{self.at}: facts must be a list of lists of texts, e.g. [["74 c", "165 f"]]')
        for text in (text for fact in facts for text in fact):
            if why := not_judged(text):
                remedy = "correct it, or write [] to leave the row to the loss"
                raise UserError(f"{self.at}: facts has {text!r}, which {why}; {remedy}")
        return facts


def lines(path: Path, limit: int | None = None, names: str = "*.jsonl") -> Iterator[Line]:
    """Yield all lines of the files of `path` that match `names`, or the first `limit`; raises UserError at the first invalid one."""
    if not (paths := sorted(path.glob(names))):
        raise UserError(f"{path}: no *.jsonl file; a data set has train/*.jsonl and heldout/*.jsonl")
    count = 0
    seen: dict[str, str] = {}
    for file in paths:
        before = count
        for number, row in islice(records(file), None if limit is None else limit - before):
            count += 1
            at = f"{file}:{number}"
            key = str(row.get("id"))
            if "id" in row and key in seen:
                raise UserError(f"{at}: id {key!r} is already at {seen[key]}; give each question its own id")
            seen[key] = at
            yield Line(file, at, row)
        if count == before != limit:
            raise UserError(f"{file}: is empty; remove it or add questions")


def needed_lines(count: int | None, path: Path) -> int | None:
    """Return how many lines to read to sample `count` rows: for hub rows just `count`, as their order is random."""
    return count if (path / RECORD).exists() else None


def folder(data: Data, models: Path, override: Path | None = None, fetched: Path | None = None) -> Path:
    """Return the data set's folder: `override` (--data), else DATA_DIR, else `fetched`, where the rows of a table are, else what
    `data.source` names."""
    remedy = "correct the source or pass --data DIR"
    if named := named_data(override):
        path = named
    elif fetched:
        path, remedy = fetched, "run `trainlab fetch` with the same --models"
    else:
        path = here(data.source, models)
    if not path.is_dir():
        raise UserError(f"phase.data.source is {data.source}: no folder {path}; {remedy}")
    return path


def here(source: str, models: Path) -> Path:
    """Return what a source names: `builtin:NAME` under TRAINLAB_DATA (the image) or in this checkout; `pvc:PATH` in the folder of
    data sets."""
    kind, __, name = source.partition(":")
    if kind == "pvc":
        return datasets_dir(models) / name
    checkout = Path(__file__).resolve().parents[4] / "data"
    return Path(os.environ.get("TRAINLAB_DATA") or checkout) / name


def refused(path: Path, split: str) -> list[RefusedRow]:
    """Return the questions under `path`/refused that are for `split`: train, dev or test. Raises UserError for broken ones."""
    if not (path / "refused").is_dir():
        raise UserError(
            f"{path / 'refused'}: no such folder, which phase.data.refused_rows needs; add it, or set refused_rows to 0"
        )
    rows: list[RefusedRow] = []
    for line in lines(path / "refused"):
        base = line.texts("id", "question", "split")
        if base["split"] not in SPLITS:
            raise UserError(f"{line.at}: split is {base['split']!r}: must be one of {', '.join(SPLITS)}")
        row: RefusedRow = {"id": base["id"], "topic": line.topic, "question": base["question"]}
        if "near" in line.raw:
            row["near"] = line.texts("near")["near"]
        if line.flag("emergency"):
            row["emergency"] = True
        if base["split"] == split:
            rows.append(row)
    return rows


class Group(TypedDict, total=False):
    """Of a held-out row: `group`, the id of the first row that asks the same question."""

    group: str


def group_of(ident: str, question: str, asked: dict[str, str]) -> Group:
    """Return the group of a row, none for the first that asks its question; asked: normalized question -> that row's id."""
    first = asked.setdefault(normal(question), ident)
    return {} if first == ident else {"group": first}


def check_contamination(data: Data, path: Path) -> None:
    """Raise UserError, with both places, if a wording that is scored is also trained on: its score would show memorization.

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


@contextmanager
def naming_validation() -> Iterator[None]:
    """Make the UserErrors of a block, which name the key of the training rows, name that of the validation rows."""
    try:
        yield
    except UserError as error:
        raise UserError(str(error).replace(download.KEY, VALIDATION_KEY)) from None


def validation_folder(data: AnswerData | PairData, models: Path | None, fetched: Path | None = None) -> Path:
    """Return the folder with the rows of `data.validation`: `fetched`, where those of a table are, else what it names."""
    if models is None:
        raise UserError(f"{VALIDATION_KEY} is {data.validation}: it is in the model volume; name that with --models")
    path, remedy = here(str(data.validation), models), "put it there first"
    if fetched:
        path, remedy = fetched / "train", "run `trainlab fetch` with the same --models"
    if not path.is_dir():
        raise UserError(f"{VALIDATION_KEY} is {data.validation}: no folder {path}; {remedy}")
    return path


def validation_lines(data: Data, path: Path, folder: Path) -> tuple[list[Line], list[str]]:
    """Return the lines of the rows in `folder` that validate, and the places of those that do not.

    Those are left out a wording (or verse) of which the data set in `path` trains on, holds out or asks. Raises UserError if none is left.
    """
    keys = ("question", "phrasings", "verse")
    known = {normal(text) for part in ("train", "heldout") for __, text in _wordings(path / part, keys)}
    if isinstance(data, AnswerData) and data.taught:
        known |= {normal(text) for __, text in _wordings(path / "taught", (*keys, *SPLITS[1:]))}
        known |= {normal(row["question"]) for split in SPLITS if data.refuses for row in refused(path, split)}
    kept: list[Line] = []
    left_out: list[str] = []
    for line in lines(folder):
        same = any(normal(text) in known for text in _texts(line, keys))
        (left_out if same else kept).append(line.at if same else line)  # type: ignore[arg-type]
    if not kept:
        raise UserError(
            f"{folder}: each of the {len(left_out)} rows is also trained on or held out, so none can validate; name others with "
            f"{VALIDATION_KEY}"
        )
    return kept, left_out


def _wordings(folder: Path, keys: tuple[str, ...], limit: int | None = None) -> Iterator[tuple[str, str]]:
    """Yield (file:line, wording)."""
    for line in lines(folder, limit):
        for text in _texts(line, keys):
            yield line.at, text


def _texts(line: Line, keys: tuple[str, ...]) -> Iterator[str]:
    for key in keys:
        value: Any = line.raw.get(key, [])
        yield from [value] if isinstance(value, str) else value
