"""facts: what counts as said, what does not, and that every reference answer of our data says its own facts."""

import json
import unicodedata

import pytest
from checkout import DATA
from trainlab.evaluation.facts import forbidden, marked, matches, normalize, recall


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
        ("About 62 mi.", "62 mi", True),
        ("About 62 minutes.", "62 mi", False),
        ("About 162 miles.", "62 miles", False),
        ("Go to a restaurant.", "rest", False),
        ("In this situation, run.", "sit", False),
        ("Carbon monoxide.", "car", False),
        ("Sitting or resting in cars.", "sit", True),
        ("It stirred.", "stir", True),
        ("It is sliding.", "slide", True),
        ("He carries it.", "carry", True),
        ("Two boxes.", "box", True),
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
    assert matches(text, [[spelling]]) == [said]


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
    paths = [path for part in ("heldout", "taught") for path in sorted(DATA.glob(f"*/{part}/*.jsonl"))]
    rows = [json.loads(line) for path in paths for line in path.open(encoding="utf-8")]
    missing = [
        (row["id"], fact)
        for row in rows
        if "facts" in row
        for fact, said in zip(row["facts"], matches(row["answer"], row["facts"]), strict=True)
        if not said
    ]
    assert rows and not missing


BITE = ["cut the bite", "suck out", "put ice", "use a tourniquet"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Keep still.", []),
        (
            "Cut the bite, suck out the venom and use a tourniquet. Keep still.",
            ["cut the bite", "suck out", "use a tourniquet"],
        ),
        ("Do not cut the bite, suck out the venom, put ice on it or use a tourniquet.", []),
        ("Don\u2019t cut the bite or suck out the venom.", []),
        ("Never put ice on it. Suck out the venom.", ["suck out"]),
        ("Keep still instead of trying to suck out the venom; avoid attempts to cut the bite.", []),
        ("Carry him without a pause and suck out the venom.", ["suck out"]),
        ("Do not panic, cut the bite.", ["cut the bite"]),
        ("Do not move, but put ice on it.", ["put ice"]),
        ("Do not hesitate to suck out the venom.", ["suck out"]),
        ("It is not dangerous to suck out the venom.", ["suck out"]),
    ],
)
def test_what_must_never_be_done_counts_unless_it_is_negated(text: str, said: list[str]) -> None:
    assert forbidden(text, BITE) == said
    assert forbidden("", BITE) == forbidden(text, []) == []


def test_no_stands_directly_before_what_it_negates() -> None:
    assert forbidden("Give no sips of tea.", ["sips of tea"]) == []
    assert forbidden("No, give sips of tea.", ["sips of tea"]) == ["sips of tea"]
