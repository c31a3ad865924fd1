"""What Triton lacks is said before the first step on a GPU; the compiler itself is the machine's, no GPU is needed."""

import shutil
import sysconfig
from pathlib import Path
from typing import Any

import pytest
from checkout import VALUES
from stages import DPO, PRETRAIN, SFT, phase_of
from tiny import make_phase
from trainlab.config.loading import load_values
from trainlab.engine import gpus
from trainlab.errors import UserError


@pytest.fixture
def triton() -> Any:
    """Triton itself, which the packages for a machine without GPUs leave out."""
    return pytest.importorskip("triton")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("CC", raising=False)


def refused(phase: Any) -> str:
    with pytest.raises(UserError) as caught:
        gpus.check_compiler(phase)
    return str(caught.value)


@pytest.mark.usefixtures("triton")
def test_no_compiler(phase_dict: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    told = refused(make_phase(phase_dict))
    assert told.startswith(
        "phase.recipe is sft: on a GPU, Triton compiles while the run goes on, which cannot work here: "
    )
    assert "Failed to find C compiler" in told and "gcc, libc6-dev and libpython3-dev" in told and "\n" not in told
    monkeypatch.setenv("CC", str(tmp_path / "cc"))
    assert f"CC is {tmp_path}/cc: no such program" in refused(make_phase(phase_dict))


@pytest.mark.usefixtures("triton")
def test_no_headers(phase_dict: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "gcc"
    compiler.write_text("#!/bin/sh\necho 'fatal error: Python.h: No such file or directory' >&2\nexit 1\n", "utf-8")
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    assert "gcc exits with 1, see its message above" in refused(make_phase(phase_dict)) or not _headers()
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))
    assert f"Python's headers are missing ({tmp_path}/Python.h)" in refused(make_phase(phase_dict))


def _headers() -> bool:
    return (Path(sysconfig.get_path("include")) / "Python.h").is_file()


@pytest.mark.usefixtures("triton")
def test_a_machine_that_has_them() -> None:
    if not (shutil.which("gcc") or shutil.which("clang")) or not _headers():
        pytest.skip("no C compiler or no Python.h on this machine")
    assert gpus.lacking_compiler() is None


def test_only_what_triton_compiles_for_asks(phase_dict: dict[str, Any]) -> None:
    asked = {
        "sft": phase_of(phase_dict, SFT),
        "dpo": phase_of(phase_dict, DPO),
        "pretrain": phase_of(phase_dict, PRETRAIN),
        "cpt": load_values([VALUES / "gemma.yaml"]).phase,
        "resnet": load_values([VALUES / "resnet.yaml"]).phase,
        "compiled": phase_of(phase_dict, PRETRAIN, stage={"compile": True}, resources={"gpus_per_node": 1}),
    }
    assert {name: gpus.needs_compiler(one) for name, one in asked.items()} == {
        "sft": "phase.recipe is sft",
        "dpo": "phase.recipe is dpo",
        "pretrain": "phase.recipe is pretrain",
        "cpt": "phase.recipe is cpt",
        "resnet": None,
        "compiled": "phase.stage.compile is true",
    }


def test_a_rank_with_a_gpu_asks_before_it_trains(
    phase_dict: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trainlab.recipes import sft
    from trainlab.recipes.base import Run
    from trainlab.run import worker

    phase = make_phase(phase_dict)
    monkeypatch.setattr(worker.gpus, "lacking_compiler", lambda: "Failed to find C compiler")
    monkeypatch.setattr(worker.gpus, "check", lambda _: ([{"rank": 0}], []))
    monkeypatch.setattr(worker.manifest, "begin", lambda *_: {"model": {}, "data": {}, "hardware": {}, "parent": None})
    monkeypatch.setattr(sft, "origin", lambda *_: {})
    monkeypatch.setattr(sft, "train", lambda *_: pytest.fail("trains"))
    with pytest.raises(UserError, match="Failed to find C compiler"):
        worker.work(Run(phase, tmp_path, tmp_path, tmp_path))
