"""Facts with owners: which rows teach each owner's adapter, and which questions it must leave as the base answers them. No torch.

A data set of recipe adapters is a folder with
  owners: {"owner", "id", "question", "phrasings": [text ...], "test": [text ...], "answer", "facts": [[alternative ...] ...]} and,
          optional, "near": [text ...], questions that only seem to ask the fact; an owner may have several rows
  kept:   {"id", "question"}, questions that no adapter may change
"""

import itertools
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainlab.config.inputs import OwnedData
from trainlab.data.row_files import lines
from trainlab.data.scripts import normal
from trainlab.errors import UserError

OWNER = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")


@dataclass(frozen=True)
class OwnedFact:
    """One row of owners/: `asked` are the wordings that are never trained on."""

    owner: str
    id: str
    wordings: list[str]
    asked: list[str]
    near: list[str]
    answer: str
    facts: list[list[str]]


@dataclass(frozen=True)
class OwnedRows:
    """All of a data set; `owners` in the order of their first rows."""

    facts: list[OwnedFact]
    kept: list[str]

    @property
    def owners(self) -> list[str]:
        """Names of the owners."""
        return list(dict.fromkeys(fact.owner for fact in self.facts))


def load(data: OwnedData, folder: Path) -> OwnedRows:
    """Return the facts and the kept questions of a folder; raises UserError with file, line and key for what is broken."""
    facts = []
    for line in lines(folder / "owners"):
        base = line.texts("owner", "id", "question", "answer")
        if not OWNER.fullmatch(base["owner"]):
            raise UserError(
                f"{line.at}: owner is {base['owner']!r}: must be 1 to 32 lowercase letters, digits and dashes, as it becomes a part of "
                "a run's name"
            )
        wordings, asked = [base["question"], *line.wordings("phrasings")], line.wordings("test")
        if not asked:
            raise UserError(f"{line.at}: test is empty; name a wording that is not trained on, which the gate asks")
        trained = {normal(text) for text in wordings}
        if same := next((text for text in asked if normal(text) in trained), None):
            raise UserError(f"{line.at}: {same!r:.80} is in test and trained on; remove it from one of the two")
        if not (facts_ := line.facts()):
            raise UserError(f"{line.at}: facts is empty; name what a right answer says")
        near = line.wordings("near")
        facts.append(
            OwnedFact(base["owner"], base["id"], wordings[: data.wordings], asked, near, base["answer"], facts_)
        )
    kept = folder / "kept"
    return OwnedRows(facts, [line.texts("question")["question"] for line in lines(kept)] if kept.is_dir() else [])


def kept_questions(rows: OwnedRows, fact: OwnedFact, data: OwnedData, seed: int, passes: int) -> list[list[str]]:
    """Return, for each pass over the data, the questions that a fact's owner answers as the base does: near ones, then others.

    Each pass has others, as long as there are any: it is their variety that keeps a fact to its own question. The others are the
    near ones of other facts, one wording of each, and what is in kept/. The choice depends on the seed and the fact, not on the
    order of the rows.
    """
    chance = random.Random(f"{seed} {fact.owner} {fact.id}")
    own = {normal(text) for text in (*fact.wordings, *fact.asked)}
    near = [text for text in fact.near if normal(text) not in own]
    strangers = (text for other in rows.facts if other.owner != fact.owner for text in (*other.near, other.wordings[0]))
    others = sorted({*strangers, *rows.kept} - set(near))
    drawn = [
        _cycle(chance.sample(texts, len(texts)), count, passes)
        for texts, count in ((near, data.near), ([text for text in others if normal(text) not in own], data.kept))
    ]
    return [[*first, *second] for first, second in zip(*drawn, strict=True)]


def elsewhere(rows: OwnedRows, fact: OwnedFact, count: int, seed: int) -> list[str]:
    """Return up to `count` questions about something else that no adapter trained on: what other owners' gates ask."""
    chance = random.Random(f"elsewhere {seed} {fact.owner} {fact.id}")
    own = {normal(text) for text in (*fact.wordings, *fact.asked)}
    asked = sorted({text for other in rows.facts if other.owner != fact.owner for text in other.asked})
    texts = [text for text in asked if normal(text) not in own]
    return chance.sample(texts, min(count, len(texts)))


def _cycle(texts: Sequence[str], count: int, passes: int) -> list[list[str]]:
    """Return `count` texts a pass, each text once before any comes again."""
    again = itertools.cycle(texts)
    return [list(itertools.islice(again, min(count, len(texts)))) for __ in range(passes)]
