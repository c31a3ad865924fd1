"""Whether the weight files of a finished run can be read: a full volume or a killed copy leaves half a file. Read without torch."""

import itertools
from pathlib import Path

from safetensors import SafetensorError, safe_open

from trainlab import files
from trainlab.errors import UserError

RESULTS = ("best_model", "lora_adapter")
INDEX = "model.safetensors.index.json"


def check(run_dir: Path) -> None:
    """Look at every weight file of the results of a run: it is there, and as long as its header says; no tensor is read.

    Raises UserError with the first file that is missing, cut short or no safetensors file.
    """
    remedy = f"remove {run_dir} and train again"
    found = sorted(itertools.chain.from_iterable((run_dir / result).glob("*.safetensors") for result in RESULTS))
    shards = _named(run_dir / RESULTS[0]) if (run_dir / RESULTS[0] / INDEX).exists() else set()
    if lost := sorted(shards - {path.name for path in found}):
        raise UserError(f"{run_dir / RESULTS[0] / lost[0]}: not there, but {INDEX} names it; {remedy}")
    if not found:
        raise UserError(f"{run_dir}: no weights in {' or '.join(RESULTS)}; {remedy}")
    for path in found:
        try:
            with safe_open(path, "numpy"):
                pass
        except (OSError, SafetensorError) as error:
            raise UserError(f"{path}: half written or no safetensors file ({error}); {remedy}") from error


def _named(folder: Path) -> set[str]:
    """Names of the files in which the index says the tensors are."""
    return set(files.read_json(folder / INDEX)["weight_map"].values())
