"""Scores of the model that a training starts from, kept by content beside the runs: the next run that would compute the same reads them.

Not in the model volume, which pods that train mount read-only. Used by recipes/language.py. No torch on import.
"""

import contextlib
import hashlib
import json
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from trainlab import files
from trainlab.config import ChatPhase, LanguagePhase

FOLDER = ".scores"
LIBRARIES = ("torch", "transformers", "tokenizers")
CODE = Path(__file__).parents[1]
KEPT = 20
"""Files in FOLDER: each change of a phase's data, model or code leaves one that nobody reads again."""


def place(
    phase: LanguagePhase, run_dir: Path, model: str | None, rows: Sequence[Any], trained: Sequence[str], where: str
) -> Path | None:
    """Return the file of the scores, whose name is a digest of all that decides them; None where that is not known.

    `model` is the SHA-256 of its files, None for a pvc: source, whose content may change; `rows` are the held-out ones,
    `trained` the answers whose use in an emergency is harm; `where` names device, dtype and number of ranks, whose batches decide
    the last digits. Tasks have data of their own, and recipes of texts score blocks: neither is kept.
    """
    if model is None or not isinstance(phase, ChatPhase) or phase.evaluate.tasks:
        return None
    sections = {"recipe", "model", "data", "evaluate", "questions"}
    content = {
        "model": model,
        "rows": rows,
        "trained": trained,
        "where": where,
        "tf32": phase.train.tf32,
        "phase": phase.model_dump(mode="json", include=sections),
        "versions": {name: version(name) for name in LIBRARIES},
        "code": files.folder_sha256(CODE, "**/*.py"),
    }
    return run_dir.parent / FOLDER / f"{_digest(content)}.json"


def write(path: Path, scores: dict[str, Any]) -> None:
    """Keep the scores, atomically, and only the KEPT newest files; a second writer has the same content.

    Does nothing where the folder is another user's, or full: the run has its scores.
    """
    with contextlib.suppress(OSError):
        files.write_json(path, {"sha256": _digest(scores), "scores": scores})
        written = sorted(path.parent.glob("*.json"), key=lambda file: file.stat().st_mtime_ns, reverse=True)
        for old in written[KEPT:]:
            old.unlink(missing_ok=True)


def read(path: Path) -> tuple[dict[str, Any] | None, str | None]:
    """Return (scores, None), or (None, sentence) for a file that is not as it was written, or (None, None) without one."""
    if not path.exists():
        return None, None
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        if kept["sha256"] == _digest(kept["scores"]):
            return dict(kept["scores"]), None
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return None, f"{path}: kept scores, not as they were written; computed again"


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=False).encode()).hexdigest()
