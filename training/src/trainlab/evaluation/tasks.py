"""Benchmarks: tasks of lm-evaluation-harness before and after training; reported, without effect on promotion. No torch.

`evaluate.tasks` are known names, or custom YAML files in the model volume: resolved by `trainlab fetch` (which may ask the hub),
before the first rank starts, and by each rank that scores. The harness, imported only where a phase names tasks, only ever calls
datasets.load_dataset; pods train without a hub and mount the volume read-only, where the library's own cache cannot be opened (it
creates lock files). So that function is replaced while tasks are created.
"""

import difflib
import hashlib
import json
import logging
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from trainlab import files
from trainlab.config import LanguagePhase, Phase
from trainlab.data import hub_download as download
from trainlab.errors import UserError
from trainlab.evaluation.gate import settings
from trainlab.evaluation.paired_comparison import compare
from trainlab.models.fetch import RECORD, WAY_TO_HUB, once

KEY = "phase.evaluate.tasks"
FOLDER, ROWS, NOTE = "task-data", "rows", RECORD
TASK_FILES = ("json", "csv", "text", "parquet", "arrow")  # a task's own files, read in place
MAX_SUGGESTIONS = 5
SHARED = ("items", "of", "few_shot", "version")
"""What both sides of a comparison have in common."""


@dataclass
class Benchmarks:
    """Tasks and groups by name as the harness has them, the names to report, and each task's data sets."""

    tasks: dict[str, Any] = field(default_factory=dict)
    groups: dict[str, Any] = field(default_factory=dict)
    reported: list[str] = field(default_factory=list)
    data: dict[str, list[dict[str, Any]]] = field(default_factory=dict)


def load(phase: LanguagePhase, models: Path, fill: bool = False) -> Benchmarks:
    """Return the phase's tasks with their data; `fill` downloads data that are not in `models` yet from the hub.

    Raises UserError naming the key for an unknown name (with similar ones), a broken file, missing data, generated code.
    """
    manager = _manager(any(not name.startswith("pvc:") for name in phase.evaluate.tasks), phase)
    specs = {name: _spec(name, models, manager) for name in phase.evaluate.tasks}  # all names before any data
    benchmarks = Benchmarks()
    for name, spec in specs.items():
        with volume_data(models, name, fill) as read:
            try:
                loaded = manager.load([spec])
            except UserError:
                raise
            except ImportError as error:
                raise UserError(
                    f"{KEY}: {name} needs the package {error.name or error}, which is not installed here; remove the task"
                ) from None
            except Exception as error:  # a custom file can be wrong in as many ways as the harness has code
                raise UserError(f"{KEY}: {name} cannot be used: {type(error).__name__}: {_first(error)}") from None
        tasks, groups = loaded["tasks"], loaded.get("groups", {})
        _refuse(name, tasks, benchmarks)
        benchmarks.tasks |= tasks
        benchmarks.groups |= groups
        benchmarks.reported += [name] if name in groups and groups[name].has_aggregation else list(tasks)
        benchmarks.data[name] = [dict(files.read_json(folder / NOTE)) for folder in read]
    for task in benchmarks.tasks.values():
        _set_few_shot(task, phase)
    return benchmarks


@lru_cache(maxsize=2)
def _index(known: bool) -> Any:
    from lm_eval.tasks import TaskManager

    return TaskManager(include_defaults=known)


def _manager(known: bool, phase: LanguagePhase) -> Any:
    """Return the harness's table of tasks; `known` reads its own 14,000 files, which takes seconds."""
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    try:
        return _index(known)
    except ImportError as error:
        raise UserError(
            f"{KEY} is {', '.join(phase.evaluate.tasks)}: the package {error.name} is not installed here; install "
            "images/trainer/requirements.lock and alone.lock, or set it to []"
        ) from None


def _spec(name: str, models: Path, manager: Any) -> Any:
    """Return what to ask the harness for: a name that it knows, or the content of a file."""
    if name.startswith("pvc:"):
        return _own(name, models / name.removeprefix("pvc:"))
    if name not in manager.task_index:
        near = difflib.get_close_matches(name, manager.all_tasks, n=MAX_SUGGESTIONS)
        hint = f"did you mean {', '.join(near)}?" if near else "for your own task use pvc:FOLDER/task.yaml"
        raise UserError(f"{KEY}: {name} is not a task of lm-evaluation-harness; {hint}")
    return name


def _own(name: str, path: Path) -> dict[str, Any]:
    """Return the task in a YAML file; paths of its data files are relative to its folder."""
    from lm_eval.tasks._yaml_loader import load_yaml

    if not path.is_file():
        raise UserError(f"{KEY} is {name}: no file {path} in the model volume; put it there first")
    try:
        spec = dict(load_yaml(path))
    except Exception as error:  # YAML, or the Python functions that the file names
        raise UserError(f"{KEY} is {name}: {path} cannot be read: {_first(error)}") from None
    if not isinstance(spec.get("task"), str):
        raise UserError(f"{KEY} is {name}: {path} has no key `task` with a name; add it (one task in one file)")
    options = spec.get("dataset_kwargs") or {}
    if "data_files" in options:
        spec["dataset_kwargs"] = {**options, "data_files": _absolute(options["data_files"], path.parent)}
    return spec


