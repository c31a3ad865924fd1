"""Where running text is, and how a hub data set gets into the folder of data sets; used by cpt_recipe.py. No torch."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainlab.config import TextPhase
from trainlab.config.types import TOPICS
from trainlab.data.hub import download
from trainlab.data.hub.download import KEY
from trainlab.errors import UserError
from trainlab.models.fetch import datasets_dir, named_data

CONFIG_KEY = "phase.text.hub_config"
ROWS = "train.jsonl"


def place(phase: TextPhase, models: Path, given: Path | None, env: Mapping[str, str] | None = None) -> Path:
    """Return the file or folder that holds the text: `given` (--data), else DATA_DIR, else what `data.source` names.

    For pydoc:topics without either, nothing exists at the returned path: the text ships with Python. Raises UserError
    for a missing path.
    """
    env = os.environ if env is None else env
    source = phase.data.source
    if named := named_data(given, env):
        return named
    path = _inside(phase, datasets_dir(models, env))
    if source.startswith("hf:"):
        path = path / ROWS
    if source != TOPICS and not path.exists():
        remedy = "put it there first" if source.startswith("pvc:") else "run `trainlab fetch` with the same --models"
        raise UserError(f"{KEY} is {source}: nothing at {path}; {remedy}")
    return path


def fetch(phase: TextPhase, models: Path) -> Path | None:
    """Make sure that a hub data set is in the folder of data sets; return its folder, None if nothing needs fetching.

    The rows of its split `train` become train.jsonl, with all columns unchanged; other splits are not read, since the
    text is split by document (corpus.py). Raises UserError with the remedy.
    """
    source = phase.data.source
    if not source.startswith("hf:"):
        return None

    def fill(folder: Path) -> dict[str, Any]:
        config = phase.text.hub_config
        table = download.table(source, config, CONFIG_KEY, folder)
        with download.explained(source, CONFIG_KEY, folder):
            table.to_json(str(folder / ROWS), lines=True, force_ascii=False)
        license = download.license(source, CONFIG_KEY, folder)
        shutil.rmtree(folder / ".cache", ignore_errors=True)
        return {"source": source, "config": config, "license": license, "rows": len(table)}

    return download.once(_inside(phase, datasets_dir(models)), fill)


def _inside(phase: TextPhase, root: Path) -> Path:
    """Return the place of a source inside the folder of data sets."""
    source = phase.data.source
    if source.startswith("pvc:"):
        return root / source.removeprefix("pvc:")
    return download.place(root, source, phase.text.hub_config)
