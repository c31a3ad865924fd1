"""Resolve `evaluate.tasks` to tasks of the harness: known names, or custom YAML files in the model volume. No torch.

Called by `trainlab fetch` (which may ask the hub), before the first rank starts, and by each rank that scores.
"""

import difflib
import logging
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from trainlab.config import LanguagePhase
from trainlab.errors import UserError
from trainlab.evaluation.benchmarks import store
from trainlab.evaluation.benchmarks.store import KEY

NEAR = 5  # names suggested for an unknown one


@dataclass
class Benchmarks:
    """Tasks and groups by name as the harness has them, the names to report, and each task's data sets."""

    tasks: dict[str, Any] = field(default_factory=dict)
    groups: dict[str, Any] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)
    data: dict[str, list[dict[str, Any]]] = field(default_factory=dict)


def load(phase: LanguagePhase, models: Path, fill: bool = False) -> Benchmarks:
    """Return the phase's tasks with their data; `fill` downloads data that are not in `models` yet from the hub.

    Raises UserError naming the key for an unknown name (with similar ones), a broken file, missing data, generated code.
    """
    manager = _manager(any(not name.startswith("pvc:") for name in phase.evaluate.tasks), phase)
    specs = {name: _spec(name, models, manager) for name in phase.evaluate.tasks}  # all names before any data
    benchmarks = Benchmarks()
    for name, spec in specs.items():
        with store.kept(models, name, fill) as read:
            try:
                found = manager.load([spec])
            except UserError:
                raise
            except ImportError as error:
                raise UserError(
                    f"{KEY}: {name} needs the package {error.name or error}, which is not installed here; remove the task"
                ) from None
            except Exception as error:  # a custom file can be wrong in as many ways as the harness has code
                raise UserError(f"{KEY}: {name} cannot be used: {type(error).__name__}: {_first(error)}") from None
        _refuse(name, found, benchmarks)
        shown = {group for group, one in found.get("groups", {}).items() if one.has_aggregation}
        benchmarks.tasks |= found["tasks"]
        benchmarks.groups |= found.get("groups", {})
        benchmarks.told += sorted(shown & {name}) or list(found["tasks"])
        benchmarks.data[name] = store.notes(read)
    for task in benchmarks.tasks.values():
        _settle(task, phase)
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
        near = difflib.get_close_matches(name, manager.all_tasks, n=NEAR)
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
        spec["dataset_kwargs"] = {**options, "data_files": _beside(options["data_files"], path.parent)}
    return spec


def _beside(data: Any, folder: Path) -> Any:
    if isinstance(data, dict):
        return {key: _beside(value, folder) for key, value in data.items()}
    if isinstance(data, list):
        return [_beside(value, folder) for value in data]
    return data if "://" in str(data) else str(folder / str(data))


def _refuse(name: str, found: Any, benchmarks: Benchmarks) -> None:
    """Raise UserError for tasks that cannot or must not run here."""
    for task_name, task in found["tasks"].items():
        if task_name in benchmarks.tasks:
            raise UserError(f"{KEY}: {name} contains task {task_name}, which is already included; name it once")
        if getattr(task, "UNSAFE_CODE", False):
            raise UserError(f"{KEY}: {name} runs code that the model wrote, which is not run here; remove it")
        if getattr(task, "MULTIMODAL", False):
            raise UserError(f"{KEY}: {name} needs images or audio, but the model reads only text; remove it")


def _settle(task: Any, phase: LanguagePhase) -> None:
    """Set the number of few-shot examples: the phase's, or the task's own; a task that wants none gets none."""
    own, wished = task.get_config("num_fewshot"), phase.evaluate.few_shot
    count = (own or 0) if wished is None or own == 0 else wished
    there = len(list(task.fewshot_docs())) if count else 0
    if count and count >= there:  # one more than shown, because an item is never its own example
        raise UserError(
            f"phase.evaluate.few_shot: {task.task_name} would show {count} examples but has {there}; set at most {max(there - 1, 0)}"
        )
    task.set_config(key="num_fewshot", value=count)
    task.set_fewshot_seed(seed=phase.seed)


def _first(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "") or type(error).__name__
