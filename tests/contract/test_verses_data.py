"""Contract of data/verses: row formats, counts, forms (lines, rhyme, syllables), and nothing shared by the splits.

Proves that the data set is what data/verses/README.md promises; run by `make check`.
The rules on rhyme and syllables are the package's own (trainlab.data.verse_forms), which also score the models.
"""

import json
import re
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from trainlab.data.verse_forms import COUNTED, FORMS, RHYMED, adherence, line_count, rhymes, syllables, words

DATA = Path(__file__).resolve().parents[2] / "data" / "verses"
KEYS = ["id", "style", "theme", "form", "instruction", "verse"]
SPLITS = ("train", "heldout")
NAMES = {"quatrain_aabb": "quatrain in AABB", "quatrain_abab": "quatrain in ABAB"}  # in instructions
STYLES = {"folk", "joyful", "playful", "solemn", "spare", "tender", "wistful", "wry"}
NEAR_DUPLICATE = 0.5


def rows(split: str, form: str) -> list[dict[str, Any]]:
    """Return the rows of one file; a line that is not a JSON object fails with file and line number."""
    result: list[dict[str, Any]] = []
    path = DATA / split / f"{form}.jsonl"
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            pytest.fail(f"{split}/{form}.jsonl line {number}: not JSON: {error}")
        assert isinstance(row, dict), f"{split}/{form}.jsonl line {number}: not an object"
        result.append(row)
    return result


def all_rows(*splits: str) -> list[dict[str, Any]]:
    """Return the rows of all forms of the splits (both when none is named)."""
    return [row for split in splits or SPLITS for form in FORMS for row in rows(split, form)]


def of_form(form: str) -> list[dict[str, Any]]:
    """Return the rows of one form of both splits."""
    return [row for split in SPLITS for row in rows(split, form)]


def pairs(form: str, rhyming: bool) -> list[tuple[str, str, str]]:
    """Return (id, last word, last word) of the line pairs of a form that must, or must not, rhyme."""
    pattern = RHYMED[form]
    result = []
    for row in of_form(form):
        ends = [words(line)[-1] for line in row["verse"].split("\n")]
        for i, j in combinations(range(len(pattern)), 2):
            if (pattern[i] == pattern[j]) is rhyming:
                result.append((row["id"], ends[i], ends[j]))
    return result


def grams(text: str) -> set[tuple[str, ...]]:
    """Return the word 3-grams of a text."""
    found = words(text)
    return {tuple(found[i : i + 3]) for i in range(max(1, len(found) - 2))}


def test_only_the_forms_exist() -> None:
    """Both splits hold exactly one file for each form."""
    for split in SPLITS:
        assert sorted(path.name for path in (DATA / split).iterdir()) == [f"{form}.jsonl" for form in FORMS]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("split", SPLITS)
def test_rows_follow_the_schema(split: str, form: str) -> None:
    """A row has its six keys in order, all filled, an id of its form and split, and a known style."""
    for number, row in enumerate(rows(split, form), start=1):
        where = f"{split}/{form}.jsonl line {number}"
        assert list(row) == KEYS, where
        assert all(isinstance(value, str) and value and value == value.strip() for value in row.values()), where
        assert row["id"] == (f"{form}-{number:03d}" if split == "train" else f"{form}-h{number:02d}"), where
        assert row["form"] == form and row["style"] in STYLES, where


def test_counts() -> None:
    """At least 300 distinct verses, some of each form in both splits, each style in both."""
    found = all_rows()
    assert len({" ".join(words(row["verse"])) for row in found}) == len(found) >= 300
    assert len({row["id"] for row in found}) == len(found)
    for form in FORMS:
        assert len(rows("train", form)) >= 30 and len(rows("heldout", form)) >= 5, form
    for split, least in (("train", 25), ("heldout", 3)):
        styles = Counter(row["style"] for row in all_rows(split))
        assert set(styles) == STYLES and min(styles.values()) >= least, (split, styles)


def test_the_readme_has_the_counts() -> None:
    """The README's table matches the disk."""
    readme = (DATA / "README.md").read_text(encoding="utf-8")
    for form in FORMS:
        numbers = f"| {len(rows('train', form))} | {len(rows('heldout', form))} |"
        assert re.search(rf"^\| `{form}` \|.*{re.escape(numbers)}$", readme, re.MULTILINE), f"{form}: {numbers}"
    assert f"| all | | {len(all_rows('train'))} | {len(all_rows('heldout'))} |" in readme


def test_instructions_ask_for_the_verse() -> None:
    """Each names theme and form; no two are equal, and no phrasing rules."""
    found = all_rows()
    for row in found:
        text = row["instruction"].lower()
        assert row["theme"].lower() in text and NAMES.get(row["form"], row["form"]).lower() in text, row["id"]
        assert row["style"] in text, row["id"]
    assert len({row["instruction"] for row in found}) == len(found)
    starts = Counter(" ".join(words(row["instruction"])[:2]) for row in found)
    assert max(starts.values()) < 0.4 * len(found)


