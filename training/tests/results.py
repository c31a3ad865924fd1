"""What a run of a tiny base model leaves, for the tests of what other engines read."""

from pathlib import Path
from typing import Any

from tiny import make_job, train

TRAIN = {"epochs": 1, "batch_size": 4, "learning_rate": 0.01, "checkpoints": 1, "validation_fraction": 0.2}


def make_result(phase: Any, base: Path, data: Path, run_dir: Path) -> Path:
    """Train `base` on the data set in `data`; return the folder of the result."""
    train(make_job(phase, base, data, run_dir))
    return run_dir / ("lora_adapter" if phase.adapter_rank else "best_model")
