"""Contract of what data/survival asks besides its facts: reversed and composed questions, answers in steps, and what base knows.

Proves what data/survival/README.md promises of the keys `reversed` and `steps`, of composed.jsonl and of retention.jsonl.
Facts are found by trainlab's own search, so a row that passes here can be answered in full.
"""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from contract.test_survival_data import (
    DATA,
    NEAR_DUPLICATE,
    Text,
    all_rows,
    filled,
    grams,
    is_spelling,
    near_duplicates,
    texts,
    words,
)
from trainlab.evaluation import facts

STEPS_KEYS = ["steps", "warning", "alternative"]
MAX_LENGTH = 110
"""Characters of a step, a warning or an alternative: a style of short sentences."""
MIN_COMPOSED = 40
RETAINED = 200
COMMON = 0.3
"""Share of word 3-grams in common from which a general question is too near a question of the six topics; a whole
near-duplicate is NEAR_DUPLICATE."""


def lone(name: str) -> list[dict[str, Any]]:
    """Return the rows of a file that belongs to no topic."""
    return [json.loads(line) for line in (DATA / name).read_bytes().splitlines()]


TAUGHT = {row["id"]: row for row in all_rows("taught")}
COMPOSED = lone("composed.jsonl")
RETENTION = lone("retention.jsonl")


def rendered(row: dict[str, Any]) -> str:
    """Return the answer in steps as lines of text."""
    style = row["steps"]
    return "\n".join([*style["steps"], style["warning"], style["alternative"]])


def are_facts(value: Any) -> bool:
    """Say whether a value is a list of facts, each a list of lower-case spellings without one twice."""
    return bool(value) and all(fact and all(map(is_spelling, fact)) and len(set(fact)) == len(fact) for fact in value)


def asked() -> Iterator[tuple[str, str, list[list[str]]]]:
    """Yield (id, question, facts) of every question of this module."""
    for row in TAUGHT.values():
        yield f"{row['id']}/reversed", row["reversed"]["question"], row["reversed"]["facts"]
    for row in [*COMPOSED, *RETENTION]:
        yield row["id"], row["question"], row["facts"]


@pytest.mark.parametrize("ident", TAUGHT)
def test_a_fact_is_asked_backwards(ident: str) -> None:
    """The question and its facts, in this order."""
    back = TAUGHT[ident]["reversed"]
    assert list(back) == ["question", "facts"] and filled(back["question"]) and are_facts(back["facts"])
    assert back["question"].endswith("?")


@pytest.mark.parametrize("ident", TAUGHT)
def test_an_answer_in_steps_says_what_the_answer_says(ident: str) -> None:
    """Two to five short steps, a warning and an alternative, with every fact and nothing that must never be said."""
    row = TAUGHT[ident]
    style = row["steps"]
    assert list(style) == STEPS_KEYS and 2 <= len(style["steps"]) <= 5
    parts = [*style["steps"], style["warning"], style["alternative"]]
    assert all(filled(part) and len(part) <= MAX_LENGTH and part.endswith(".") for part in parts)
    assert len(set(parts)) == len(parts)
    assert facts.recall(rendered(row), row["facts"]) == 1.0
    assert facts.forbidden(rendered(row), row.get("never", [])) == []


def test_composed_rows_follow_the_schema() -> None:
    """Keys in order, numbered ids, two facts of `taught` and at least one spelled fact of each, as it stands there."""
    assert len(COMPOSED) >= MIN_COMPOSED
    for number, row in enumerate(COMPOSED, start=1):
        assert list(row) == ["id", "uses", "question", "facts"] and row["id"] == f"composed-{number:03d}"
        assert filled(row["question"]) and are_facts(row["facts"]), row["id"]
        assert len(row["uses"]) == len(set(row["uses"])) == 2 and set(row["uses"]) <= set(TAUGHT), row["id"]
        known = [TAUGHT[used]["facts"] for used in row["uses"]]
        assert all(any(fact in own for own in known) for fact in row["facts"]), row["id"]
        assert all(any(fact in own for fact in row["facts"]) for own in known), row["id"]
    assert len({frozenset(row["uses"]) for row in COMPOSED}) == len(COMPOSED)


def test_a_composed_question_needs_both_facts() -> None:
    """The answer to one of the two facts does not say what is asked of the other."""
    enough = [
        (row["id"], used)
        for row in COMPOSED
        for used in row["uses"]
        for fact in row["facts"]
        if fact not in TAUGHT[used]["facts"] and facts.recall(TAUGHT[used]["answer"], [fact])
    ]
    assert enough == []


def test_retention_rows_follow_the_schema() -> None:
    """Keys in order and numbered ids, two hundred of them, and no question twice."""
    assert len(RETENTION) == RETAINED
    for number, row in enumerate(RETENTION, start=1):
        assert list(row) == ["id", "question", "facts"] and row["id"] == f"keep-{number:03d}"
        assert filled(row["question"]) and are_facts(row["facts"]), row["id"]
    counts = Counter(" ".join(words(row["question"])) for row in RETENTION)
    assert [count for count, n in counts.items() if n > 1] == []


def test_no_question_says_its_own_answer() -> None:
    """A model that repeats the question gets nothing for it."""
    assert [(ident, question) for ident, question, wanted in asked() if any(facts.matches(question, wanted))] == []


def probes() -> list[Text]:
    """Return the questions of this module."""
    return [Text(ident, "asked", question, grams(question)) for ident, question, _ in asked()]


def test_retention_is_far_from_the_topics() -> None:
    """No general question shares COMMON of its 3-grams with a wording of the six topics, of a refusal, or of the other probes."""
    near = [
        f"{one.row} {one.text!r} ~ {other.row} {other.text!r}"
        for _, one, other in near_duplicates([*texts(), *probes()], COMMON)
        if one.row.startswith("keep-") != other.row.startswith("keep-")
    ]
    assert near == []


def test_no_question_is_like_another() -> None:
    """Neither within a split nor across, but for the phrasings of one row, and wordings of a taught fact that are trained on."""
    kept = {row["id"] for row in RETENTION}  # "What is the capital of ...": alike on purpose
    items = [*texts(), *(probe for probe in probes() if probe.row not in kept)]
    found = [
        f"{jaccard:.2f} {a.row} {a.text!r} ~ {b.row} {b.text!r}"
        for jaccard, a, b in near_duplicates(items)
        if {a.split, b.split} - {"train", "taught"} or ("taught" not in (a.split, b.split) and a.row != b.row)
    ]
    assert NEAR_DUPLICATE > COMMON and found == []
