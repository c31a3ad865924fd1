"""Which columns of a set are read, and which of its rows can be trained on; used by hub_rows.py."""

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trainlab.config import SftPhase
from trainlab.config.inputs import QUESTIONS, VERSES, Columns
from trainlab.data.hub.download import KEY
from trainlab.data.prepare import clean
from trainlab.data.verse_forms import FORMS
from trainlab.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Row = dict[str, str]
# No tokenizer makes tokens this long from human text: a longer row needs no counting, which would cost memory.
MOST_CHARACTERS = 64  # per token


def columns(given: Columns, there: Mapping[str, Any], source: str) -> Row:
    """Return {key of a row: column of the set}; raises UserError with the existing columns.

    The pair is the one that `given` names, else the one whose column names the set has.
    """
    named = {key: column for key, column in given.model_dump().items() if column is not None}
    listed = ", ".join(map(repr, there))
    pair = next((pair for pair in (VERSES, QUESTIONS) if set(pair) & set(named)), None)
    if pair is None:
        verses_only = "form" in named
        pair = next((p for p in (VERSES, QUESTIONS)[: 1 if verses_only else 2] if set(p) <= set(there)), None)
    if pair is None:
        raise UserError(
            f"{KEY} is {source}: no columns instruction and verse, or question and answer; it has {listed}: name them "
            "with phase.data.hub.columns, e.g. {instruction: ..., verse: ...}"
        )
    found = {key: named.get(key, key) for key in pair}
    if "form" in named:
        found["form"] = named["form"]
    for key, column in found.items():
        if column not in there:
            raise UserError(
                f"{KEY} is {source}: column {column!r} is missing; it has {listed}: correct phase.data.hub.columns.{key}"
            )
    return found


def usable(
    raw: Mapping[str, Any], names: Row, phase: SftPhase, tokenizer: "PreTrainedTokenizerBase", counts: Counter[str]
) -> Row | None:
    """Return the normalized texts of a row by key, None for an unusable one, whose reason is counted in `counts`."""
    texts = {key: raw.get(column) for key, column in names.items() if key != "form"}
    why = next((fault for fault in map(_fault, texts.values()) if fault), None)
    if why is None:
        row = {key: clean.normalize(str(text)).strip() for key, text in texts.items()}
        asked, answer = row.values()
        if not (asked and answer):  # they had only control characters
            why = "empty"
        elif not _fits(asked, answer, phase, tokenizer):
            why = "long"
    if why:
        counts[why] += 1
        return None
    form = raw.get(names["form"]) if "form" in names else None
    if form in FORMS:
        row["form"] = str(form)
    elif form not in (None, ""):
        counts["unknown_form"] += 1
    return row


def _fits(asked: str, answer: str, phase: SftPhase, tokenizer: "PreTrainedTokenizerBase") -> bool:
    """True for what chat.encode accepts."""
    from trainlab.models import chat

    longest = phase.model.max_length
    if len(asked) + len(answer) > MOST_CHARACTERS * longest:
        return False
    return (
        len(chat.prompt_ids(tokenizer, phase, asked)) + len(chat.answer_ids(tokenizer, phase, asked, answer)) <= longest
    )


def _fault(text: Any) -> str | None:
    """Return why a value cannot be trained on."""
    if text is None:
        return "empty"
    if not isinstance(text, str):
        return "broken"
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # half a surrogate pair, which JSON can encode
        return "broken"
    if not text.strip():
        return "empty"
    return "broken" if clean.RULES["broken"](text) else None
