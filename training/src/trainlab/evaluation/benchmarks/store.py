"""The data sets of tasks in the model volume: downloaded by `trainlab fetch`, read from the volume by the run. No torch.

The harness only ever calls datasets.load_dataset; pods train without a hub and mount the volume read-only, where the
library's own cache cannot be opened (it creates lock files). So that function is replaced while tasks are created.
"""

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trainlab import files
from trainlab.data import hub_download as download
from trainlab.errors import UserError
from trainlab.models.fetch import RECORD, WAY_TO_HUB, once

KEY = "phase.evaluate.tasks"
FOLDER, ROWS, NOTE = "task-data", "rows", RECORD
BESIDE = ("json", "csv", "text", "parquet", "arrow")  # a task's own files, read in place


@contextmanager
def kept(models: Path, task: str, fill: bool) -> Iterator[list[Path]]:
    """While it is open, data sets come from `models`; `fill` downloads missing ones from the hub.

    Yields the growing list of folders that were read. UserError names `task` and the remedy.
    """
    import datasets

    original, read = datasets.load_dataset, list[Path]()

    def load(path: str, name: str | None = None, **options: Any) -> Any:
        if path in BESIDE:
            return original(path, name, **options)
        folder = place(models, path, name, options)
        if not (folder / NOTE).exists():
            if not fill:
                raise UserError(
                    f"{KEY}: the data of {task} ({_text(path, name)}) are not in the model volume; run `trainlab fetch` "
                    "with the same --models"
                )
            _download(original, folder, task, path, name, options)
        read.append(folder)
        return datasets.load_from_disk(folder / ROWS, keep_in_memory=True)  # so a later map() writes nothing next to it

    datasets.load_dataset = load
    try:
        yield read
    finally:
        datasets.load_dataset = original


def place(models: Path, path: str, name: str | None, options: dict[str, Any]) -> Path:
    """Return the folder of one data set inside the model volume."""
    digest = hashlib.sha256(json.dumps([path, name, options], sort_keys=True, default=str).encode()).hexdigest()[:8]
    return models / FOLDER / re.sub(r"[^A-Za-z0-9._-]+", "-", f"{_text(path, name)} {digest}").lower()


def notes(folders: list[Path]) -> list[dict[str, Any]]:
    """Return what is known of the data sets in `folders`: source, rows of each part, license, SHA-256."""
    return [dict(files.read_json(folder / NOTE)) for folder in folders]


def _download(
    original: Callable[..., Any], folder: Path, task: str, path: str, name: str | None, options: dict[str, Any]
) -> None:
    def fill(work: Path) -> dict[str, Any]:
        found = original(path, name, cache_dir=str(work / ".cache"), **options)
        found.save_to_disk(work / ROWS)
        license = download.stated(path, options.get("revision"), work / ".cache")
        shutil.rmtree(work / ".cache", ignore_errors=True)
        parts = found if isinstance(found, dict) else {"all": found}
        return {
            "source": _text(path, name),
            "rows": {part: len(table) for part, table in parts.items()},
            "license": license,
            "sha256": files.folder_sha256(work / ROWS),
        }

    content = f"put a task with its own data into the model volume (pvc:FOLDER/task.yaml), or set {KEY} to []"
    network = f"open {WAY_TO_HUB}, {content}"
    with download.fetched(f"{KEY}: the data of {task} ({_text(path, name)})", network, content, folder.parent):
        once(folder, (folder / NOTE).exists, fill)


def _text(path: str, name: str | None) -> str:
    return f"{path} {name}" if name else path
