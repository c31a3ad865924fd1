"""forms: rhyme and syllables by spelling, and form adherence that can say yes, no and half."""

import pytest
from trainlab.data.verse_forms import (
    COUNTED,
    FORMS,
    RHYMED,
    adherence,
    line_count,
    parts,
    rhymes,
    should_rhyme,
    syllables,
)

COUPLET = "The kettle sings its little song to me,\nAnd I sit down and have a cup of tea."
AABB = "The night was cold\nthe stars were old\nthe moon was bright\nall through the night"
HAIKU = "First frost on the gate\nthe latch too cold for my hand\nI use my elbow"
LIMERICK = (
    "A postman who came from Peru\nCould dance every letter to you.\nWith a hop at the gate\nAnd a twirl for the late,\n"
    "He did bills to a waltz, overdue."
)


@pytest.mark.parametrize(
    ("form", "text"), [("couplet", COUPLET), ("quatrain_aabb", AABB), ("haiku", HAIKU), ("limerick", LIMERICK)]
)
def test_a_verse_in_its_form_is_whole(form: str, text: str) -> None:
    assert adherence(text, form) == 1
    assert adherence("\n\n" + text.replace("\n", "\n\n") + "\n", form) == 1, "empty lines are not lines"


@pytest.mark.parametrize(
    ("form", "text", "score"),
    [
        ("quatrain_abab", AABB, 0.5),  # four lines, neither pair rhymes
        ("couplet", "One line of prose that ends here.", 0),
        ("couplet", "It rains.\nIt rains.", 0.5),  # a word repeated is no rhyme
        ("couplet", f"Here is a couplet:\n{COUPLET}", 0),  # the preamble is a line, and shifts the others
        ("couplet", f"{COUPLET}\nI hope you like it!", 0.5),
        ("haiku", HAIKU.replace("my elbow", "an elbow of mine"), 0.5 + 2 / 6),
        ("haiku", COUPLET, 0),
        ("limerick", "\n".join(LIMERICK.split("\n")[:4]), 2 / 8),  # of four pairs two need the last line
        ("tercet", "", 0),
        ("tercet", "...\n---\n!!!", 0),
    ],
)
def test_what_is_missing_is_taken_off(form: str, text: str, score: float) -> None:
    assert adherence(text, form) == pytest.approx(score)


def test_what_is_missing_is_named() -> None:
    assert parts(AABB, "quatrain_abab") == {"lines": 1, "rhyme": 0}
    assert parts(HAIKU.replace("my elbow", "an elbow of mine"), "haiku") == {
        "lines": 1,
        "syllables": pytest.approx(2 / 3),
    }


def test_every_form_has_lines_and_something_to_judge() -> None:
    assert set(FORMS) == {*RHYMED, *COUNTED} and not set(RHYMED) & set(COUNTED)
    assert {form: line_count(form) for form in ("couplet", "limerick", "cinquain")} == {
        "couplet": 2,
        "limerick": 5,
        "cinquain": 5,
    }
    assert should_rhyme("quatrain_abab") == [(0, 2), (1, 3)] and should_rhyme("haiku") == []
    with pytest.raises(KeyError):
        adherence("text", "sonnet")


def test_rules_on_words() -> None:
    assert rhymes("bouquet", "may") and not rhymes("tree", "door")
    assert [syllables(word) for word in ("tables", "wanted", "walked", "don't", "queue")] == [2, 2, 1, 1, 1]
