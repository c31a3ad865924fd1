"""The Job that makes the text ready before GPUs are taken: what the plan says of it, and refuses."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import plan_jobs as jobs
import pytest
from checkout import VALUES
from trainlab.plan import volumes
from trainlab.plan.plan_command import command

STORAGE = 300e6
TEXT = replace(jobs.PRETRAIN, text_bytes=10e9, on_gpu=True, drawn_bytes=2)


def planned(site: dict[str, Any], folder: Path, *overlays: Path) -> int:
    """Plan the first stage with this section `site.prepare`; return the exit code."""
    file = folder / "site.yaml"
    file.write_text(json.dumps({"site": {"prepare": site}}), encoding="utf-8")
    return command(VALUES / "staged-pretrain.yaml", [*overlays, file], gpu="H100")


def seconds(cores: float) -> float:
    need = volumes.preparation(replace(TEXT, prepare_cores=cores), STORAGE)
    assert need
    return need.seconds


def test_more_cores_take_less_time_by_what_the_first_process_leaves_them() -> None:
    reads = TEXT.text_bytes / STORAGE
    assert seconds(1) - reads == pytest.approx(TEXT.text_bytes * volumes.SECONDS)
    assert seconds(1e9) - reads == pytest.approx(TEXT.text_bytes * volumes.FIRST, rel=0.01)
    assert (seconds(1) - reads) / (seconds(8) - reads) > 6, "asked for: eight cores at least six times as fast"


def test_only_a_training_with_gpus_has_one() -> None:
    assert volumes.preparation(replace(TEXT, on_gpu=False), STORAGE) is None
    assert volumes.preparation(replace(TEXT, text_bytes=0), STORAGE) is None


def test_the_table_names_its_cores_its_time_and_no_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert planned({"cpu": "16"}, tmp_path) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  text ")]
    assert "13.75 GB prepared in " in line and "before that, by a Job of 16 cores and no GPU" in line
    local = VALUES / "local" / "staged-pretrain.yaml"
    assert command(VALUES / "staged-pretrain.yaml", [local]) == 0
    assert "  text " not in capsys.readouterr().out


def test_a_limit_that_the_weights_do_not_fit_in_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """7,391,678,464 weights in bfloat16 are 13.77 GiB; a file of JSON says the same."""
    assert planned({"memory": "8Gi"}, tmp_path) == 1
    said = capsys.readouterr().out
    assert (
        "REFUSED [prepare-memory]" in said
        and "site.prepare.memory" in said
        and "its limit is 8Gi; set 15Gi or more" in said
    )
    file = tmp_path / "site.yaml"
    assert command(VALUES / "staged-pretrain.yaml", [file], gpu="H100", as_json=True) == 1
    assert json.loads(capsys.readouterr().out)["preparation"]["bytes"] > 13.77 * 2**30
