"""Cards: forms of one to three blanks that become a question in many wordings and its answer; what visitors may write.

A text of a visitor is trained on, shown on a screen, and put into HTML, JSON and prompts, so it consists of letters, digits and
plain punctuation. Whoever writes something else gets a sentence.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Formatter
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from trainlab.errors import UserError

WORDINGS, HELD_OUT, NEAR = 16, 4, 4
OWN = "own"
"""Id of the card on which visitors write question wordings and the answer themselves."""
OWN_WORDINGS, OWN_ANSWER_LENGTH, OWN_WORDING_LENGTH = 4, 120, 100
"""Wordings that a visitor writes at least, besides the one that is held out, and characters at most."""
NAME_LENGTH = 24
_MARKS = 3  # combining marks on one letter that a script needs; more run into the lines above
_PUNCTUATION = set(" .,;:!?'\"()-/&+%\u2019\u2018\u201c\u201d\u2013\u2014\u00bf\u00a1\u060c\u061f\u3001\u3002")
_SPECIAL = re.compile(r"\[/?INST\]|<<|>>|</?s>|<\|", re.IGNORECASE)  # of chat templates, named in the refusal
Text = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class Refused(UserError):
    """A visitor's or presenter's wish that cannot be granted, in a sentence for them."""


class Blank(BaseModel):
    """One field of a card's form."""

    model_config = ConfigDict(extra="forbid")
    key: Annotated[str, StringConstraints(pattern=r"^[a-z]{1,16}$")]
    label: Text
    example: Text
    max_length: Annotated[int, Field(ge=1, le=120)]


class Card(BaseModel):
    """A form, the wordings of its question, and the answer. `{key}` in them stands for what a visitor writes into a blank."""

    model_config = ConfigDict(extra="forbid")
    id: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z-]{0,23}$")]
    title: Text
    blanks: Annotated[list[Blank], Field(min_length=1, max_length=3)]
    answer: Text
    wordings: Annotated[list[Text], Field(min_length=WORDINGS)]
    test: Annotated[list[Text], Field(min_length=HELD_OUT)]
    facts: Annotated[list[Annotated[list[Text], Field(min_length=1)]], Field(min_length=1)]
    examples: list[dict[str, str]] = []

    @model_validator(mode="after")
    def _consistent(self) -> "Card":
        keys = {blank.key for blank in self.blanks}
        if len(keys) != len(self.blanks):
            raise ValueError("two blanks have the same key")
        if self.id == OWN:
            raise ValueError(f"id {OWN} is that of the card without a form; choose another")
        texts = [self.answer, *self.wordings, *self.test, *(spelling for fact in self.facts for spelling in fact)]
        for text in texts:
            try:
                parts = list(Formatter().parse(text))
            except ValueError as error:
                raise ValueError(f"{text!r}: {error}") from None
            for __, key, spec, conversion in parts:
                if key is not None and (key not in keys or spec or conversion):
                    raise ValueError(
                        f"{text!r} has {{{key}}}, which is not a blank; blanks are {', '.join(sorted(keys))}"
                    )
        both = [*self.wordings, *self.test]
        if len(set(both)) != len(both):
            raise ValueError("a wording stands twice; held-out ones are never trained on")
        return self

    def row(self, owner: str, values: Mapping[str, str]) -> dict[str, Any]:
        """Return the row of Runner.start for what a visitor wrote. Raises Refused."""
        known = {blank.key for blank in self.blanks}
        if unknown := set(values) - known:
            raise Refused(f"The card has no blank {min(unknown)[:20]!r}; fill {', '.join(sorted(known))}.")
        texts = {blank.key: clean(values.get(blank.key, ""), blank.label, blank.max_length) for blank in self.blanks}

        def fill(template: str) -> str:
            text = template.format_map(texts)
            return text[0].upper() + text[1:] if template.startswith("{") else text

        wordings = [fill(wording) for wording in self.wordings]
        return {
            "owner": owner,
            "id": f"{owner}-{self.id}",
            "question": wordings[0],
            "phrasings": wordings[1:],
            "test": [fill(wording) for wording in self.test],
            "answer": fill(self.answer),
            "facts": [[spelling.format_map(texts) for spelling in fact] for fact in self.facts],
            "near": self.near(texts),
        }

    def near(self, texts: Mapping[str, str]) -> list[str]:
        """Return the question about somebody else in NEAR wordings each: what an adapter must not answer with its own fact."""
        subjects = {wording.format_map(texts) for wording in self.wordings}
        return sorted(set(self.of_examples()) - subjects)

    def of_examples(self) -> list[str]:
        """Return the question about each example in NEAR wordings."""
        return [wording.format_map(example) for example in self.examples for wording in self.wordings[:NEAR]]


