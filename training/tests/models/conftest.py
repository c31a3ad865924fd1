"""A tiny base model and what a run of it leaves, for the tests of what other engines read."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny import make_phase, train, write_data
from trainlab import files
from trainlab.data import chat_rows
from trainlab.engine.training_job import TrainingJob
from trainlab.models import chat
from trainlab.progress import Progress

TRAIN = {"epochs": 1, "batch_size": 4, "learning_rate": 0.01, "checkpoints": 1, "validation_fraction": 0.2}


@pytest.fixture
def base(tmp_path: Path, tiny_model: Path) -> Path:
    """The tiny model as transformers 5 writes it, with the rope base of SmolLM2, which is not transformers' default."""
    folder = Path(shutil.copytree(tiny_model, tmp_path / "base"))
    config = files.read_json(folder / "config.json")
    config["rope_parameters"]["rope_theta"] = 100000.0
    files.write_json(folder / "config.json", config)
    return folder


@pytest.fixture
def result(tmp_path: Path, base: Path, phase_dict: dict[str, Any]) -> Callable[..., Path]:
    """Return a function that trains with changed blocks of the phase and returns the folder of the result."""
    data = write_data(tmp_path / "data")

    def make(**blocks: Any) -> Path:
        phase = make_phase(phase_dict, train=TRAIN, **blocks)
        model, tokenizer = chat.load_base(base, phase)
        rows = chat_rows.load_train(phase.data, data)
        train(TrainingJob(phase, tmp_path / "run", model, tokenizer, rows, Progress(False)))
        return tmp_path / "run" / ("lora_adapter" if phase.adapter_rank else "best_model")

    return make
