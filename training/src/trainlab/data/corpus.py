"""The documents of a phase in three parts: training, validation, held out; used by cpt_recipe.py. No torch.

The parts consist of whole documents, the same ones every time: ordered by digest, so that neither the seed of the phase
nor the order of the rows changes what base and tuned model are compared on.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainlab import files
from trainlab.config import TextPhase
from trainlab.config.types import TOPICS
from trainlab.data import text_files
from trainlab.data.text_files import Document
from trainlab.errors import UserError

PYTHON_LICENSE = "PSF-2.0 (the Python documentation, as pydoc carries it)"


@dataclass(frozen=True)
class Corpus:
    """The parts, and what was dropped: rows without text, documents equal to another."""

    train: list[Document]
    validation: list[Document]
    heldout: list[Document]
    blank: int
    duplicates: int


def load(phase: TextPhase, path: Path) -> Corpus:
    """Return the parts of the text of a phase; raises UserError for text that cannot be read or split."""
    found, blank = _documents(phase, path)
    unique = {document.text: document for document in reversed(found)}
    pool = sorted(unique.values(), key=lambda one: hashlib.sha256(one.text.encode()).digest())
    fraction = phase.train.validation_fraction
    needed = 3 if fraction else 2
    if len(pool) < needed:
        raise UserError(
            f"phase.data.source is {phase.data.source}: {len(pool)} different documents, the parts need at least "
            f"{needed}; add documents, or split them with phase.text.document_start"
        )
    total = sum(len(document.text) for document in pool)
    heldout = draw(pool, phase.text.heldout_fraction * total)
    rest = _without(pool, heldout)
    validation = draw(rest, fraction * total) if fraction else []
    train = _without(rest, validation)
    return Corpus(train, validation, heldout, blank, len(found) - len(pool))


def draw(pool: Sequence[Document], characters: float) -> list[Document]:
    """Return documents in the order of `pool` up to this many characters; one too large for what remains is skipped.

    At least one document (the shortest), never all of them.
    """
    taken: list[Document] = []
    for document in pool:
        if len(document.text) <= characters and len(taken) < len(pool) - 1:
            taken.append(document)
            characters -= len(document.text)
    return taken or [min(pool, key=lambda document: len(document.text))]


def _without(pool: Sequence[Document], taken: Sequence[Document]) -> list[Document]:
    gone = set(taken)
    return [document for document in pool if document not in gone]


def origin(phase: TextPhase, path: Path) -> dict[str, Any]:
    """Return {source, sha256, license if known} for the manifest."""
    source = phase.data.source
    if source == TOPICS and not path.exists():
        texts = "\n".join(f"{one.id} {hashlib.sha256(one.text.encode()).hexdigest()}" for one in topics())
        return {"source": source, "sha256": hashlib.sha256(texts.encode()).hexdigest(), "license": PYTHON_LICENSE}
    digest = files.sha256(path) if path.is_file() else files.folder_sha256(path, "*")
    record = path.with_name("source.json")  # of a fetched data set
    if source.startswith("hf:") and record.is_file():
        return {"source": source, "sha256": digest, "license": files.read_json(record)["license"]}
    return {"source": source, "sha256": digest}


def _documents(phase: TextPhase, path: Path) -> tuple[list[Document], int]:
    if phase.data.source == TOPICS and not path.exists():
        return topics(), 0
    return text_files.documents(path, phase.text.column, phase.text.document_start)


def topics() -> list[Document]:
    """Return the topics of Python's own help(), each as a document; they differ between Python versions."""
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise UserError(
            f"phase.data.source is {TOPICS}: this Python comes without pydoc_data; install the full standard library, "
            "or name another source"
        ) from None
    return [Document(name, text) for name, text in sorted(topics.items())]
