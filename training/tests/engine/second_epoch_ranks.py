"""What each rank of test_second_epoch.py runs: a training of two epochs on two ranks, and the same once more from its last checkpoint.

second_epoch_ranks.py FOLDER: trains FOLDER/model on FOLDER/data into FOLDER/run, as a stage and as a phase of its own, whose batches are
balanced over the ranks; FOLDER/seen.json gets histories and summaries.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
from accelerate.state import AcceleratorState
from stages import SFT, phase_of
from tiny import make_job, make_phase
from trainlab.engine import dist
from trainlab.recipes import sft


def main(folder: Path) -> None:
    """Train, forget the result, go on; rank 0 writes what it saw."""
    dist.start(5)
    base = json.loads((folder / "phase.json").read_text(encoding="utf-8"))
    train = {"batch_size": 1, "epochs": 2, "checkpoints": 4, "learning_rate": 3e-3}
    seen: dict[str, list[Any]] = {"stage": [], "balanced": []}
    for name in [name for name in seen for _ in range(2)]:
        AcceleratorState._reset_state(reset_partial_state=True)
        phase = phase_of(base, SFT, train=train) if name == "stage" else make_phase(base, train=train)
        summary = sft.fit(make_job(phase, folder / "model", folder / "data", folder / name))
        if dist.is_main():
            history = json.loads((folder / name / "training_history.json").read_text(encoding="utf-8"))
            seen[name].append({"summary": summary, "losses": {e["step"]: e["loss"] for e in history if "loss" in e}})
            shutil.rmtree(folder / name / "best_model")
        dist.barrier()
    if dist.is_main():
        (folder / "seen.json").write_text(json.dumps(seen), encoding="utf-8")
    dist.finish()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
