"""Where running text lies, and how a hub data set comes into the folder of data sets; used by recipe.py. No torch."""

import os
import re
import shutil
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trainlab import files
from trainlab.config import Phase
from trainlab.errors import UserError
from trainlab.fetch import datasets_dir
from trainlab.text.block import TOPICS

KEY = "phase.data.source"
ROWS = "train.jsonl"


def place(phase: Phase, models: Path, given: Path | None, env: Mapping[str, str] | None = None) -> Path:
    """Return the file or folder that holds the text: `given` (--data), else DATA_DIR, else what `data.source` names.

    For pydoc:topics without either it is a name under which nothing lies: the text comes with Python. Raises UserError
    for a path that is not there.
    """
    env = os.environ if env is None else env
    source = phase.data.source
    if given or env.get("DATA_DIR"):
        path = given or Path(env["DATA_DIR"])
        if not path.exists():
            raise UserError(f"{'--data' if given else 'DATA_DIR'} {path}: no such file or folder; correct the path")
        return path
    path = _inside(phase, datasets_dir(models, env))
    if source.startswith("hf:"):
        path = path / ROWS
    if source != TOPICS and not path.exists():
        remedy = "put it there first" if source.startswith("pvc:") else "run `trainlab fetch` with the same --models"
        raise UserError(f"{KEY} is {source}: nothing at {path}; {remedy}")
    return path


def fetch(phase: Phase, models: Path) -> Path | None:
    """Make sure that a hub data set lies in the folder of data sets; return its folder, None for text that need not be fetched.

    The rows of its split `train` become train.jsonl, column by column as they are; other splits are not read, since the
    parts are made by document (corpus.py). Raises UserError with the remedy.
    """
    source = phase.data.source
    if not source.startswith("hf:"):
        return None
    from filelock import FileLock

    root = datasets_dir(models)
    target = _inside(phase, root)
    root.mkdir(parents=True, exist_ok=True)
    with FileLock(root / f".{target.name}.lock"):
        if not (target / ROWS).exists():
            with files.whole_folder(target) as folder:
                rows, licence = _download(phase, folder)
                stamp = datetime.now(UTC).isoformat(timespec="seconds")
                record = {"source": source, "config": phase.text.hub_config, "licence": licence, "rows": rows}
                files.write_json(folder / "source.json", {**record, "fetched": stamp})
    return target


def _inside(phase: Phase, root: Path) -> Path:
    """Return the place of a source inside the folder of data sets."""
    source = phase.data.source
    if source.startswith("pvc:"):
        return root / source.removeprefix("pvc:")
    name = "-".join(["data", source, *([phase.text.hub_config] if phase.text.hub_config else [])])
    return root / re.sub(r"[^A-Za-z0-9._-]+", "-", name).lower()


def _download(phase: Phase, folder: Path) -> tuple[int, str]:
    """Write the rows of a hub data set into `folder`; return their number and the licence that its card states."""
    import datasets

    source = phase.data.source
    name, _, revision = source.removeprefix("hf:").partition("@")
    try:
        table: Any = datasets.load_dataset(
            name,
            phase.text.hub_config,
            revision=revision,
            split="train",
            token=os.environ.get("HF_TOKEN") or None,
            cache_dir=str(folder / ".cache"),
        )
        table.to_json(str(folder / ROWS), lines=True, force_ascii=False)
    except Exception as error:  # the hub, the network and the data set's files fail with classes of several libraries
        if getattr(error, "errno", None) == 28:
            raise UserError(f"{folder.parent}: the volume is full ({files.free_text(folder)}); enlarge it") from None
        raise UserError(
            f"{KEY} is {source}: cannot be fetched: {_first_line(error)}; check name, revision, phase.text.hub_config, "
            "the token of a gated set (site.hfTokenSecret) and the way to the hub (HF_ENDPOINT names a mirror), or use "
            "a pvc: source"
        ) from None
    shutil.rmtree(folder / ".cache", ignore_errors=True)
    return len(table), str(table.info.license or "not stated")


def _first_line(error: Exception) -> str:
    text = str(error)
    return text.splitlines()[0] if text else type(error).__name__
