"""The documents of a phase in three parts: training, validation, held out; where running text is, and how it is fetched. No torch.

The parts consist of whole documents, the same ones every time: ordered by digest, so that neither the seed of the phase
nor the order of the rows changes what base and tuned model are compared on."""

import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainlab import files
from trainlab.config import TextPhase
from trainlab.config.types import TOPICS
from trainlab.data import hub_download as download
from trainlab.data import object_store, text_files
from trainlab.data.row_files import VALIDATION_KEY, naming_validation
from trainlab.data.text_files import Document
from trainlab.errors import UserError
from trainlab.models.fetch import RECORD, datasets_dir, named_data, once

VALIDATION = "validation"  # a hub's split
PYTHON_LICENSE = "PSF-2.0 (the Python documentation, as pydoc carries it)"


@dataclass(frozen=True)
class Corpus:
    """The parts, and what was dropped: rows without text, documents equal to another, documents of data.validation that are in the text
    as well."""

    train: list[Document]
    validation: list[Document]
    heldout: list[Document]
    blank: int
    duplicates: int
    overlap: int = 0


def load(phase: TextPhase, path: Path, validation: Path | None = None) -> Corpus:
    """Return the parts of the text of a phase, of which data.validation is in `validation`.

    Raises UserError for text that cannot be read or split.
    """
    if phase.data.source == TOPICS and not path.exists():
        documents, blank = topics(), 0
    else:
        documents, blank = text_files.documents(path, phase.text.column, phase.text.document_start)
    unique = {document.text: document for document in reversed(documents)}
    pool = sorted(unique.values(), key=lambda document: hashlib.sha256(document.text.encode()).digest())
    fraction = phase.set_aside
    needed = 3 if fraction else 2
    if len(pool) < needed:
        raise UserError(
            f"phase.data.source is {phase.data.source}: {len(pool)} different documents, the parts need at least "
            f"{needed}; add documents, or split them with phase.text.document_start"
        )
    total = sum(len(document.text) for document in pool)
    heldout = draw(pool, phase.text.heldout_fraction * total)
    rest = _without(pool, heldout)
    chosen = draw(rest, fraction * total) if fraction else []
    train, dropped = _without(rest, chosen), len(documents) - len(pool)
    if validation is None:
        return Corpus(train, chosen, heldout, blank, dropped)
    own = read_validation(phase, validation)
    apart = [document for document in own if document.text not in unique]
    if not apart:
        raise UserError(f"{VALIDATION_KEY} is {phase.data.validation}: all of it is in phase.data.source; name another")
    return Corpus(train, apart, heldout, blank, dropped, len(own) - len(apart))


def read_validation(phase: TextPhase, path: Path) -> list[Document]:
    """Return the documents of data.validation, which is in `path`, each text once."""
    documents = text_files.documents(path, phase.text.column, phase.text.document_start)[0]
    return list({document.text: document for document in reversed(documents)}.values())[::-1]


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
        texts = "\n".join(f"{topic.id} {hashlib.sha256(topic.text.encode()).hexdigest()}" for topic in topics())
        return {"source": source, "sha256": hashlib.sha256(texts.encode()).hexdigest(), "license": PYTHON_LICENSE}
    digest = files.sha256(path) if path.is_file() else files.folder_sha256(path, "*")
    record = path.with_name(RECORD)  # of a fetched data set
    if source.startswith("hf:") and record.is_file():
        return {"source": source, "sha256": digest, "license": files.read_json(record)["license"]}
    return {"source": source, "sha256": digest}


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


CONFIG_KEY = "phase.text.hub_config"


def place(phase: TextPhase, models: Path, override: Path | None) -> Path:
    """Return the file or folder that holds the text: `override` (--data), else DATA_DIR, else what `data.source` names.

    For pydoc:topics without either, nothing exists at the returned path: the text ships with Python. Raises UserError
    for a missing path.
    """
    if named := named_data(override):
        return named
    return _existing(phase, phase.data.source, datasets_dir(models))


def validation_place(phase: TextPhase, models: Path | None) -> Path | None:
    """Return the file or folder that holds data.validation, None without; raises UserError where it is missing."""
    source = phase.data.validation
    if source is None:
        return None
    if models is None:
        raise UserError(f"{VALIDATION_KEY} is {source}: it is in the model volume; name that with --models")
    with naming_validation():
        return _existing(phase, source, datasets_dir(models), VALIDATION)


def _existing(phase: TextPhase, source: str, root: Path, split: str = "train") -> Path:
    """Return the file or folder of a source inside the folder of data sets; raises UserError where nothing is."""
    path = _inside(phase, source, root, split)
    if source.startswith("hf:"):
        path = path / f"{split}.jsonl"
    if source != TOPICS and not path.exists():
        remedy = "put it there first" if source.startswith("pvc:") else "run `trainlab fetch` with the same --models"
        raise UserError(f"{download.KEY} is {source}: nothing at {path}; {remedy}")
    return path


def fetch(phase: TextPhase, models: Path) -> Path | None:
    """Make sure that the texts of a hub or a bucket are in the folder of data sets; return where, None if nothing needs fetching."""
    if phase.data.validation:
        with naming_validation():
            fetch_source(phase, phase.data.validation, datasets_dir(models), VALIDATION)
    return fetch_source(phase, phase.data.source, datasets_dir(models))


def fetch_source(phase: TextPhase, source: str, root: Path, split: str = "train") -> Path | None:
    """The same for any source.

    The rows of a split of a hub become SPLIT.jsonl, with all columns unchanged; other splits are not read, since the
    text is split by document (corpus.py). An interrupted fetch goes on. Raises UserError with the remedy.
    """
    if source.startswith("s3:"):
        return object_store.fetch(source, root, text_files.SUFFIXES)
    if not source.startswith("hf:"):
        return None

    def fill(folder: Path) -> dict[str, Any]:
        config, count = phase.text.hub_config, phase.text.hub_rows
        license = download.license(source, CONFIG_KEY, folder)
        rows = download.stream(source, config, CONFIG_KEY, count, folder, folder / f"{split}.jsonl", split)
        shutil.rmtree(folder / ".cache", ignore_errors=True)
        return {"source": source, "config": config, "license": license, "rows": rows}

    target = _inside(phase, source, root, split)
    return once(target, (target / RECORD).exists, fill, resume=True) / f"{split}.jsonl"


def _inside(phase: TextPhase, source: str, root: Path, split: str = "train") -> Path:
    """Return the place of a source inside the folder of data sets."""
    if source.startswith("pvc:"):
        return root / source.removeprefix("pvc:")
    if source.startswith("s3:"):
        return object_store.folder(source, root)
    rows = f"{phase.text.hub_rows}-rows" if phase.text.hub_rows else None
    return download.place(root, source, phase.text.hub_config, rows, None if split == "train" else split)
