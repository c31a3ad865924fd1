"""Contract of data/survival: row formats, counts, facts, ASCII, and no leak between train and held-out.

Proves that the data set is what data/survival/README.md promises; run by `make check`.
Standard library and pytest only, so that it needs neither torch nor the trainlab package.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

DATA = Path(__file__).resolve().parents[2] / "data" / "survival"
TOPICS = ("car", "cooking", "first_aid", "knots", "unit_conversions", "wilderness")
MIN_TRAIN_QUESTIONS = 600
MIN_TRAIN_PER_TOPIC = 100
MIN_HELDOUT_PER_TOPIC = 25
NEAR_DUPLICATE = 0.6
TRAIN_KEYS = ["id", "question", "phrasings", "answer"]
HELDOUT_KEYS = ["id", "question", "answer", "facts", "distractors"]
TAUGHT_KEYS = ["id", "question", "phrasings", "dev", "test", "answer", "facts", "reversed", "steps"]
MIN_TAUGHT = 60
TRAINED, UNSEEN = 16, 2
"""Wordings of a taught fact that are trained on, and those of each unseen part."""
SPLITS, ALL = ("train", "heldout"), ("train", "heldout", "taught")
TAUGHT = {"train": "taught"}
REFUSED_TOPICS = (*TOPICS, "other")
REFUSED_KEYS = ["id", "question", "split"]
NEAR_MISSES = {"train": 3, "dev": 1, "test": 1}
"""Refused questions near each taught fact, by split."""
MIN_REFUSED = {"train": 110, "dev": 25, "test": 25}
"""Refused questions of the six topics that are near no fact, and as many outside the topics, by split."""
MIN_REFUSED_EMERGENCIES = {"train": 35, "dev": 10, "test": 15}


class Text(NamedTuple):
    """One question or phrasing: the row it belongs to, its split, its text and its word 3-grams."""

    row: str
    split: str
    text: str
    grams: frozenset[tuple[str, ...]]


def words(text: str) -> list[str]:
    """Return the lower-case words and numbers of a text, without punctuation."""
    return re.findall(r"[a-z0-9]+", text.lower())


def grams(text: str) -> frozenset[tuple[str, ...]]:
    """Return the set of word 3-grams; a text of fewer than three words is one gram of its own."""
    w = words(text)
    return frozenset(tuple(w[i : i + 3]) for i in range(max(1, len(w) - 2)))


def rows(split: str, topic: str) -> list[dict[str, Any]]:
    """Return the rows of one file; a line that is not a JSON object fails with file and line number."""
    path = DATA / split / f"{topic}.jsonl"
    result: list[dict[str, Any]] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            pytest.fail(f"{split}/{topic}.jsonl line {number}: not JSON: {error}")
        assert isinstance(row, dict), f"{split}/{topic}.jsonl line {number}: not an object"
        result.append(row)
    return result


def all_rows(split: str) -> list[dict[str, Any]]:
    """Return the rows of all topics of one split."""
    return [row for topic in TOPICS for row in rows(split, topic)]


def refused() -> list[dict[str, Any]]:
    """Return the questions that are answered by a refusal, of the six topics and outside them."""
    return [row for topic in REFUSED_TOPICS for row in rows("refused", topic)]


def wordings(row: dict[str, Any]) -> dict[str, list[str]]:
    """Return the wordings of a taught fact by their purpose."""
    return {"train": [row["question"], *row["phrasings"]], "dev": row["dev"], "test": row["test"]}


def texts() -> list[Text]:
    """Return every question and wording; those of a taught fact that are trained on have the split `taught`."""
    asked = [
        *(
            (row["id"], split, [row["question"], *row.get("phrasings", [])])
            for split in SPLITS
            for row in all_rows(split)
        ),
        *(
            (row["id"], TAUGHT.get(part, part), own)
            for row in all_rows("taught")
            for part, own in wordings(row).items()
        ),
        *((row["id"], "refused", [row["question"]]) for row in refused()),
    ]
    return [Text(row, split, text, grams(text)) for row, split, own in asked for text in own]


def near_duplicates(items: list[Text], least: float = NEAR_DUPLICATE) -> Iterator[tuple[float, Text, Text]]:
    """Yield the pairs with a 3-gram Jaccard >= `least`; an inverted index skips pairs that share no gram."""
    index: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for i, item in enumerate(items):
        shared = Counter(j for gram in item.grams for j in index[gram])
        for j, count in shared.items():
            jaccard = count / (len(item.grams) + len(items[j].grams) - count)
            if jaccard >= least:
                yield jaccard, items[j], item
        for gram in item.grams:
            index[gram].append(i)


def filled(value: object) -> bool:
    """Say whether a value is a string with no blanks at its ends and at least one character."""
    return isinstance(value, str) and value != "" and value == value.strip()


def is_spelling(value: object) -> bool:
    """Say whether a value is a lower-case spelling; a blank at its end is allowed, since it keeps "51 " from "510"."""
    return isinstance(value, str) and value.strip() != "" and value == value.lower()


def unmarked(row: dict[str, Any], topic: str) -> list[str]:
    """Return the keys without the last `safety` and `emergency`, true or absent: all of first aid and all emergencies
    are safety-relevant. After `safety` stands `never`, what no answer may say."""
    keys = list(row)
    if "emergency" in keys:
        assert row["emergency"] is True and keys.pop() == "emergency" and "safety" in keys, row["id"]
    if "safety" not in keys:
        assert topic != "first_aid" and "never" not in keys, row["id"]
        return keys
    assert keys.pop() == "never" and row["never"] and all(map(is_spelling, row["never"])), row["id"]
    assert len(set(row["never"])) == len(row["never"]), row["id"]
    assert row["safety"] is True and keys.pop() == "safety", row["id"]
    return keys


def test_only_the_six_topics_exist() -> None:
    """Each split holds exactly one file for each topic, and refused/ one more for what is outside them."""
    for split in ("train", "heldout", "taught"):
        assert sorted(p.name for p in (DATA / split).iterdir()) == [f"{topic}.jsonl" for topic in TOPICS]
    assert sorted(p.name for p in (DATA / "refused").iterdir()) == sorted(f"{topic}.jsonl" for topic in REFUSED_TOPICS)


@pytest.mark.parametrize("topic", TOPICS)
def test_train_rows_follow_the_schema(topic: str) -> None:
    """A train row has its keys in order, a unique id of its topic and at most two phrasings."""
    for number, row in enumerate(rows("train", topic), start=1):
        where = f"train/{topic}.jsonl line {number}"
        assert list(row) in (TRAIN_KEYS, [*TRAIN_KEYS, "emergency"]) and row.get("emergency", True) is True, where
        assert re.fullmatch(rf"{topic}-\d{{3}}", row["id"]), where
        assert filled(row["question"]) and filled(row["answer"]), where
        assert isinstance(row["phrasings"], list) and len(row["phrasings"]) <= 2, where
        assert all(filled(p) for p in row["phrasings"]), where


@pytest.mark.parametrize("topic", TOPICS)
def test_heldout_rows_follow_the_schema(topic: str) -> None:
    """A held-out row has its keys in order, two or three facts, each a list of lower-case spellings, and three distractors."""
    for number, row in enumerate(rows("heldout", topic), start=1):
        where = f"heldout/{topic}.jsonl line {number}"
        assert unmarked(row, topic) == HELDOUT_KEYS, where
        assert re.fullmatch(rf"{topic}-h\d{{2}}", row["id"]), where
        assert filled(row["question"]) and filled(row["answer"]), where
        assert len({*row["distractors"], row["answer"]}) == 4 and all(map(filled, row["distractors"])), where
        assert isinstance(row["facts"], list) and 2 <= len(row["facts"]) <= 3, where
        for fact in row["facts"]:
            assert isinstance(fact, list) and fact and all(is_spelling(s) for s in fact), where


@pytest.mark.parametrize("topic", TOPICS)
def test_taught_rows_follow_the_schema(topic: str) -> None:
    """A taught row has its keys in order, sixteen wordings to train on, two and two unseen ones, and two or three facts."""
    for number, row in enumerate(rows("taught", topic), start=1):
        where = f"taught/{topic}.jsonl line {number}"
        assert unmarked(row, topic) == TAUGHT_KEYS, where
        assert row["id"] == f"{topic}-t{number:02d}", where
        counts = {part: len(texts) for part, texts in wordings(row).items()}
        assert counts == {"train": TRAINED, "dev": UNSEEN, "test": UNSEEN}, where
        assert all(filled(text) for texts in wordings(row).values() for text in [*texts, row["answer"]]), where
        assert 2 <= len(row["facts"]) <= 3, where
        for fact in row["facts"]:
            assert fact and all(is_spelling(s) for s in fact), where


@pytest.mark.parametrize("topic", REFUSED_TOPICS)
def test_refused_rows_follow_the_schema(topic: str) -> None:
    """A refused row has its keys in order, a split, and may name a taught fact of its topic and tell of an emergency."""
    taught = {row["id"] for row in rows("taught", topic)} if topic in TOPICS else set()
    for number, row in enumerate(rows("refused", topic), start=1):
        where = f"refused/{topic}.jsonl line {number}"
        assert list(row) == [*REFUSED_KEYS, *(key for key in ("near", "emergency") if key in row)], where
        assert row["id"] == f"{topic}-r{number:03d}" and filled(row["question"]), where
        assert row["split"] in MIN_REFUSED and row.get("emergency", True) is True, where
        assert "near" not in row or row["near"] in taught, where


def test_each_fact_has_near_misses() -> None:
    """Three to train, one for dev and one for test; those of an emergency tell of other emergencies in each split."""
    near = Counter((row["near"], row["split"]) for row in refused() if "near" in row)
    urgent = {(row["near"], row["split"]) for row in refused() if "near" in row and "emergency" in row}
    for row in all_rows("taught"):
        for split, count in NEAR_MISSES.items():
            assert near[row["id"], split] == count, (row["id"], split)
            assert "emergency" not in row or (row["id"], split) in urgent, (row["id"], split)


def test_enough_questions_are_refused() -> None:
    """Of the six topics, outside them, and of emergencies, in each split."""
    others = Counter((row["id"].startswith("other-"), row["split"]) for row in refused() if "near" not in row)
    emergencies = Counter(row["split"] for row in refused() if "emergency" in row)
    for split in MIN_REFUSED:
        assert min(others[True, split], others[False, split]) >= MIN_REFUSED[split], split
        assert emergencies[split] >= MIN_REFUSED_EMERGENCIES[split], split


def test_refusals_begin_alike() -> None:
    """One sentence for each topic and for emergencies; it begins as no answer does."""
    refusals = json.loads((DATA / "refusals.json").read_text(encoding="ascii"))
    assert list(refusals) == ["begins", "answers"] and filled(refusals["begins"])
    assert list(refusals["answers"]) == [*REFUSED_TOPICS, "emergency"]
    for topic, answer in refusals["answers"].items():
        assert filled(answer) and answer.isascii() and answer.startswith(f"{refusals['begins']}: "), topic
        assert answer.count(".") == 1 and answer.endswith("."), topic
    assert "call the emergency services" in refusals["answers"]["emergency"]
    answers = [row["answer"] for split in ("train", "heldout", "taught") for row in all_rows(split)]
    assert [one for one in answers if one.startswith(refusals["begins"])] == []


def test_enough_facts_are_taught() -> None:
    """At least sixty facts, and no wording twice."""
    found = all_rows("taught")
    assert len(found) >= MIN_TAUGHT
    asked = Counter(" ".join(words(text)) for row in found for texts in wordings(row).values() for text in texts)
    assert [one for one, n in asked.items() if n > 1] == []


def test_the_counts_that_the_readme_tells() -> None:
    """Its last counts, of all three folders."""
    told = " ".join((DATA / "README.md").read_text(encoding="utf-8").split())
    train, taught = all_rows("train"), all_rows("taught")
    others = sum(len(row["phrasings"]) for row in train)
    asked = sum(len(texts) for row in taught for texts in wordings(row).values())
    assert (
        f"{len(train)} train questions with {others} other phrasings, and {len(all_rows('heldout'))} held-out" in told
    )
    assert f"{len(taught)} taught facts" in told and f"{asked:,} wordings" in told
    near, urgent = (sum(key in row for row in refused()) for key in ("near", "emergency"))
    assert f"{len(refused())} refused questions, {near} of them near misses and {urgent} emergencies" in told


def test_no_unseen_wording_says_its_own_answer() -> None:
    """A model that repeats the question gets nothing for it."""
    given = [
        f"{row['id']}: {one!r} says {fact}"
        for row in all_rows("taught")
        for one in [*row["dev"], *row["test"]]
        for fact in row["facts"]
        if any(re.search(rf"(?<![a-z0-9]){re.escape(spelling)}", one.lower()) for spelling in fact)
    ]
    assert given == []


def test_ids_are_unique() -> None:
    """No id occurs twice in the data set."""
    counts = Counter(row["id"] for row in [*refused(), *(row for split in ALL for row in all_rows(split))])
    assert [i for i, n in counts.items() if n > 1] == []


def test_counts() -> None:
    """At least 600 distinct train questions over six topics, and enough held-out rows in each."""
    questions = {" ".join(words(row["question"])) for row in all_rows("train")}
    assert len(questions) >= MIN_TRAIN_QUESTIONS
    for topic in TOPICS:
        assert len(rows("train", topic)) >= MIN_TRAIN_PER_TOPIC, topic
        assert len(rows("heldout", topic)) >= MIN_HELDOUT_PER_TOPIC, topic


@pytest.mark.parametrize("topic", TOPICS)
def test_part_of_the_rows_has_other_phrasings(topic: str) -> None:
    """At least a fifth of a topic's train rows ask the same question in another way."""
    found = rows("train", topic)
    assert sum(bool(row["phrasings"]) for row in found) >= len(found) / 5


