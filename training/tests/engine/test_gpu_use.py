"""How busy a GPU is and how full, by NVML: a stub of its library, compiled here, tells of one."""

import ctypes.util
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from trainlab import files
from trainlab.engine import gpu_use
from trainlab.engine.gpu_use import GpuUse, Nvml
from trainlab.engine.saving import StepReporter
from trainlab.progress import Progress
from trainlab.report import terminal, words
from trainlab.report.answer_report import traces
from transformers import TrainerControl, TrainerState, TrainingArguments

UUID = "8a4f0b1c-0000-1111-2222-333344445555"
# busy 40, 60, 80 ... percent with each call, 3, 4, 5 ... GiB in use
NVML = """
#include <string.h>
static unsigned calls;
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    *device = &calls;
    return strcmp(uuid, "GPU-8a4f0b1c-0000-1111-2222-333344445555") ? 6 : 0;
}
int nvmlDeviceGetUtilizationRates(void *device, unsigned *rates) {
    if (device != &calls) return 2;
    rates[0] = 40 + 20 * calls; rates[1] = 99;
    return MIG ? 3 : 0;
}
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *memory) {
    if (device != &calls) return 2;
    memory[0] = 80ull << 30; memory[2] = (3ull + calls++) << 30; memory[1] = memory[0] - memory[2];
    return 0;
}
"""


def library(folder: Path, name: str, mig: int = 0) -> str:
    """Compile the stub, or skip."""
    if not (compiler := shutil.which("gcc")):
        pytest.skip("no C compiler")
    (folder / "nvml.c").write_text(NVML, encoding="utf-8")
    target = folder / f"{name}.so"
    subprocess.run([compiler, f"-DMIG={mig}", "-shared", "-fPIC", "-o", target, folder / "nvml.c"], check=True)
    return str(target)


def test_history_and_report_say_how_busy_the_gpu_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_use, "LIBRARY", library(tmp_path, "nvml"))
    progress, use = Progress(False), GpuUse(Nvml(UUID))
    progress.gpu_use = use.take
    sent: list[int] = []
    progress.log = lambda step, entry: sent.append(step)
    reporter, arguments, control = StepReporter(progress), TrainingArguments(), TrainerControl()
    state = TrainerState(max_steps=3, num_train_epochs=1)
    use._sample()  # while the base is scored: 40 percent, which is not the training's
    reporter.on_train_begin(arguments, state, control)
    for step in (1, 2):
        state.global_step = step
        state.log_history.append({"loss": 2.0, "step": step})
        reporter.on_log(arguments, state, control, {"loss": 2.0})
    assert [(entry["gpu_utilization"], entry["gpu_memory_gib"]) for entry in state.log_history] == [(0.6, 4), (0.8, 5)]
    assert sent == [1, 2]

    files.write_json(tmp_path / "training_history.json", state.log_history)
    for _ in range(2):  # a run that is resumed after its last step writes it again
        gpu_use.add_to_history(tmp_path, use)
    history = files.read_json(tmp_path / "training_history.json")
    whole = {"utilization": {"mean": 0.7, "max": 0.8}, "memory_gib": {"mean": 4.5, "max": 5.0}}
    assert history[2:] == [{"step": 2, "gpus": [{"rank": 0, **whole}]}]
    busy, full = "busy 70% (most 80%)", "memory 5.0 GiB at most"
    where = {"hosts": ["pod"], "cpu": "c", "cores": 2, "threads_per_rank": 1, "memory_gib": 2}
    assert ("GPU use", f"{busy} of the time of the steps, {full}") in words.machine({"hardware": where}, {}, history)
    assert [(row["gain"], row["verdict"]) for row in terminal.gpu_use(history)] == [(busy, full)]
    assert [trace["points"] for trace in traces(history)][-2:] == [[(1, 0.6), (2, 0.8)], [(1, 4.0), (2, 5.0)]]


def test_a_thread_samples_between_the_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_use, "LIBRARY", library(tmp_path, "nvml"))
    monkeypatch.setattr(gpu_use, "EVERY", 0.001)
    use, deadline = GpuUse(Nvml(UUID)), time.monotonic() + 60
    assert use.take() == {}
    with use.sampling():
        while len(use._new) < 3 and time.monotonic() < deadline:
            time.sleep(0.001)
    assert use.take()["gpu_memory_gib"] >= 5


def test_a_slice_of_a_gpu_has_no_numbers_and_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_use, "LIBRARY", library(tmp_path, "slice", mig=1))
    use = GpuUse(Nvml(UUID))
    assert use.take() == use.take() == {} and use.summary() is None
    files.write_json(tmp_path / "training_history.json", [{"step": 1}])
    gpu_use.add_to_history(tmp_path, use)
    assert files.read_json(tmp_path / "training_history.json") == [{"step": 1}]
    assert terminal.gpu_use([{"step": 1}]) == [] and gpu_use.summary([]) is None
    with pytest.raises(OSError, match="nvmlDeviceGetHandleByUUID: NVML says 6"):
        Nvml("another")


def test_without_a_gpu_nothing_is_sampled() -> None:
    if ctypes.util.find_library("nvidia-ml"):
        pytest.skip("a driver")
    progress = Progress(False)
    with gpu_use.sampled(progress) as use:
        assert use is None and progress.gpu_use() == {}
