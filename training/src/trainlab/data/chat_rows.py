"""Questions and answers: reading JSONL with file and line in every error, sampling rows evenly, splitting by question.

Called by run/launch.py before any rank starts (so it must not import torch), by recipes/ and by evaluation/.

A data set is a folder with train/*.jsonl and heldout/*.jsonl, one file per topic:
  train:   {"id", "question", "phrasings": [text ...], "answer"}
  heldout: {"id", "question", "answer", "facts": [[alternative ...] ...]}
  taught:  {"id", "question", "phrasings", "dev": [text ...], "test": [text ...], "answer", "facts"}, read if `data.taught`
           asks for it: trained on as question and phrasings, asked as dev or test
  refused: {"id", "question", "split": "train", "dev" or "test"} and, for a near miss of a taught fact, "near": its id; read if
           `data.refused_rows` asks for it, with the answers of refusals.json (data/refusals.py)
  heldout and taught also "safety": true if a wrong answer could hurt someone, and "never": [text ...] that it must not say
  all also "emergency": true if the question tells of one (data/label_line.py)
or, in train and heldout, verses: {"id", "instruction", "verse"} and, to score the form, "form" (data/verse_forms.py).
Rows of a hub (data/hub/hub_rows.py) also have "group": rows that share one are never on both sides of a split, and count
as one for the gate.
"""

import os
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict, TypeVar

from trainlab.config.inputs import AnswerData, Data
from trainlab.data import answer_style, label_line, refusals
from trainlab.data.hub.download import RECORD
from trainlab.data.scripts import latin_only, normal, not_judged
from trainlab.data.text_files import records
from trainlab.data.verse_forms import FORMS
from trainlab.errors import UserError
from trainlab.models.fetch import datasets_dir, named_data

SPLITS = ("train", "dev", "test")
Kind = Literal["taught", "never_taught", "refused", "retention", "ceiling", "reversed", "composed"]
"""Of a held-out row: of the folder taught, heldout or refused, or of evaluate.probes."""


class TrainRow(TypedDict):
    """One wording of a question; `id` names the question: its phrasings share it. Taught ones are always trained on.

    `label`: the line that the answer starts with, if `data.label_line` asks for it.
    """

    id: str
    topic: str
    question: str
    answer: str
    label: NotRequired[str]
    taught: NotRequired[bool]
    emergency: NotRequired[bool]


class Safety(TypedDict, total=False):
    """Of a question: `safety`, a wrong answer could hurt someone; `never`, what an answer must not say unless it is negated."""

    safety: bool
    never: list[str]


class HeldoutRow(Safety):
    """One held-out question; a right answer contains one alternative of each fact, a verse keeps its form.

    `label`: as in TrainRow. `nearest`: see data/nearest.py. `group`: the fact or question that several rows share, which
    count as one for the gate; a row without it stands for itself. Where refusals are taught, `refusal` is what one begins
    with, and `refuse` says that the question is to be refused; `answer` of a row of kind refused is the refusal. `steps`: the right
    answer has the parts of data/answer_style.py.
    """

    id: str
    kind: Kind
    topic: str
    question: str
    answer: str
    facts: list[list[str]]
    form: NotRequired[str]
    label: NotRequired[str]
    emergency: NotRequired[bool]
    refusal: NotRequired[str]
    refuse: NotRequired[bool]
    steps: NotRequired[bool]
    nearest: NotRequired[str]
    group: NotRequired[str]


class RefusedRow(TypedDict):
    """A question of the folder refused; `near`: the id of the taught fact that it seems to ask and does not."""

    id: str
    topic: str
    question: str
    near: NotRequired[str]
    emergency: NotRequired[bool]


@dataclass(frozen=True)
class TaughtFact:
    """A fact with the rows that teach it and those that ask about it in other words."""

    id: str
    train: list[TrainRow]
    asked: list[HeldoutRow]
    reversed: HeldoutRow | None
    wordings: list[str]
    """All of them, trained on or not."""


Row = TypeVar("Row", TrainRow, HeldoutRow)
Drawn = TypeVar("Drawn", TrainRow, HeldoutRow, RefusedRow)


