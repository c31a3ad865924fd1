"""Two ranks that go on in the second epoch see its rows, in its order."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import forked
import pytest
from tiny import write_data

RANKS = Path(__file__).parent / "second_epoch_ranks.py"


def test_a_run_that_resumes_in_its_second_epoch_is_uninterrupted(
    tiny_model: Path, phase_dict: dict[str, Any], tmp_path: Path
) -> None:
    """accelerate's set_epoch does not reach past the sampler that skips what was trained: the rest were the first epoch's rows."""
    shutil.copytree(tiny_model, tmp_path / "model")
    write_data(tmp_path / "data")
    (tmp_path / "phase.json").write_text(json.dumps(phase_dict), encoding="utf-8")
    forked.ended(forked.ranks(RANKS, [str(tmp_path)], os.environ))
    for name, (whole, resumed) in json.loads((tmp_path / "seen.json").read_text(encoding="utf-8")).items():
        steps, at = whole["summary"]["steps"], resumed["summary"]["resumed_from_step"]
        assert steps // 2 < at < steps - 1, name
        assert len(set(whole["losses"].values())) > steps // 2, "rows can be told apart by their losses"
        after = {step: loss for step, loss in whole["losses"].items() if int(step) > at}
        assert {step: resumed["losses"][step] for step in after} == pytest.approx(after, abs=1e-6), name