def test_facts_are_in_their_own_answer() -> None:
    """The reference answer reaches full fact recall; otherwise no model could."""
    missing = [
        f"{row['id']}: {fact}"
        for row in [*all_rows("heldout"), *all_rows("taught")]
        for fact in row["facts"]
        if not any(re.search(rf"(?<![a-z0-9]){re.escape(spelling)}", row["answer"].lower()) for spelling in fact)
    ]
    assert missing == []


def test_distractors_are_as_long_as_the_answer() -> None:
    """Length does not give the right answer away."""
    ratios = [len(text) / len(row["answer"]) for row in all_rows("heldout") for text in row["distractors"]]
    assert 0.9 < sum(ratios) / len(ratios) < 1.1


def test_files_are_ascii_and_end_with_a_newline() -> None:
    """Every byte is ASCII (also after JSON unescaping), and each file ends with one newline."""
    for path in sorted(DATA.parent.glob("*/**/*.jsonl")):
        raw = path.read_bytes()
        assert raw.isascii() and raw.endswith(b"\n") and not raw.endswith(b"\n\n") and b"\\u" not in raw, path


def test_train_and_heldout_share_no_answer() -> None:
    """No held-out answer occurs, word for word, in train."""
    answered = {" ".join(words(row["answer"])) for row in all_rows("train")}
    assert [row["id"] for row in all_rows("heldout") if " ".join(words(row["answer"])) in answered] == []


def test_the_near_duplicate_search_finds_one() -> None:
    """The search itself works: a question with one more word is found, and an unrelated one is not."""
    ask = ["How do I tie a bowline in a wet rope?", "How do I tie a bowline in a wet rope today?", "What is a bight?"]
    items = [Text(str(i), "train", q, grams(q)) for i, q in enumerate(ask)]
    assert [(a.row, b.row) for _, a, b in near_duplicates(items)] == [("0", "1")]
