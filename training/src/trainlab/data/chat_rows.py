"""Questions and answers: reading JSONL with file and line in every error, sampling rows evenly, splitting by question.

Called by run/launch.py before any rank starts (so it must not import torch), by recipes/ and by evaluation/.

A data set is a folder with train/*.jsonl and heldout/*.jsonl, one file per topic:
  train:   {"id", "question", "phrasings": [text ...], "answer"}
  heldout: {"id", "question", "answer", "facts": [[alternative ...] ...]}
  taught:  {"id", "question", "phrasings", "dev": [text ...], "test": [text ...], "answer", "facts"}, read if `data.taught`
           asks for it: trained on as question and phrasings, asked as dev or test
  refused: {"id", "question", "split": "train", "dev" or "test"} and, for a near miss of a taught fact, "near": its id; read if
           `data.refused_rows` asks for it, with the answers of refusals.json (data/answer_forms.py)
  heldout and taught also "safety": true if a wrong answer could hurt someone, and "never": [text ...] that it must not say
  all also "emergency": true if the question tells of one (data/answer_forms.py)
or, in train and heldout, verses: {"id", "instruction", "verse"} and, to score the form, "form" (data/verse_forms.py).
Rows of a hub (data/table_rows.py) also have "group": rows that share one are never on both sides of a split, and count
as one for the gate.
"""

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict, TypeGuard, TypeVar

from trainlab.config.inputs import AnswerData, Data, PairData
from trainlab.data.answer_forms import label_line, load_refusals, same_answer, steps_text
from trainlab.data.row_files import Line, RefusedRow, Safety, group_of, lines, needed_lines, refused, validation_lines
from trainlab.data.scripts import normal
from trainlab.data.verse_forms import FORMS
from trainlab.errors import UserError

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