def folder(
    data: Data,
    models: Path,
    given: Path | None = None,
    env: Mapping[str, str] | None = None,
    fetched: Path | None = None,
) -> Path:
    """Return the data set's folder: `given` (--data), else DATA_DIR, else what `data.source` names.

    `builtin:NAME` is under TRAINLAB_DATA (the image) or in this checkout; `pvc:PATH` in the folder of data sets; hub
    rows in `fetched`.
    """
    env = os.environ if env is None else env
    if named := named_data(given, env):
        path = named
    elif fetched:
        path = fetched
        if not path.is_dir():
            raise UserError(
                f"phase.data.source is {data.source}: no folder {path}; run `trainlab fetch` with the same --models"
            )
    elif data.source.startswith("pvc:"):
        path = datasets_dir(models, env) / data.source.removeprefix("pvc:")
    else:
        checkout = Path(__file__).resolve().parents[4] / "data"
        path = Path(env.get("TRAINLAB_DATA") or checkout) / data.source.removeprefix("builtin:")
    if not path.is_dir():
        raise UserError(f"phase.data.source is {data.source}: no folder {path}; correct the source or pass --data DIR")
    return path


def load_train(data: Data, path: Path) -> list[TrainRow]:
    """Return the training rows under `path`/train, one per phrasing; `data.train_rows` of them, evenly across topics.

    Questions that differ only in case and punctuation count as one, whatever their ids: else one may validate the
    other. With `data.taught` the wordings of taught facts come first, as many complete facts as fit; rows that ask what is
    taught have the fact's id. The `data.refused_rows` refusals come last.
    """
    facts = taught_facts(data, path)
    taught = [row for fact in facts for row in fact.train]
    left = None if data.train_rows is None else data.train_rows - len(taught)
    refuses = isinstance(data, AnswerData) and data.refuses
    if left == 0 and not refuses:
        return taught
    rows: list[TrainRow] = []
    asked: list[tuple[str, Sequence[str]]] = [(row["id"], (row["question"],)) for row in taught]
    for name, line, raw in lines(path / "train", needed_lines(data.train_rows, path)):
        at = f"{name}:{line}"
        base = _pair(at, raw)
        wordings = [base["question"], *_wordings(at, raw, "phrasings")]
        ident = texts(at, raw, ("group",))["group"] if "group" in raw else base["id"]
        asked.append((ident, () if "group" in raw or "verse" in raw else wordings))  # many verses share one instruction
        for question in wordings:
            train: TrainRow = {"id": ident, "topic": name.stem, "question": question, "answer": base["answer"]}
            rows.append(_labelled(train, _flag(at, raw, "emergency"), data))
    leaders = _leaders(asked)
    for row in rows:
        row["id"] = leaders[row["id"]]
    drawn = even(rows, left)
    return [*taught, *drawn, *_refusals(data, path, facts, [*taught, *drawn], rows)]


def _refusals(
    data: Data, path: Path, facts: Sequence[TaughtFact], taught: Sequence[TrainRow], rows: Sequence[TrainRow]
) -> list[TrainRow]:
    """Return `data.refused_rows` questions (null: all) that are answered by a refusal.

    First the near misses of `facts`, then the emergencies of refused/, which a wrong answer would make worse; then by turns and evenly
    across topics the other rows of refused/ that are for training and questions of train/ (`rows`): those that neither are in `taught`
    nor have in effect the answer of one that is.
    """
    if not isinstance(data, AnswerData) or not data.refuses:
        return []
    sentences = refusals.load(path)
    known, answers = {row["id"] for row in taught}, {row["answer"] for row in taught}
    firsts = {row["id"]: row for row in reversed(rows) if row["id"] not in known}
    others = [row for row in firsts.values() if not refusals.same_answer(row["answer"], answers)]
    near, rest = _near_first(refused(path, "train"), facts)
    urgent = [row for row in rest if row.get("emergency")]
    calm = [row for row in rest if not row.get("emergency")]
    pool: list[RefusedRow | TrainRow] = [*near, *urgent, *_by_turns(calm, _in_turn(others, seed=0))]
    found = []
    for row in pool[: data.refused_rows]:
        emergency = row.get("emergency", False)
        answer = sentences.sentence(row["topic"], emergency)
        train = TrainRow(id=row["id"], topic=row["topic"], question=row["question"], answer=answer)
        found.append(_labelled(train, emergency, data))
    return found


def _to_refuse(data: Data, path: Path, facts: Sequence[TaughtFact]) -> list[HeldoutRow]:
    """Return the questions of refused/ that are asked, half of them near misses of `facts` while there are such."""
    if not isinstance(data, AnswerData) or not data.refuses or data.taught is None:
        return []
    sentences, found = refusals.load(path), []
    for row in _by_turns(*_near_first(refused(path, data.taught), facts))[: data.heldout_rows]:
        emergency = row.get("emergency", False)
        asked = HeldoutRow(
            id=row["id"],
            kind="refused",
            topic=row["topic"],
            question=row["question"],
            answer=sentences.sentence(row["topic"], emergency),
            facts=[],
        )
        found.append(_labelled(asked, emergency, data))
    return found


