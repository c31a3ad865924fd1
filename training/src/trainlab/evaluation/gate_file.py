"""gate.json as others read it: whoever promotes a run, and a server that answers by the names of promoted runs. No torch."""

from pathlib import Path
from typing import Any

from trainlab import files
from trainlab.errors import UserError


def read(run_dir: Path) -> dict[str, Any]:
    """Return the content of RUN_DIR/gate.json, with `promoted` and `reasons`; raises UserError where it lacks them."""
    path = run_dir / "gate.json"
    gate = files.read_json(path)
    if not isinstance(gate, dict) or not isinstance(gate.get("promoted"), bool) or "reasons" not in gate:
        raise UserError(f"{path}: has no promoted: true or false; regenerate it with `trainlab gate {run_dir}`")
    return gate