class HeldoutRow(Safety):
    """One held-out question; a right answer contains one alternative of each fact, a verse keeps its form.

    `label`: as in TrainRow. `nearest`: see data/nearest.py. `group`: the fact or question that several rows share, which
    count as one for the gate; a row without it stands for itself. Where refusals are taught, `refusal` is what one begins
    with, and `refuse` says that the question is to be refused; `answer` of a row of kind refused is the refusal. `steps`: the right
    answer has the parts of data/answer_forms.py.
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
Sampled = TypeVar("Sampled", TrainRow, HeldoutRow, RefusedRow)


def load_train(data: Data, path: Path) -> list[TrainRow]:
    """Return the training rows under `path`/train, one per phrasing; `data.train_rows` of them, evenly across topics.

    Questions that differ only in case and punctuation count as one, whatever their ids: else one may validate the
    other. With `data.taught` the wordings of taught facts come first, as many complete facts as fit; rows that ask what is
    taught have the fact's id. The `data.refused_rows` refusals come last.
    """
    facts = taught_facts(data, path)
    taught = [row for fact in facts for row in fact.train]
    left = None if data.train_rows is None else data.train_rows - len(taught)
    if left == 0 and not _refuses(data):
        return taught
    rows: list[TrainRow] = []
    asked: list[tuple[str, Sequence[str]]] = [(row["id"], (row["question"],)) for row in taught]
    for line in lines(path / "train", needed_lines(data.train_rows, path)):
        worded = rows_of(line, data)
        rows += worded
        shared = "group" in line.raw or "verse" in line.raw  # many verses share one instruction
        asked.append((worded[0]["id"], () if shared else [row["question"] for row in worded]))
    leaders = _leaders(asked)
    for row in rows:
        row["id"] = leaders[row["id"]]
    trained = [*taught, *even(rows, left)]
    return [*trained, *_refusals(data, path, facts, trained, rows)]


def load_validation(data: AnswerData | PairData, path: Path, folder: Path) -> tuple[list[TrainRow], list[str]]:
    """Return the rows of data.validation in `folder` for the data set in `path`, and the places of those that are left out."""
    kept, left_out = validation_lines(data, path, folder)
    return [row for line in kept for row in rows_of(line, data)], left_out


def rows_of(line: Line, data: Data) -> list[TrainRow]:
    """Return the training rows of a line, one per phrasing."""
    base, emergency = line.pair(), line.flag("emergency")
    ident = line.texts("group")["group"] if "group" in line.raw else base["id"]
    wordings = [base["question"], *line.wordings("phrasings")]
    rows = [TrainRow(id=ident, topic=line.topic, question=each, answer=base["answer"]) for each in wordings]
    return [_labelled(row, emergency, data) for row in rows]


def _refuses(data: Data) -> TypeGuard[AnswerData]:
    return isinstance(data, AnswerData) and data.refuses


def _refusals(
    data: Data, path: Path, facts: Sequence[TaughtFact], taught: Sequence[TrainRow], rows: Sequence[TrainRow]
) -> list[TrainRow]:
    """Return `data.refused_rows` questions (-1: all) that are answered by a refusal.

    First the near misses of `facts`, then the emergencies of refused/, which a wrong answer would make worse; then by turns and evenly
    across topics the other rows of refused/ that are for training and questions of train/ (`rows`): those that neither are in `taught`
    nor have in effect the answer of one that is.
    """
    if not _refuses(data):
        return []
    sentences = load_refusals(path)
    known, answers = {row["id"] for row in taught}, {row["answer"] for row in taught}
    firsts = {row["id"]: row for row in reversed(rows) if row["id"] not in known}
    others = [row for row in firsts.values() if not same_answer(row["answer"], answers)]
    near, rest = _near_first(refused(path, "train"), facts)
    urgent = [row for row in rest if row.get("emergency")]
    calm = [row for row in rest if not row.get("emergency")]
    pool: list[RefusedRow | TrainRow] = [*near, *urgent, *_by_turns(calm, _in_turn(others))]
    refusals = []
    for row in pool if data.refused_rows < 0 else pool[: data.refused_rows]:
        emergency = row.get("emergency", False)
        answer = sentences.sentence(row["topic"], emergency)
        train = TrainRow(id=row["id"], topic=row["topic"], question=row["question"], answer=answer)
        refusals.append(_labelled(train, emergency, data))
    return refusals


def _to_refuse(data: Data, path: Path, facts: Sequence[TaughtFact]) -> list[HeldoutRow]:
    """Return the questions of refused/ that are asked, half of them near misses of `facts` while there are such."""
    if not _refuses(data) or data.taught is None:
        return []
    sentences, rows = load_refusals(path), []
    for row in _by_turns(*_near_first(refused(path, data.taught), facts))[: data.heldout_rows]:
        emergency = row.get("emergency", False)
        answer = sentences.sentence(row["topic"], emergency)
        asked = _asked("refused", row["id"], row["topic"], row["question"], answer, [])
        rows.append(_labelled(asked, emergency, data))
    return rows


def _by_turns(*parts: Sequence[Any]) -> list[Any]:
    """Return the first of each part, the second of each, and so on."""
    return [row for turn in zip_longest(*parts) for row in turn if row]


def _near_first(rows: Sequence[RefusedRow], facts: Sequence[TaughtFact]) -> tuple[list[RefusedRow], list[RefusedRow]]:
    """Return (near misses of `facts`, the others), each evenly across topics."""
    ids = {fact.id for fact in facts}
    near = [row for row in rows if row.get("near") in ids]
    return _in_turn(near), _in_turn([row for row in rows if row.get("near") not in ids])


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
    to be refused as well, but where rows of train/ are taught, which cover what they ask. Raises UserError for one id in two of them.
    """
    rows: list[HeldoutRow] = []
    asked: dict[str, str] = {}
    for line in lines(path / "heldout", needed_lines(data.heldout_rows, path)):
        base, raw = line.pair(), line.raw
        row = _asked("never_taught", base["id"], line.topic, base["question"], base["answer"], line.facts())
        row |= line.safety()
        if "group" in raw:
            row["group"] = line.texts("group")["group"]
        elif "verse" not in raw:  # many verses share one instruction
            row |= group_of(row["id"], row["question"], asked)
        if "verse" in raw and "form" in raw:
            if raw["form"] not in FORMS:
                raise UserError(f"{line.at}: form is {raw['form']!r}: must be one of {', '.join(FORMS)}; or omit it")
            row["form"] = raw["form"]
        rows.append(_labelled(row, line.flag("emergency"), data))
    facts = taught_facts(data, path)
    rows = even(rows, data.heldout_rows) + [row for fact in facts for row in fact.asked]
    if to_refuse := _to_refuse(data, path, facts):
        alone = data.train_rows == sum(len(fact.train) for fact in facts)
        begins = load_refusals(path).begins
        for row in (rows := rows + to_refuse):
            row["refusal"] = begins
            if row["kind"] == "refused" or (alone and row["kind"] == "never_taught"):
                row["refuse"] = True
    rows += [row for probe in (probes if facts else ()) for row in _probe_rows(probe, data, path, facts)]
    kinds = {row["id"]: row["kind"] for row in rows}
    if twice := [row["id"] for row in rows if kinds[row["id"]] != row["kind"]]:
        raise UserError(
            f"{path}: id {twice[0]} is of questions of two kinds, but scores are kept by id; give each its own"
        )
    return rows


def _probe_rows(probe: str, data: Data, path: Path, facts: Sequence[TaughtFact]) -> list[HeldoutRow]:
    """Return the rows of one of evaluate.probes; raises UserError where the data set has none.

    ceiling: one question about each fact, with the fact's answer before it. reversed: from an answer back to its subject. retention: the
    general questions of retention.jsonl. composed: those of composed.jsonl whose facts are all taught.
    """
    firsts = {fact.id: fact.asked[0] for fact in facts}
    if probe == "ceiling":
        rows = []
        for ident, row in firsts.items():
            question = f"{row['answer']}\n\n{row['question']}"
            asked = _asked("ceiling", f"{ident}/ceiling", row["topic"], question, row["answer"], row["facts"])
            asked["group"] = ident
            rows.append(_labelled(asked, row.get("emergency", False), data))
        return rows
    if probe == "reversed":
        if not (rows := [fact.reversed for fact in facts if fact.reversed]):
            raise UserError(
                f"{path / 'taught'}: no row has the key reversed; add it, or remove it from phase.evaluate.probes"
            )
        return rows
    if not (path / f"{probe}.jsonl").is_file():
        raise UserError(
            f"{path / f'{probe}.jsonl'}: no such file; add it, or remove {probe} from phase.evaluate.probes"
        )
    all_lines = lines(path, names=f"{probe}.jsonl")
    if probe == "retention":
        return [_probe(line, "retention", probe, "; ".join(fact[0] for fact in line.facts())) for line in all_lines]
    composed = [(line, line.wordings("uses")) for line in all_lines]
    return [
        _probe(line, "composed", firsts[uses[0]]["topic"], "\n".join(firsts[each]["answer"] for each in uses))
        for line, uses in composed
        if uses and all(each in firsts for each in uses)
    ]