def own_row(
    owner: str, answer: str, wordings: Sequence[str], held_out: str, others: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the row of a visitor who wrote answer and wordings; `held_out` is not trained on. Raises Refused.

    others: questions of cards, of which those that share most words with the visitor's are its near ones.
    """
    answer = clean(answer, "Answer", OWN_ANSWER_LENGTH)
    texts = [clean(text, f"Wording {n}", OWN_WORDING_LENGTH) for n, text in enumerate(wordings, 1) if text.strip()]
    if len(texts) < OWN_WORDINGS:
        raise Refused(f"Wordings: write the question in at least {OWN_WORDINGS} ways; there are {len(texts)}.")
    held_out = clean(held_out, "Wording for the test", OWN_WORDING_LENGTH)
    if len({text.casefold() for text in (*texts, held_out)}) != len(texts) + 1:
        raise Refused("Wordings: two of them are the same; write each in other words.")
    return {
        "owner": owner,
        "id": f"{owner}-{OWN}",
        "question": texts[0],
        "phrasings": texts[1:],
        "test": [held_out],
        "answer": answer,
        "facts": [[answer.rstrip(".!?\u3002\u061f ")]],
        "near": _alike([*texts, held_out], others),
    }


def _alike(texts: Sequence[str], others: Sequence[str]) -> list[str]:
    """Return NEAR times NEAR of `others`, as many as a card has, that share most words with one of `texts`."""
    words = [set(text.casefold().split()) for text in texts]
    rest = {text for text in others if text.casefold() not in {own.casefold() for own in texts}}
    return sorted(rest, key=lambda text: (-max(len(own & set(text.casefold().split())) for own in words), text))[
        : NEAR**2
    ]


def clean(text: str, label: str, length: int) -> str:
    """Return a visitor's text in NFC with single spaces. Raises Refused, which names `label` and the remedy."""
    if len(text) > 10 * length:  # normalizing a huge text is work
        raise Refused(f"{label}: at most {length} characters; this has {len(text)}.")
    text = " ".join(unicodedata.normalize("NFC", text).split())
    if not text:
        raise Refused(f"{label}: is empty; write something.")
    if len(text) > length:
        raise Refused(f"{label}: at most {length} characters; this has {len(text)}.")
    if _SPECIAL.search(text):
        raise Refused(f"{label}: holds signs that a model reads as a command; write plain words.")
    marks = 0
    for letter in text:
        kind = unicodedata.category(letter)
        marks = marks + 1 if kind in ("Mn", "Mc", "Me") else 0
        if marks > _MARKS:
            raise Refused(f"{label}: has too many accents on one letter; leave them out.")
        if kind[0] in "LM" or kind == "Nd" or letter in _PUNCTUATION:
            continue
        shown = letter if letter.isprintable() else f"U+{ord(letter):04X}"
        raise Refused(f"{label}: has {shown}; write letters, digits and plain punctuation, no emoji or markup.")
    if not any(letter.isalnum() for letter in text):
        raise Refused(f"{label}: has no letter or digit; write a word.")
    return text


def load(folder: Path) -> dict[str, Card]:
    """Return the cards of `folder` by id, in the order of file names. Raises UserError with file, key and remedy."""
    paths = sorted(folder.glob("*.yaml"))
    if not paths:
        raise UserError(f"--cards {folder}: no *.yaml there; name a folder of cards such as data/cards")
    cards: dict[str, Card] = {}
    for path in paths:
        try:
            card = Card.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "the card"
            raise UserError(f"{path}: {where}: {first['msg']}") from None
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise UserError(f"{path}: cannot be read as YAML: {error}") from None
        if card.id in cards:
            raise UserError(f"{path}: id: {card.id} is that of another card; choose another")
        for example in card.examples:
            card.row("p00", example)
        card.row("p00", {blank.key: blank.example for blank in card.blanks})
        cards[card.id] = card
    return cards