def _absolute(data: Any, folder: Path) -> Any:
    if isinstance(data, dict):
        return {key: _absolute(value, folder) for key, value in data.items()}
    if isinstance(data, list):
        return [_absolute(value, folder) for value in data]
    return data if "://" in str(data) else str(folder / str(data))


def _refuse(name: str, tasks: Mapping[str, Any], benchmarks: Benchmarks) -> None:
    """Raise UserError for tasks that cannot or must not run here."""
    for task_name, task in tasks.items():
        if task_name in benchmarks.tasks:
            raise UserError(f"{KEY}: {name} contains task {task_name}, which is already included; name it once")
        if getattr(task, "UNSAFE_CODE", False):
            raise UserError(f"{KEY}: {name} runs code that the model wrote, which is not run here; remove it")
        if getattr(task, "MULTIMODAL", False):
            raise UserError(f"{KEY}: {name} needs images or audio, but the model reads only text; remove it")


def _set_few_shot(task: Any, phase: LanguagePhase) -> None:
    """Set the number of few-shot examples: the phase's, or the task's own; a task that wants none gets none."""
    own, wished = task.get_config("num_fewshot"), phase.evaluate.few_shot
    count = (own or 0) if wished is None or own == 0 else wished
    available = len(list(task.fewshot_docs())) if count else 0
    if count and count >= available:  # one more than shown, because an item is never its own example
        raise UserError(
            f"phase.evaluate.few_shot: {task.task_name} would show {count} examples but has {available}; set at most {max(available - 1, 0)}"
        )
    task.set_config(key="num_fewshot", value=count)
    task.set_fewshot_seed(seed=phase.seed)


def _first(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "") or type(error).__name__


@contextmanager
def volume_data(models: Path, task: str, fill: bool) -> Iterator[list[Path]]:
    """While it is open, data sets come from `models`; `fill` downloads missing ones from the hub.

    Yields the growing list of folders that were read. UserError names `task` and the remedy.
    """
    import datasets

    original, read = datasets.load_dataset, list[Path]()

    def load(path: str, name: str | None = None, **options: Any) -> Any:
        if path in TASK_FILES:
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
    return models / FOLDER / files.slug(f"{_text(path, name)} {digest}")


def _download(
    original: Callable[..., Any], folder: Path, task: str, path: str, name: str | None, options: dict[str, Any]
) -> None:
    def fill(work: Path) -> dict[str, Any]:
        table = original(path, name, cache_dir=str(work / ".cache"), **options)
        table.save_to_disk(work / ROWS)
        license = download.stated(path, options.get("revision"), work / ".cache")
        shutil.rmtree(work / ".cache", ignore_errors=True)
        parts = table if isinstance(table, dict) else {"all": table}
        return {
            "source": _text(path, name),
            "rows": {part: len(rows) for part, rows in parts.items()},
            "license": license,
            "sha256": files.folder_sha256(work / ROWS),
        }

    content = f"put a task with its own data into the model volume (pvc:FOLDER/task.yaml), or set {KEY} to []"
    network = f"open {WAY_TO_HUB}, {content}"
    with download.fetched(f"{KEY}: the data of {task} ({_text(path, name)})", network, content, folder.parent):
        once(folder, (folder / NOTE).exists, fill)


def _text(path: str, name: str | None) -> str:
    return f"{path} {name}" if name else path


def compare_tasks(before: Mapping[str, Any], after: Mapping[str, Any], phase: Phase) -> list[dict[str, Any]]:
    """Return one row per task and metric; [] if one side has no tasks.

    {task, metric, filter, items, of, few_shot, version, cut, higher_is_better, before, before_stderr, after, after_stderr,
    gain: paired_comparison.compare (positive is better), None where a score is not a mean over items}.
    """
    sides = [(part.get("tasks") or {}).get("results") or {} for part in (before, after)]
    rows = []
    for task, old in sides[0].items():
        new = sides[1].get(task)
        if new is None:
            continue
        for key, first in old["metrics"].items():
            second = new["metrics"].get(key)
            if second is None:
                continue
            metric, __, kind = key.partition(",")
            rows.append(
                {
                    "task": task,
                    "metric": metric,
                    "filter": kind,
                    **{name: old[name] for name in SHARED},
                    "cut": max(old["cut"], new["cut"]),
                    "higher_is_better": first["higher_is_better"],
                    "before": first["value"],
                    "before_stderr": first["stderr"],
                    "after": second["value"],
                    "after_stderr": second["stderr"],
                    "gain": _gain(first, second, phase),
                }
            )
    return rows


def _gain(first: Mapping[str, Any], second: Mapping[str, Any], phase: Phase) -> dict[str, Any] | None:
    old, new = first["values"], second["values"]
    if not old or not new or len(old) != len(new):
        return None
    return compare(old, new, higher_is_better=first["higher_is_better"], **settings(phase))
