"""The data sets of tasks in the model volume: asked of the hub by `trainlab fetch`, read from the volume by the run. No torch.

The harness asks datasets.load_dataset and knows no other way; pods train without a hub and see the volume read-only, where
the library's own cache cannot be opened (it makes lock files). So that function is exchanged while tasks are made.
"""

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trainlab import files
from trainlab.errors import UserError

KEY = "phase.evaluate.tasks"
FOLDER, ROWS, NOTE = "task-data", "rows", "source.json"
BESIDE = ("json", "csv", "text", "parquet", "arrow")  # a task's own files, read where they lie


@contextmanager
def kept(models: Path, task: str, fill: bool) -> Iterator[list[Path]]:
    """While it is open, data sets come from `models`; `fill` asks the hub for those that are not there yet.

    Yields the list of folders that were read, which grows. UserError names `task` and the remedy.
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
        return datasets.load_from_disk(
            folder / ROWS, keep_in_memory=True
        )  # a later map() has nothing to write beside it

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
    """Return what is known of the data sets in `folders`: source, rows of each part, licence, SHA-256."""
    return [dict(files.read_json(folder / NOTE)) for folder in folders]


def _download(
    original: Callable[..., Any], folder: Path, task: str, path: str, name: str | None, options: dict[str, Any]
) -> None:
    from filelock import FileLock

    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.parent / f".{folder.name}.lock"):
            if (folder / NOTE).exists():  # another pod was first
                return
            with files.whole_folder(folder) as work:
                found = original(path, name, cache_dir=str(work / ".cache"), **options)
                found.save_to_disk(work / ROWS)
                shutil.rmtree(work / ".cache", ignore_errors=True)
                files.write_json(work / NOTE, _note(found, work / ROWS, _text(path, name)))
    except Exception as error:  # the hub, the network and the data set's files fail with classes of several libraries
        if getattr(error, "errno", None) == 28:
            raise UserError(
                f"{folder.parent}: the volume is full ({files.free_text(folder.parent)}); enlarge it"
            ) from None
        first = next(iter(str(error).splitlines()), "") or type(error).__name__
        raise UserError(
            f"{KEY}: the data of {task} ({_text(path, name)}) cannot be fetched: {first}; open the way to the hub "
            "(HF_ENDPOINT names a mirror), put a task with its own data into the model volume (pvc:FOLDER/task.yaml), "
            f"or set {KEY} to []"
        ) from None


def _note(found: Any, rows: Path, source: str) -> dict[str, Any]:
    parts = found if isinstance(found, dict) else {"all": found}
    return {
        "source": source,
        "rows": {part: len(table) for part, table in parts.items()},
        "licence": next((table.info.license for table in parts.values() if table.info.license), "not stated"),
        "sha256": files.folder_sha256(rows),
        "fetched": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _text(path: str, name: str | None) -> str:
    return f"{path} {name}" if name else path