def _by_turns(*parts: Sequence[Any]) -> list[Any]:
    """Return the first of each part, the second of each, and so on."""
    return [row for turn in zip_longest(*parts) for row in turn if row]


def _near_first(rows: Sequence[RefusedRow], facts: Sequence[TaughtFact]) -> tuple[list[RefusedRow], list[RefusedRow]]:
    """Return (near misses of `facts`, the others), each evenly across topics."""
    ids = {fact.id for fact in facts}
    near = [row for row in rows if row.get("near") in ids]
    return _in_turn(near, seed=0), _in_turn([row for row in rows if row.get("near") not in ids], seed=0)


def refused(path: Path, split: str) -> list[RefusedRow]:
    """Return the questions under `path`/refused that are for `split`: train, dev or test. Raises UserError for broken ones."""
    if not (path / "refused").is_dir():
        raise UserError(
            f"{path / 'refused'}: no such folder, which phase.data.refused_rows needs; add it, or set refused_rows to 0"
        )
    rows: list[RefusedRow] = []
    for name, line, raw in lines(path / "refused"):
        at = f"{name}:{line}"
        base = texts(at, raw, ("id", "question", "split"))
        if base["split"] not in SPLITS:
            raise UserError(f"{at}: split is {base['split']!r}: must be one of {', '.join(SPLITS)}")
        row: RefusedRow = {"id": base["id"], "topic": name.stem, "question": base["question"]}
        if "near" in raw:
            row["near"] = texts(at, raw, ("near",))["near"]
        if _flag(at, raw, "emergency"):
            row["emergency"] = True
        if base["split"] == split:
            rows.append(row)
    return rows


def _leaders(asked: Iterable[tuple[str, Iterable[str]]]) -> dict[str, str]:
    """Return for each id the first one that asks the same question, be it by way of a third, which has a wording of each."""
    order: dict[str, int] = {}
    leaders: dict[str, str] = {}
    known: dict[str, str] = {}

    def leader(ident: str) -> str:
        while leaders[ident] != ident:
            ident = leaders[ident]
        return ident

    for ident, wordings in asked:
        order.setdefault(ident, len(order))
        leaders.setdefault(ident, ident)
        for question in map(normal, wordings):
            first, later = sorted((leader(ident), leader(known.setdefault(question, ident))), key=order.__getitem__)
            leaders[later] = first
    return {ident: leader(ident) for ident in order}


def load_heldout(data: Data, path: Path, probes: Sequence[str] = ()) -> list[HeldoutRow]:
    """Return the held-out rows under `path`/heldout, `data.heldout_rows` of them, evenly across topics.

    With `data.taught` they are followed by the wordings that ask about the facts of `load_train`, with `data.refused_rows` by
    at most as many questions to refuse as held-out rows: near misses of these facts first. Held-out questions are
    to be refused as well, but where rows of train/ are taught, which cover what they ask.
    """
    rows: list[HeldoutRow] = []
    asked: dict[str, str] = {}
    for name, line, raw in lines(path / "heldout", needed_lines(data.heldout_rows, path)):
        at = f"{name}:{line}"
        base = _pair(at, raw)
        row: HeldoutRow = {
            "id": base["id"],
            "kind": "never_taught",
            "topic": name.stem,
            "question": base["question"],
            "answer": base["answer"],
            "facts": _facts(at, raw, [] if "verse" in raw else None),
        }
        row |= _safety(at, raw)
        if "group" in raw:
            row["group"] = texts(at, raw, ("group",))["group"]
        elif "verse" not in raw:  # many verses share one instruction
            row |= group_of(row["id"], row["question"], asked)
        if "verse" in raw and "form" in raw:
            if raw["form"] not in FORMS:
                raise UserError(f"{at}: form is {raw['form']!r}: must be one of {', '.join(FORMS)}; or omit it")
            row["form"] = raw["form"]
        rows.append(_labelled(row, _flag(at, raw, "emergency"), data))
    facts = taught_facts(data, path)
    rows = even(rows, data.heldout_rows) + [row for fact in facts for row in fact.asked]
    if to_refuse := _to_refuse(data, path, facts):
        alone = data.train_rows == sum(len(fact.train) for fact in facts)
        begins = refusals.load(path).begins
        for row in (rows := rows + to_refuse):
            row["refusal"] = begins
            if row["kind"] == "refused" or (alone and row["kind"] == "never_taught"):
                row["refuse"] = True
    return rows + [row for probe in (probes if facts else ()) for row in PROBES[probe](data, path, facts)]


