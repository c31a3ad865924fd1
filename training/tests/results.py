"""What a run of a tiny base model leaves, for the tests of what other engines read."""

from pathlib import Path
from typing import Any

from tiny import train
from trainlab.data import chat_rows
from trainlab.engine.training_job import TrainingJob
from trainlab.models import chat
from trainlab.progress import Progress

TRAIN = {"epochs": 1, "batch_size": 4, "learning_rate": 0.01, "checkpoints": 1, "validation_fraction": 0.2}


def make_result(phase: Any, base: Path, data: Path, run_dir: Path) -> Path:
    """Train `base` on the data set in `data`; return the folder of the result."""
    model, tokenizer = chat.load_base(base, phase)
    rows = chat_rows.load_train(phase.data, data)
    train(TrainingJob(phase, run_dir, model, tokenizer, rows, Progress(False)))
    return run_dir / ("lora_adapter" if phase.adapter_rank else "best_model")