@pytest.mark.parametrize("form", FORMS)
def test_every_verse_has_the_lines_of_its_form(form: str) -> None:
    """The number of lines is right and none is empty."""
    lines = line_count(form)
    for row in of_form(form):
        found = row["verse"].split("\n")
        assert len(found) == lines and all(words(line) and line == line.strip() for line in found), row["id"]


@pytest.mark.parametrize("form", sorted(RHYMED))
def test_lines_that_should_rhyme_do(form: str) -> None:
    """Every pair of the pattern rhymes by its spelling, and not with itself."""
    wrong = [pair for pair in pairs(form, True) if pair[1] == pair[2] or not rhymes(pair[1], pair[2])]
    assert wrong == []


@pytest.mark.parametrize("form", ["limerick", "quatrain_aabb", "quatrain_abab"])
def test_lines_that_should_not_rhyme_do_not(form: str) -> None:
    """The pattern is there and not one rhyme throughout; this also shows that the rule on spelling can reject.

    One pair in a hundred may rhyme by accident, since the rule cannot tell the two sounds of one spelling apart.
    """
    found = pairs(form, False)
    assert len([pair for pair in found if rhymes(pair[1], pair[2])]) <= len(found) / 100


@pytest.mark.parametrize("form", sorted(COUNTED))
def test_syllables(form: str) -> None:
    """No line is off by more than one, and at most one line in twenty is off at all.

    The tolerance is the rule's error, not the poets': against the CMU pronouncing dictionary every line is exact, and
    the rule miscounts compounds (something, somewhere) and -red, -ier (hundred, heavier): 13 of 366 lines, by one.
    """
    off = [
        (row["id"], line, syllables(line) - count)
        for row in of_form(form)
        for line, count in zip(row["verse"].split("\n"), COUNTED[form], strict=True)
        if syllables(line) != count
    ]
    assert [entry for entry in off if abs(entry[2]) > 1] == []
    assert len(off) <= len(of_form(form)) * len(COUNTED[form]) / 20, off


def test_the_rules_can_say_no() -> None:
    """Rhyme and syllable rules on plain cases."""
    assert rhymes("queen", "clean") and rhymes("bouquet", "may")
    assert not rhymes("tree", "door") and not rhymes("bake", "back")
    assert [syllables(text) for text in ("first frost on the gate", "tables", "wanted", "walked", "little")] == [
        5,
        2,
        2,
        1,
        2,
    ]


def test_the_verses_score_well_by_the_rule_that_scores_models() -> None:
    """Form adherence of each form is 97 % or more; the rest is what the rules miscount (see above)."""
    for form in FORMS:
        scores = [adherence(row["verse"], form) for row in of_form(form)]
        assert sum(scores) / len(scores) >= 0.97, form


def test_train_and_heldout_share_nothing() -> None:
    """No theme, instruction, verse or line occurs twice in the data set, so none is in both splits."""
    found = all_rows()
    for key in ("theme", "instruction", "verse"):
        assert [value for value, n in Counter(row[key].lower() for row in found).items() if n > 1] == []
    lines = Counter(" ".join(words(line)) for row in found for line in row["verse"].split("\n"))
    assert [line for line, n in lines.items() if n > 1 and len(line.split()) > 2] == []


def test_no_near_duplicates() -> None:
    """No two verses share half of their word 3-grams."""
    known = [(row["id"], grams(row["verse"])) for row in all_rows()]
    close = [(a, b) for (a, x), (b, y) in combinations(known, 2) if len(x & y) / len(x | y) >= NEAR_DUPLICATE]
    assert close == []


READING = [json.loads(line) for line in (DATA / "reading.jsonl").read_text(encoding="utf-8").splitlines()]


def test_questions_on_reading_have_one_right_answer_in_four() -> None:
    """Six of each kind; ASCII, as the verses."""
    assert Counter(row["kind"] for row in READING) == dict.fromkeys(("analysis", "style", "genre", "context"), 6)
    assert len({row["id"] for row in READING}) == len(READING)
    for row in READING:
        choices = [row["answer"], *row["distractors"]]
        assert len(set(choices)) == 4 and all(map(str.isascii, [row["question"], *choices])), row["id"]
    for kind in ("style", "context"):
        assert not [
            row["id"] for row in READING if row["kind"] == kind and row["answer"].lower() in row["question"].lower()
        ]


@pytest.mark.parametrize("row", [row for row in READING if row["kind"] == "analysis"], ids=lambda row: row["id"])
def test_the_right_form_of_a_verse_is_right_by_the_rules(row: dict[str, Any]) -> None:
    """And the rules refuse the wrong ones that they know."""
    verse = row["question"].partition("\n")[2]
    forms = {"ABAB": "quatrain_abab", "AABB": "quatrain_aabb", "a haiku": "haiku", "a limerick": "limerick"}
    if row["answer"] in forms:
        assert adherence(verse, forms[row["answer"]]) == 1
        assert all(adherence(verse, forms[wrong]) < 1 for wrong in row["distractors"] if wrong in forms)
    else:
        assert row["answer"] in ("a simile", "an alliteration")
