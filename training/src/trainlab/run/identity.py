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
    path = run_dir / PHASE_FILE
    if not path.exists():
        return
    try:
        old = dict(leaves(trained(load_values([path]).phase)))
    except UserError as error:
        raise UserError(f"{error}\n{run_dir}: this run cannot be compared with the phase; {OTHERWISE}") from None
    new = dict(leaves(trained(phase)))
    changes = [
        f"{key} was {_text(old, key)}, now {_text(new, key)}"
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    ]
    if changes:
        raise UserError(
            f"{run_dir}: this run was started with another phase: {'; '.join(changes)}; restore the old values, {OTHERWISE}"
        )


def refuse_other_inputs(run_dir: Path, record: Mapping[str, Any]) -> None:
    """Raise UserError when the run of this name was started with other data, another model or another number of ranks.

    `record` holds "data" and "model" (Recipe.origin) and, unless the run is finished, "world_size".
    """
    path = run_dir / "manifest.json"
    if not path.exists():
        return
    old = files.read_json(path)
    for what in ("data", "model"):
        if old[what].get("sha256") != record[what].get("sha256"):
            raise UserError(
                f"{run_dir}: this run started with different {what} ({old[what]['source']}, changed since); "
                f"restore the old one, {OTHERWISE}"
            )
    ranks = old["world_size"]
    if record.get("world_size", ranks) != ranks:
        raise UserError(
            f"{run_dir}: this run started with {ranks} ranks, now {record['world_size']}: batches and the order of rows "
            f"would change on the way; start it with --processes {ranks} as before, {OTHERWISE}"
        )


def _text(values: Mapping[str, Any], key: str) -> str:
    return shown(values[key]) if key in values else "not set"
