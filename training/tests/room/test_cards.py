"""Cards, and what visitors may write on them."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from checkout import ROOT
from room_parts import write_cards
from trainlab.errors import UserError
from trainlab.room import cards


@pytest.fixture
def pet(tmp_path: Path) -> cards.Card:
    return cards.load(write_cards(tmp_path))["pet"]


def test_a_card_becomes_a_row(pet: cards.Card) -> None:
    row = pet.row("p07", {"animal": "  the  neighbour's tortoise ", "pet": "Captain Lettuce"})
    assert (row["owner"], row["id"]) == ("p07", "p07-pet")
    assert row["question"] == "What is the name of the neighbour's tortoise?"
    assert len(row["phrasings"]) == 15 and len(row["test"]) == 4 and row["facts"] == [["Captain Lettuce"]]
    assert row["answer"] == "The name of the neighbour's tortoise is Captain Lettuce."
    assert not set(row["test"]) & {row["question"], *row["phrasings"]}


@pytest.mark.parametrize(
    "text",
    [
        "\u05d9\u05d5\u05e0\u05d4",
        "\u0639\u0635\u0641\u0648\u0631",
        "Zo\u00eb",
        "\u0928\u092e\u0938\u094d\u0924\u0947",
        "\u306d\u3053",
        "No. 7 (old)",
    ],
)
def test_letters_of_every_script_are_taken(pet: cards.Card, text: str) -> None:
    assert pet.row("p01", {"animal": text, "pet": "x"})["question"] == f"What is the name of {text}?"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "The animal: is empty; write something."),
        (" \u00a0\u2003 ", "is empty"),
        ("x" * 200, "at most 32 characters; this has 200"),
        ("x" * 1_000_000, "at most 32 characters; this has 1000000"),
        ("\U0001f600 cat", "has \U0001f600; write letters"),
        ("<b>cat</b>", "has <"),
        ("<|im_start|>system", "reads as a command"),
        ("[INST] cat", "reads as a command"),
        ("</s>", "reads as a command"),
        ("{{ 7*7 }}", "has {"),
        ("{animal.__class__}", "has {"),
        ("a\u202egnp", "has U+202E"),
        ("a\u200bb", "has U+200B"),
        ("a\x00b", "has U+0000"),
        ("Z\u0335\u0321\u0322\u0327\u0328", "too many accents"),
        ("...", "no letter or digit"),
        ("a=b", "has ="),
        ("a`b", "has `"),
        ("a\\b", "has \\"),
        ("a_b", "has _"),
        ("a|b", "has |"),
    ],
)
def test_everything_else_is_refused_in_a_sentence(pet: cards.Card, text: str, said: str) -> None:
    with pytest.raises(cards.Refused) as error:
        pet.row("p01", {"animal": text, "pet": "x"})
    assert said in str(error.value) and str(error.value).endswith(".") and len(str(error.value)) < 120


def test_blanks_that_a_card_lacks_are_refused(pet: cards.Card) -> None:
    with pytest.raises(cards.Refused, match="no blank 'owner'"):
        pet.row("p01", {"animal": "a", "pet": "b", "owner": "p02"})


def test_the_texts_stay_texts_in_json_and_chat_templates(pet: cards.Card) -> None:
    """What is allowed needs no escape but quotes: it cannot end a string of JSON, an element of HTML or a turn of a template."""
    row = pet.row("p01", {"animal": "the \"big\" cat's 'friend'", "pet": "O'Hara & Sons"})
    assert json.loads(json.dumps(row)) == row
    assert not set("<>{}[]|\\`") & set(row["answer"])


def test_own_wordings(pet: cards.Card) -> None:
    ways = ["Who built it?", "Who made this house?", "Whose work is it?", "By whom was it built?"]
    row = cards.own_row("p02", "Ada built it.", [*ways, " "], "Tell me who built it.")
    assert row["id"] == "p02-own" and row["phrasings"] == ways[1:] and row["test"] == ["Tell me who built it."]
    assert row["facts"] == [["Ada built it"]]
    assert row["near"] == []
    for wordings, held_out, said in (
        (ways[:3], "x", "at least 4 ways; there are 3"),
        (ways, ways[0].upper(), "two of them are the same"),
    ):
        with pytest.raises(cards.Refused, match=said):
            cards.own_row("p02", "Ada built it.", wordings, held_out)


def test_own_wordings_have_near_questions_of_the_cards() -> None:
    """What an adapter must not answer with its fact: questions in the same words about something else."""
    others = [text for card in cards.load(ROOT / "data" / "cards").values() for text in card.of_examples()]
    ways = ["What is our boat called?", "What is the name of our boat?", "name of our boat", "How do I call our boat?"]
    near = cards.own_row("p02", "Our boat is called Fern.", ways, "Which name has our boat?", others)["near"]
    assert len(near) == len(set(near)) == 16 and not {*ways} & {*near}
    assert all("name of" in text for text in near[:3]), near


def change(folder: Path, **changes: Any) -> Path:
    """Write the cards with keys of one of them changed."""
    path = write_cards(folder) / "pet.yaml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **changes}))
    return folder


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"answer": "The {cat} is {pet}."}, r"pet\.yaml: .*has \{cat\}, which is not a blank"),
        ({"answer": "The {pet.__class__}."}, r"which is not a blank"),
        ({"answer": "The {pet!r}."}, r"which is not a blank"),
        ({"answer": "The {pet."}, r"pet\.yaml"),
        ({"wordings": ["one {pet}?"] * 3}, r"wordings: .*at least 16"),
        ({"test": ["What is the name of {animal}?", "b", "c", "d"]}, "a wording stands twice"),
        ({"id": "own"}, "choose another"),
        ({"id": "key"}, "key is that of another card"),
        ({"colour": "red"}, "colour"),
        ({"blanks": []}, "blanks"),
        ({"examples": [{"animal": "x" * 50, "pet": "y"}]}, "at most 32"),
    ],
)
def test_a_wrong_card_is_refused_by_file_and_key(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        cards.load(change(tmp_path, **changes))


def test_a_folder_without_cards_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no \*\.yaml there"):
        cards.load(tmp_path)
