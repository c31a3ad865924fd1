"""The identity of a run: the phase without what does not train, data, model, ranks; compared on every start of its name.

phase.json and manifest.json of the run directory hold it. No torch.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainlab import files
from trainlab.config import Phase
from trainlab.config.loading import PHASE_FILE, leaves, load_values, trained
from trainlab.config.rule import shown
from trainlab.errors import UserError

OTHERWISE = "name a new run with --run (in pods: by another phase.name), or remove the directory"


def refuse_other_phase(run_dir: Path, phase: Phase) -> None:
    """Raise UserError when the run of this name was started with a phase that trains or scores anything differently.

    The message names each key with its old and its new value. Nothing is written.
    """
    if not (run_dir / PHASE_FILE).exists():
        return
    try:
        changed = changes(run_dir, phase)
    except UserError as error:
        raise UserError(f"{error}\n{run_dir}: this run cannot be compared with the phase; {OTHERWISE}") from None
    if changed:
        raise UserError(
            f"{run_dir}: this run was started with another phase: {'; '.join(changed)}; restore the old values, {OTHERWISE}"
        )


def changes(run_dir: Path, phase: Phase, besides: tuple[str, ...] = ()) -> list[str]:
    """Return what the phase trains or scores differently from the run, one text for each key that is not in `besides`.

    Raises UserError for a run without a phase that can be read.
    """
    old = dict(leaves(trained(load_values([run_dir / PHASE_FILE]).phase)))
    new = dict(leaves(trained(phase)))
    return [
        f"{key} was {_text(old, key)}, now {_text(new, key)}"
        for key in sorted(old.keys() | new.keys())
        if key not in besides and old.get(key) != new.get(key)
    ]


def refuse_other_inputs(run_dir: Path, record: Mapping[str, Any]) -> None:
    """Raise UserError when the run of this name was started with other data, another model or another number of ranks.

    `record` holds "data" and "model" (Recipe.origin) and, unless the run is finished, "world_size".
    """
    if (run_dir / "manifest.json").exists() and (why := other_input(run_dir, record)):
        raise UserError(f"{run_dir}: this run {why}, {OTHERWISE}")


def other_input(run_dir: Path, record: Mapping[str, Any]) -> str | None:
    """Return how the run's data, model or number of ranks differ from those of `record`, with the remedy; None if they do not."""
    old = files.read_json(run_dir / "manifest.json")
    for what in ("data", "model"):
        if _digests(old[what]) != _digests(record[what]):
            return f"started with different {what} ({old[what]['source']}, changed since); restore the old one"
    ranks = old["world_size"]
    if record.get("world_size", ranks) != ranks:
        return (
            f"started with {ranks} ranks, now {record['world_size']}: batches and the order of rows "
            f"would change on the way; start it with --processes {ranks} as before"
        )
    return None


def _digests(part: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the digest of a model or data set, and that of data.validation."""
    return part.get("sha256"), (part.get("validation") or {}).get("sha256")


def _text(values: Mapping[str, Any], key: str) -> str:
    return shown(values[key]) if key in values else "not set"
