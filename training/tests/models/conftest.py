"""A tiny base model and what a run of it leaves, for the tests of what other engines read."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import bases_of
import pytest
from results import TRAIN, make_result
from tiny import make_phase, write_data


@pytest.fixture
def base(tmp_path: Path, tiny_model: Path) -> Path:
    """The tiny model as transformers 5 writes it."""
    return bases_of.transformers_5(tiny_model, tmp_path / "base")


@pytest.fixture
def result(tmp_path: Path, base: Path, phase_dict: dict[str, Any]) -> Callable[..., Path]:
    """Return a function that trains with changed blocks of the phase and returns the folder of the result."""
    data = write_data(tmp_path / "data")

    def make(**blocks: Any) -> Path:
        return make_result(make_phase(phase_dict, train=TRAIN, **blocks), base, data, tmp_path / "run")

    return make


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path, phase_dict: dict[str, Any]) -> dict[str, Any]:
    """Two runs of one base, of full weights and of an adapter: by name (phase, folder of the run); `base` is a folder.

    The base is one as most are published, for an engine reads an adapter's base as it is: transformers 4 cannot read 5's.
    """
    folder = tmp_path_factory.mktemp("runs")
    data = write_data(folder / "data")
    # the least that vLLM's attention on CPU knows
    new = bases_of.transformers_5(tiny_model, folder / "new", head_dim=32)
    found: dict[str, Any] = {"base": bases_of.transformers_4(new, folder / "base")}
    blocks: dict[str, Any] = {"weights": {}, "adapter": {"lora": {"rank": 4, "alpha": 8}}}
    for name, changed in blocks.items():
        phase = make_phase(phase_dict, train=TRAIN, data={"system_prompt": "Answer briefly."}, **changed)
        make_result(phase, found["base"], data, folder / name)
        found[name] = (phase, folder / name)
    return found
