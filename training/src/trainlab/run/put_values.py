"""The lines of a values file that name what `trainlab put` has put into a volume; called by transfer.py. No torch."""

from contextlib import suppress
from pathlib import Path

from trainlab.data import table_files
from trainlab.errors import UserError
from trainlab.models.stored_weights import CONFIG, TOKENIZER_FILES

USE = "use it in a values file:"


def values_for(source: Path, volume: str, path: str) -> list[str]:
    """Return the lines for `source`, a file or folder that is now `path` in a volume, models or datasets."""
    return [USE, *(_model(source, path) if volume == "models" else _data(source, path))]


def _model(source: Path, path: str) -> list[str]:
    """Name a folder of tasks, of a tokenizer, else of a model."""
    has = {each.name for each in source.iterdir()} if source.is_dir() else {source.name}
    folder = path if source.is_dir() else str(Path(path).parent)
    if tasks := [f'"pvc:{folder}/{name}"' for name in sorted(has) if name.endswith(".yaml")]:
        return [f"  phase: {{evaluate: {{tasks: [{', '.join(tasks)}]}}}}"]
    if CONFIG not in has and has & set(TOKENIZER_FILES):
        return [f"  phase: {{stage: {{tokenizer: pvc:{path}}}}}"]
    return [f"  phase: {{model: {{source: pvc:{path}}}}}"]


def _data(source: Path, path: str) -> list[str]:
    folder = source.is_dir()
    plain = [f"  phase: {{data: {{source: pvc:{path}}}}}"]
    if folder and any((source / part).is_dir() for part in ("train", "owners")):
        return plain
    listed = [*source.iterdir()] if folder else [source]
    tables = sorted(each for each in listed if each.suffix.lower() in table_files.TABLES)
    columns: list[str] = []
    with suppress(UserError, StopIteration, IndexError):
        columns = list(next(table_files.records(tables[0]))[1])
    if {"question", "answer"} <= set(columns):
        return [f"  phase: {{data: {{source: pvc:{path}, table: {{}}}}}}"]
    if len(columns) < 2:  # running text
        return plain
    named = f"{{columns: {{question: {columns[-2]}, answer: {columns[-1]}}}}}"
    return [
        f"  phase: {{data: {{source: pvc:{path}, table: {named}}}}}",
        f"  (its columns: {', '.join(columns)}; name question and answer, and topic if there is one)",
    ]
