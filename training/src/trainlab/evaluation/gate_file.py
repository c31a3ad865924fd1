"""gate.json as others read it: whoever promotes a run, and a server that answers by the names of promoted runs. No torch."""

from pathlib import Path
from typing import Any

from trainlab import files
from trainlab.errors import UserError


def read(run_dir: Path) -> dict[str, Any]:
    """Return the content of RUN_DIR/gate.json, with `promoted` and the list `reasons`; raises UserError where it lacks them."""
    path = run_dir / "gate.json"
    gate = files.read_json(path)
    again = f"regenerate it with `trainlab gate {run_dir}`"
    if not isinstance(gate, dict) or not isinstance(gate.get("promoted"), bool):
        raise UserError(f"{path}: has no promoted: true or false; {again}")
    if not isinstance(gate.get("reasons"), list):
        raise UserError(f"{path}: has no list of reasons; {again}")
    return gate