def _ceiling(data: Data, path: Path, facts: Sequence[TaughtFact]) -> list[HeldoutRow]:
    """Return one question about each fact, with the fact's answer before it."""
    rows = []
    for fact in facts:
        row = fact.asked[0]
        asked = HeldoutRow(
            id=f"{fact.id}/ceiling",
            kind="ceiling",
            topic=row["topic"],
            question=f"{row['answer']}\n\n{row['question']}",
            answer=row["answer"],
            facts=row["facts"],
            group=fact.id,
        )
        rows.append(_labelled(asked, row.get("emergency", False), data))
    return rows


def _reversed(data: Data, path: Path, facts: Sequence[TaughtFact]) -> list[HeldoutRow]:
    """Return the question of each fact that has one from its answer back to its subject."""
    if not (rows := [fact.reversed for fact in facts if fact.reversed]):
        raise UserError(
            f"{path / 'taught'}: no row has the key reversed; add it, or remove it from phase.evaluate.probes"
        )
    return rows


def _retention(data: Data, path: Path, facts: Sequence[TaughtFact]) -> list[HeldoutRow]:
    """Return the general questions of retention.jsonl."""
    return [
        _probe(at, raw, "retention", "retention", "; ".join(fact[0] for fact in _facts(at, raw, None)))
        for at, raw in _probes(path, "retention")
    ]


def _composed(data: Data, path: Path, facts: Sequence[TaughtFact]) -> list[HeldoutRow]:
    """Return the questions of composed.jsonl whose facts are all taught."""
    taught = {fact.id: fact for fact in facts}
    rows = []
    for at, raw in _probes(path, "composed"):
        uses = _wordings(at, raw, "uses")
        if uses and all(each in taught for each in uses):
            answer = "\n".join(taught[each].asked[0]["answer"] for each in uses)
            rows.append(_probe(at, raw, "composed", taught[uses[0]].asked[0]["topic"], answer))
    return rows


