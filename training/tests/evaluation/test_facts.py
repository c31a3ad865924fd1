"""facts: what counts as said, what does not, and that every reference answer of our data says its own facts."""

import json
import unicodedata

import pytest
from checkout import DATA
from trainlab.evaluation.facts import found, marked, normalize, recall


@pytest.mark.parametrize(
    ("text", "spelling", "said"),
    [
        ("Give 30 compressions.", "30", True),
        ("Give 300 compressions.", "30", False),
        ("It is 235.2.", "235", True),
        ("It is 30,500 long.", "30", False),
        ("It weighs 1.30 kg.", "30", False),
        ("Thirty. 30.", "30", True),
        ("One mile is 1.609 km.", "1.6", True),
        ("One mile is 11.6 km.", "1.6", False),
        ("About 62 miles.", "62 mi", True),
        ("About 162 miles.", "62 mi", False),
        ("Parboil the rice.", "boil", False),
        ("Keep it\n  boiling", "boil", True),
        ("Heat it to 74 \u00b0C.", "74 c", True),
        ("Heat it to 74\u00b0C.", "74c", True),
        ("Give **two\u00a0breaths**", "two breaths", True),
        ("100\u2013120 a minute", "100-120", True),
        ("It doesn\u2019t slip", "doesn't slip", True),
        ("No, never.", "no,", True),
        ("Piano, never.", "no,", False),
    ],
)
def test_one_spelling(text: str, spelling: str, said: bool) -> None:
    assert found(text, [[spelling]]) == [said]


def test_recall_is_the_share_of_facts() -> None:
    facts = [["boil", "boiling"], ["1 minute", "one minute"], ["cool"]]
    assert recall("BOIL it for one  minute.", facts) == pytest.approx(2 / 3)
    assert recall("", facts) == 0
    assert recall("anything", []) is None


def test_marked_cuts_the_text_where_facts_stand() -> None:
    text = "**First**  boil it at 100\u00a0\u00b0C; then re\u0301boil."
    pieces = marked(text, [["boil"], ["100 c"]])
    assert [piece for piece, said in pieces if said] == ["boil", "100\u00a0\u00b0C"]
    assert "".join(piece for piece, _ in pieces) == unicodedata.normalize("NFC", text)
    assert marked("", [["x"]]) == [] and normalize("  A \n b ") == "a b"


def test_reference_answers_of_the_data_hold_their_facts() -> None:
    rows = [json.loads(line) for path in sorted(DATA.glob("*/heldout/*.jsonl")) for line in path.open(encoding="utf-8")]
    missing = [
        (row["id"], fact)
        for row in rows
        if "facts" in row
        for fact, said in zip(row["facts"], found(row["answer"], row["facts"]), strict=True)
        if not said
    ]
    assert rows and not missing
