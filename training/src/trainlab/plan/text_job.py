"""How many blocks of tokens the running text of a phase gives; used by source. No torch, no tokenizer: an estimate."""

from pathlib import Path

from trainlab.config import TextPhase
from trainlab.config.references import TOPICS
from trainlab.data import corpus

CHARS_PER_TOKEN = 3.6  # of Python's manual with SmolLM2's vocabulary
# Tokens of the split `train`, all documents: 2.4 M of WikiText-2 is our estimate for vocabularies of about 50,000.
HUB_TOKENS = {("Salesforce/wikitext", "wikitext-2-raw-v1"): 2.4e6}


def blocks(phase: TextPhase) -> tuple[int | None, float]:
    """Return (blocks of the training part, None for text whose size is unknown here; tokens per block)."""
    length = phase.model.max_length
    tokens = _tokens(phase)
    if tokens is None:
        return phase.data.train_rows, float(length)
    have = max(1, int(tokens // length))
    return min(have, phase.data.train_rows or have), float(length)


def _tokens(phase: TextPhase) -> float | None:
    """Return the tokens of the training part, None if its text is neither here nor in the table."""
    source = phase.data.source
    if source == TOPICS:
        part = corpus.load(phase, Path("no file: the text comes with Python"))
        return sum(len(document.text) for document in part.train) / CHARS_PER_TOKEN
    name = source.removeprefix("hf:").partition("@")[0]
    total = HUB_TOKENS.get((name, phase.text.hub_config or ""))
    return None if total is None else total * (1 - phase.text.heldout_fraction - phase.train.validation_fraction)