def _probe(line: Line, kind: Kind, topic: str, answer: str) -> HeldoutRow:
    base = line.texts("id", "question")
    return _asked(kind, base["id"], topic, base["question"], answer, line.facts())


def _asked(kind: Kind, ident: str, topic: str, question: str, answer: str, facts: list[list[str]]) -> HeldoutRow:
    return HeldoutRow(id=ident, kind=kind, topic=topic, question=question, answer=answer, facts=facts)


def taught_facts(data: Data, path: Path) -> list[TaughtFact]:
    """Return the facts under `path`/taught, evenly across topics, as many as fit into `data.train_rows` whole.

    Empty without `data.taught`, which names the wordings to ask. Raises UserError for invalid rows, or if no fact fits.
    """
    if not isinstance(data, AnswerData) or data.taught is None:
        return []
    facts = {fact.id: fact for line in lines(path / "taught") for fact in [_taught_fact(line, data, data.taught)]}
    if data.style == "steps" and not any(row.get("steps") for fact in facts.values() for row in fact.asked):
        raise UserError(
            f"{path / 'taught'}: no row has the key steps, which phase.data.style needs; add it, or set plain"
        )
    taught: list[TaughtFact] = []
    room = data.train_rows
    for row in _in_turn([fact.train[0] for fact in facts.values()]):
        fact = facts[row["id"]]
        if room is not None:
            room -= len(fact.train)
            if room < 0:
                break
        taught.append(fact)
    if not taught:
        needed = len(next(iter(facts.values())).train)
        raise UserError(
            f"phase.data.train_rows is {data.train_rows}: no taught fact fits with all its wordings; raise it to at "
            f"least {needed}"
        )
    return taught


def _taught_fact(line: Line, data: AnswerData, part: str) -> TaughtFact:
    base = line.texts("id", "question", "answer")
    ident, facts, emergency = base["id"], line.facts(), line.flag("emergency")
    steps = line.steps() if data.style == "steps" else None
    answer = steps_text(steps) if steps else base["answer"]
    train = [
        _labelled(TrainRow(id=ident, topic=line.topic, question=question, answer=answer, taught=True), emergency, data)
        for question in (base["question"], *line.wordings("phrasings"))[: data.taught_wordings]
    ]
    asked: list[HeldoutRow] = []
    for number, question in enumerate(line.wordings(part), start=1):
        row = _asked("taught", f"{ident}/{part}{number}", line.topic, question, answer, facts) | line.safety()
        row["group"] = ident
        if steps:
            row["steps"] = True
        asked.append(_labelled(row, emergency, data))
    back = line.raw.get("reversed")
    if back is not None:
        if not isinstance(back, dict):
            raise UserError(f"{line.at}: reversed must be an object with question and facts; or omit it")
        own = Line(line.file, line.at, {"id": f"{ident}/reversed", **back})
        back = _probe(own, "reversed", line.topic, answer)
    wordings = [base["question"], *(text for key in ("phrasings", "dev", "test") for text in line.wordings(key))]
    return TaughtFact(ident, train, asked, back, wordings)


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
        row["label"] = label_line(row["topic"], emergency)
    return row


def even(rows: Sequence[Sampled], count: int | None) -> list[Sampled]:
    """Sample `count` rows (None: all), equally many from each topic while it has some; the same ones every time.

    A topic first gives one row of each question, then further phrasings: a small sample has many questions. The seed is
    fixed on purpose: phase.seed changes the training, not the data it is compared on.
    """
    return list(rows) if count is None or count >= len(rows) else _in_turn(rows)[:count]


def _in_turn(rows: Sequence[Sampled]) -> list[Sampled]:
    """Return `rows`, one of each topic in turn."""
    queues: list[list[Sampled]] = []
    for topic in sorted({row["topic"] for row in rows}):
        seen: Counter[str] = Counter()
        ranked: list[tuple[int, float, Sampled]] = []
        rng = random.Random(f"0 {topic}")
        for row in rows:
            if row["topic"] == topic:
                ranked.append((seen[row["id"]], rng.random(), row))
                seen[row["id"]] += 1
        queues.append([entry[2] for entry in sorted(ranked, key=lambda entry: entry[:2])])
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