def _probes(path: Path, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (file:line, object) of a file of the data set's folder; raises UserError where there is none."""
    if not (path / f"{name}.jsonl").is_file():
        raise UserError(f"{path / f'{name}.jsonl'}: no such file; add it, or remove {name} from phase.evaluate.probes")
    for file, line, raw in lines(path, names=f"{name}.jsonl"):
        yield f"{file}:{line}", raw


def _probe(at: str, raw: Mapping[str, Any], kind: Kind, topic: str, answer: str) -> HeldoutRow:
    base = texts(at, raw, ("id", "question"))
    return HeldoutRow(
        id=base["id"], kind=kind, topic=topic, question=base["question"], answer=answer, facts=_facts(at, raw, None)
    )


PROBES = {"retention": _retention, "ceiling": _ceiling, "reversed": _reversed, "composed": _composed}
"""Name in evaluate.probes -> what returns its rows."""


def taught_facts(data: Data, path: Path) -> list[TaughtFact]:
    """Return the facts under `path`/taught, evenly across topics, as many as fit into `data.train_rows` whole.

    Empty without `data.taught`, which names the wordings to ask. Raises UserError for invalid rows, or if no fact fits.
    """
    if not isinstance(data, AnswerData) or data.taught is None:
        return []
    part, count = data.taught, data.taught_wordings
    found: list[TaughtFact] = []
    for name, line, raw in lines(path / "taught"):
        at = f"{name}:{line}"
        base = texts(at, raw, ("id", "question", "answer"))
        ident, topic, facts = base["id"], name.stem, _facts(at, raw, None)
        steps = _steps(at, raw) if data.style == "steps" else None
        answer = answer_style.text(steps) if steps else base["answer"]
        emergency = _flag(at, raw, "emergency")
        train = [
            _labelled(TrainRow(id=ident, topic=topic, question=question, answer=answer, taught=True), emergency, data)
            for question in (base["question"], *_wordings(at, raw, "phrasings"))[:count]
        ]
        asked = [
            HeldoutRow(
                id=f"{ident}/{part}{number}",
                kind="taught",
                topic=topic,
                question=question,
                answer=answer,
                facts=facts,
                group=ident,
            )
            for number, question in enumerate(_wordings(at, raw, part), start=1)
        ]
        asked = [_labelled(row | _safety(at, raw), emergency, data) for row in asked]
        if steps:
            for question in asked:
                question["steps"] = True
        back = raw.get("reversed")
        if back is not None:
            if not isinstance(back, dict):
                raise UserError(f"{at}: reversed must be an object with question and facts; or omit it")
            back = _probe(at, {"id": f"{ident}/reversed", **back}, "reversed", topic, answer)
        wordings = [base["question"], *(one for key in ("phrasings", "dev", "test") for one in _wordings(at, raw, key))]
        found.append(TaughtFact(ident, train, asked, back, wordings))
    if data.style == "steps" and not any(row.get("steps") for fact in found for row in fact.asked):
        raise UserError(
            f"{path / 'taught'}: no row has the key steps, which phase.data.style needs; add it, or set plain"
        )
    by_id = {fact.id: fact for fact in found}
    drawn: list[TaughtFact] = []
    room = data.train_rows
    for row in _in_turn([fact.train[0] for fact in found], seed=0):
        fact = by_id[row["id"]]
        if room is not None:
            room -= len(fact.train)
            if room < 0:
                break
        drawn.append(fact)
    if not drawn:
        raise UserError(
            f"phase.data.train_rows is {data.train_rows}: no taught fact fits with all its wordings; raise it to at "
            f"least {len(found[0].train)}"
        )
    return drawn


def never_taught(questions: Sequence[str], data: AnswerData, path: Path) -> list[str]:
    """Return those of `questions` that the phase does not teach: no wording of what it trains on, nor any of a taught fact, be it
    trained on or not; case and punctuation do not count."""
    taught = {normal(row["question"]) for row in load_train(data.model_copy(update={"refused_rows": 0}), path)}
    taught |= {normal(wording) for fact in taught_facts(data, path) for wording in fact.wordings}
    return [question for question in questions if normal(question) not in taught]


def _labelled(row: Row, emergency: bool, data: Data) -> Row:
    """Return `row`, with `emergency` where it tells of one, and with its label if the phase asks for it."""
    if emergency:
        row["emergency"] = True
    if isinstance(data, AnswerData) and data.label_line:
        row["label"] = label_line.line(row["topic"], emergency)
    return row


class Group(TypedDict, total=False):
    """Of a held-out row: `group`, the id of the first row that asks the same question."""

    group: str


def group_of(ident: str, question: str, asked: dict[str, str]) -> Group:
    """Return the group of a row, none for the first that asks its question; asked: normalized question -> that row's id."""
    first = asked.setdefault(normal(question), ident)
    return {} if first == ident else {"group": first}


def even(rows: Sequence[Drawn], count: int | None, seed: int = 0) -> list[Drawn]:
    """Sample `count` rows (None: all), equally many from each topic while it has some; the same ones every time.

    A topic first gives one row of each question, then further phrasings: a small sample has many questions. The seed is
    fixed on purpose: phase.seed changes the training, not the data it is compared on.
    """
    return list(rows) if count is None or count >= len(rows) else _in_turn(rows, seed)[:count]


def _in_turn(rows: Sequence[Drawn], seed: int) -> list[Drawn]:
    """Return `rows`, one of each topic in turn."""
    queues: list[list[Drawn]] = []
    for topic in sorted({row["topic"] for row in rows}):
        seen: dict[str, int] = {}
        ranked: list[tuple[int, float, Drawn]] = []
        rng = random.Random(f"{seed} {topic}")
        for row in rows:
            if row["topic"] == topic:
                ranked.append((seen.get(row["id"], 0), rng.random(), row))
                seen[row["id"]] = seen.get(row["id"], 0) + 1
        queues.append([row for _, _, row in sorted(ranked, key=lambda entry: entry[:2])])
    return _by_turns(*queues)


def split_by_question(rows: Sequence[TrainRow], fraction: float, seed: int) -> tuple[list[TrainRow], list[TrainRow]]:
    """Return (training, validation) rows; all phrasings of a question are on one side.

    `fraction` is the share of questions kept for validation: at least one question if above 0, never all of them, and
    none of a taught fact, which would then not be taught.
    """
    questions = sorted({row["id"] for row in rows} - {row["id"] for row in rows if row.get("taught")})
    if fraction == 0 or len(questions) < 2:
        return list(rows), []
    count = min(len(questions) - 1, max(1, round(len(questions) * fraction)))
    chosen = set(random.Random(seed).sample(questions, count))
    return [row for row in rows if row["id"] not in chosen], [row for row in rows if row["id"] in chosen]


def _wordings(at: str, raw: Mapping[str, Any], key: str) -> list[str]:
    found = raw.get(key, [])
    if not isinstance(found, list) or not all(isinstance(each, str) and each.strip() for each in found):
        raise UserError(f"{at}: {key} must be a list of texts; write [] for none")
    return found


def _safety(at: str, raw: Mapping[str, Any]) -> Safety:
    found: Safety = {"safety": True} if _flag(at, raw, "safety") else {}
    if never := _wordings(at, raw, "never"):
        if wrong := next((text for text in never if not latin_only(text)), None):
            raise UserError(f"{at}: never has {wrong!r}: negations are known in English alone; remove it")
        found["never"] = never
    return found


def _flag(at: str, raw: Mapping[str, Any], key: str) -> bool:
    value = raw.get(key, False)
    if not isinstance(value, bool):
        raise UserError(f"{at}: {key} is {value!r}: must be true or false; or omit it")
    return value


def _steps(at: str, raw: Mapping[str, Any]) -> answer_style.Steps | None:
    """Return the second style of a taught row's answer, None where it has none."""
    if "steps" not in raw:
        return None
    found = raw["steps"]
    if not isinstance(found, dict) or len(_wordings(f"{at}: steps", found, "steps")) < 2:
        raise UserError(f"{at}: steps must have steps (two texts or more), warning and alternative; or omit it")
    both = texts(f"{at}: steps", found, ("warning", "alternative"))
    return {"steps": found["steps"], "warning": both["warning"], "alternative": both["alternative"]}


def _facts(at: str, raw: Mapping[str, Any], default: list[list[str]] | None) -> list[list[str]]:
    facts = raw.get("facts", default)
    if not isinstance(facts, list) or not all(
        isinstance(fact, list) and fact and all(isinstance(text, str) and text for text in fact) for fact in facts
    ):
        raise UserError(f'{at}: facts must be a list of lists of texts, e.g. [["74 c", "165 f"]]')
    for text in (text for fact in facts for text in fact):
        if why := not_judged(text):
            raise UserError(
                f"{at}: facts has {text!r}, which {why}; correct it, or write [] to leave the row to the loss"
            )
    return facts


def lines(path: Path, limit: int | None = None, names: str = "*.jsonl") -> list[tuple[Path, int, dict[str, Any]]]:
    """Return (file, line number, object) for all lines of the files of `path` that match `names`, or the first `limit`; raises UserError at the
    first invalid one."""
    if not (paths := sorted(path.glob(names))):
        raise UserError(f"{path}: no *.jsonl file; a data set has train/*.jsonl and heldout/*.jsonl")
    found: list[tuple[Path, int, dict[str, Any]]] = []
    seen: dict[str, str] = {}
    for name in paths:
        before = len(found)
        for number, row in islice(records(name), None if limit is None else limit - before):
            at = f"{name}:{number}"
            key = str(row.get("id"))
            if "id" in row and key in seen:
                raise UserError(f"{at}: id {key!r} is already at {seen[key]}; give each question its own id")
            seen[key] = at
            found.append((name, number, row))
        if len(found) == before != limit:
            raise UserError(f"{name}: is empty; remove it or add questions")
    return found


def needed_lines(count: int | None, path: Path) -> int | None:
    """Return how many lines to read to sample `count` rows: for hub rows just `count`, as their order is random."""
    return count if (path / RECORD).exists() else None


def _pair(at: str, raw: Mapping[str, Any]) -> dict[str, str]:
    """Return {id, question, answer} of a row; a verse is the answer to its instruction."""
    if "verse" in raw or "instruction" in raw:
        verse = texts(at, raw, ("id", "instruction", "verse"))
        return {"id": verse["id"], "question": verse["instruction"], "answer": verse["verse"]}
    return texts(at, raw, ("id", "question", "answer"))


def texts(at: str, row: Mapping[str, Any], keys: Sequence[str]) -> dict[str, str]:
    """Return the text fields of a row; raises UserError that names the missing or wrong key."""
    for key in keys:
        if key not in row:
            raise UserError(f"{at}: key {key} is missing; each line needs {', '.join(keys)}")
        if not isinstance(row[key], str) or not row[key].strip():
            raise UserError(f"{at}: {key} is {row[key]!r}: must be a text that is not empty")
    return {key: row[key] for key in keys}
