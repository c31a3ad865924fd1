"""A checkpoint counts only when it is whole."""

import shutil
from pathlib import Path

import pytest
import torch
from trainlab.engine import checkpoints, memory


def make(folder: Path, step: int, marked: bool = True) -> Path:
    path = folder / f"checkpoint-{step}"
    path.mkdir(parents=True)
    (path / "model.safetensors").write_bytes(b"x" * 10)
    if marked:
        checkpoints.mark(path)
    return path


def test_truncated_and_unmarked_ones_are_skipped_with_a_sentence(tmp_path: Path) -> None:
    good, short = make(tmp_path, 2), make(tmp_path, 9)
    (short / "model.safetensors").write_bytes(b"x" * 4)
    make(tmp_path, 10, marked=False)
    said: list[str] = []
    assert checkpoints.last_good(tmp_path, said.append) == good
    assert said == [
        "checkpoint-10 is skipped: complete.json is missing: it was being written when the run ended",
        "checkpoint-9 is skipped: model.safetensors has 4 of 10 bytes",
    ]


def test_those_that_a_kill_cut_off_are_removed_when_the_run_goes_on(tmp_path: Path) -> None:
    """Each preemption of a large model would leave another, until the volume is full."""
    for step in (2, 4, 6):
        (tmp_path / f"checkpoint-{step}").mkdir()
        (tmp_path / f"checkpoint-{step}" / "x").write_text("x")
    checkpoints.mark(tmp_path / "checkpoint-4")
    said: list[str] = []
    assert checkpoints.last_good_everywhere(tmp_path, said.append) == tmp_path / "checkpoint-4"
    assert [path.name for path in checkpoints.listed(tmp_path)] == ["checkpoint-4"]
    assert "checkpoint-6: removed, it was cut off while it was written" in said


def test_rotation_keeps_the_newest_whole_ones(tmp_path: Path) -> None:
    for step in (2, 4, 6, 10):
        make(tmp_path, step, marked=step != 10)
    checkpoints.rotate(tmp_path, keep=2)
    assert [p.name for p in checkpoints.listed(tmp_path)] == ["checkpoint-4", "checkpoint-6", "checkpoint-10"]


@pytest.mark.parametrize(
    ("size", "writing", "steps"),
    [
        (1e6, 9.0, [10, 20, 30]),  # it takes no time; not at the last step, after which the result is saved
        (150e6, 0.5, [10, 20, 30]),  # 10 s of training for half a second
        (450e6, 1.5, [30]),  # 30 s for 1.5
        (150e6, 1.0, [10, 30]),  # the volume is slower than it was taken to be
        (88.7e9, 0.0, []),  # more than an hour for one
    ],
)
def test_checkpoints_take_a_twentieth_of_the_time(
    size: float, writing: float, steps: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second a step, 300 MB/s."""
    now = 0.0
    monkeypatch.setattr(checkpoints.time, "monotonic", lambda: now)
    clock, saved = checkpoints.Clock(40, 4, size), []
    for step in range(1, 41):
        now += 1
        if clock.due(step):
            saved.append(step)
            now += writing
            clock.saved()
    assert saved == steps


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device"),
        RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 64 vs 0"),
        RuntimeError("I/O error: No space left on device (os error 28)"),
    ],
)
def test_full_volume_names_path_space_and_last_good(tmp_path: Path, error: Exception) -> None:
    good = make(tmp_path, 2)
    text = checkpoints.explain_full(error, tmp_path, "checkpoint-4")
    assert text is not None and text.code == 1
    assert f"{tmp_path}: the volume is full while checkpoint-4 was written" in str(text)
    assert "MB free" in str(text) and str(good) in str(text)


@pytest.mark.parametrize("size", [1 << 46, 1 << 60])
def test_memory_that_ran_out_is_no_full_volume(tmp_path: Path, size: int) -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(size, dtype=torch.uint8)
    assert checkpoints.explain_full(caught.value, tmp_path, "checkpoint-4") is None
    said = memory.exhausted(caught.value)
    assert said is not None and "memory ran out" in said and "phase.train.batch_size" in said
    assert memory.exhausted(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")) is not None
    assert memory.exhausted(RuntimeError("shape mismatch")) is None


def test_a_volume_that_is_full_before_the_first_checkpoint_is_said(tmp_path: Path) -> None:
    """As when eval_before.json is written: the folder of checkpoints is not there yet."""
    text = checkpoints.explain_full(OSError(28, "No space left on device"), tmp_path / "run" / "checkpoints", "a file")
    assert f"{tmp_path}/run/checkpoints: the volume is full while a file was written" in str(text)
    assert "MB free); there is no earlier checkpoint" in str(text)


def test_a_complete_run_keeps_none_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path / "checkpoints", 2)
    said: list[str] = []

    def busy(_: Path) -> None:
        raise OSError(16, "Device or resource busy")

    with monkeypatch.context() as broken:
        broken.setattr(shutil, "rmtree", busy)
        checkpoints.drop(tmp_path, said.append)
    assert said == [
        f"warning: {tmp_path}/checkpoints: not removed: Device or resource busy; remove it, nothing needs it any more"
    ]
    checkpoints.drop(tmp_path, said.append)
    checkpoints.drop(tmp_path, said.append)  # a second start of the same command
    assert not list(tmp_path.iterdir()) and len(said) == 1


def test_other_errors_stay_errors(tmp_path: Path) -> None:
    assert checkpoints.explain_full(RuntimeError("shape mismatch"), tmp_path, "x") is None
