"""A GPU that CUDA cannot use ends every rank alike, before anything is loaded; a stub of NVML reports one where CUDA has none."""

import ctypes.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from checkout import ROOT, SOURCES
from ports import free_port
from tiny import make_phase
from trainlab.engine import gpus
from trainlab.errors import UserError
from workplace import Workplace

NVML = """
int nvmlInit(void) { return 0; }
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned int *count) { *count = 1; return 0; }
"""
NO_CUDA = pytest.mark.skipif(torch.cuda.is_available(), reason="CUDA works here")


@pytest.fixture
def stub(tmp_path: Path) -> dict[str, str]:
    if not (compiler := shutil.which("gcc")) or ctypes.util.find_library("nvidia-ml") or not torch.version.cuda:
        pytest.skip("no C compiler, a driver, or a torch without CUDA")
    (tmp_path / "nvml.c").write_text(NVML, encoding="utf-8")
    library = tmp_path / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(tmp_path / "nvml.c")], check=True)
    return {"LD_LIBRARY_PATH": str(tmp_path)}


@NO_CUDA
@pytest.mark.rest
def test_a_gpu_that_cuda_cannot_use_is_an_error_and_not_a_run_on_the_cpu(
    tmp_path: Path, tiny_model: Path, phase_dict: dict[str, Any], stub: dict[str, str]
) -> None:
    shutil.copytree(tiny_model, tmp_path / "models" / "tiny")
    place = Workplace(tmp_path, make_phase(phase_dict, resources={"gpus_per_node": 1}))
    pod = place.python("--run", "silent", **stub)
    output = pod.communicate()[0]
    assert pod.returncode == 2 and "Traceback" not in output, output
    said = "error: phase.resources.gpus_per_node is 1: CUDA cannot use the GPU here: Found no NVIDIA driver on your system."
    assert said in output and "needs driver 580 or newer" in output
    assert not (tmp_path / "silent" / "manifest.json").exists(), "nothing was loaded"


# A rank whose machine is as its second argument says, and which would say that it works.
RANK = """
import sys
from pathlib import Path
from types import SimpleNamespace
from trainlab.engine import gpus
from trainlab.recipes.base import Run
from trainlab.run import worker
gpus.lacking = lambda wanted: sys.argv[1] or None
worker.work = lambda *_: print("works")
worker.rank_main(Run(SimpleNamespace(resources=SimpleNamespace(timeout_minutes=1, gpus_per_node=1)), *[Path()] * 3))
"""


@NO_CUDA
@pytest.mark.rest
@pytest.mark.parametrize(("lacks", "code"), [(("", "no CUDA"), 2), (("", ""), 0)])
def test_one_node_without_cuda_ends_the_ranks_of_all(lacks: tuple[str, str], code: int) -> None:
    meeting = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    env = {**os.environ, "PYTHONPATH": str(SOURCES), "GLOO_SOCKET_IFNAME": "lo", **meeting}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, lack], env={**env, "RANK": str(i)}, stderr=subprocess.PIPE, text=True
        )
        for i, lack in enumerate(lacks)
    ]
    said = [rank.communicate()[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [code, code], said
    told = [text.partition(f"error: rank {i}: ")[2] for i, text in enumerate(said)]
    assert told[0] == told[1] and ("rank 1 on " in told[0] and ": no CUDA" in told[0]) == bool(code), said


def test_the_sentence_names_counts_the_driver_and_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    assert gpus.lacking(0) is None, "0 GPUs means the CPU"
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert "torch sees 1 GPUs here" in str(gpus.lacking(2))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert gpus.lacking(1) is None
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", "13.0")

    def too_old() -> None:
        raise RuntimeError("The NVIDIA driver on your system is too old (found version 12040).\nPlease update")

    monkeypatch.setattr(torch.cuda, "init", too_old)
    for driver, remedy in (("550.54.15", "update it"), ("580.95.05", "nvidia-smi"), ("unknown", "update it")):
        monkeypatch.setattr(gpus, "driver", lambda driver=driver: driver)
        sentence = gpus.lacking(1)
        assert (
            sentence
            and f"is too old (found version 12040).; its driver is {driver}, CUDA 13.0 needs driver 580" in sentence
        )
        assert remedy in sentence and "\n" not in sentence


def test_the_driver_is_that_of_the_locked_cuda() -> None:
    lock = (ROOT / "images" / "trainer" / "requirements.lock").read_text(encoding="utf-8")
    major = lock.partition("\ncuda-toolkit==")[2].partition(".")[0]
    inventory = (ROOT / "plugins" / "plugin_utils" / "gpu_inventory.py").read_text(encoding="utf-8")
    assert f"MIN_DRIVER = {gpus.DRIVERS[int(major)]}\n" in inventory


def test_the_probe_launches_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    launched = list[bool]()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(gpus, "_launch", lambda: launched.append(True))
    monkeypatch.setattr(gpus, "_compile", lambda: None)
    assert gpus.lacking_compiler() is None and launched

    def without_libcuda() -> None:
        raise AssertionError("libcuda.so cannot found!\nPlease make sure GPU is set up")

    monkeypatch.setattr(gpus, "_launch", without_libcuda)
    assert gpus.lacking_compiler() == "libcuda.so cannot found!"


INTERPRETED = """
import torch
from trainlab.engine import triton_probe
values = torch.arange(4.0)
triton_probe.increment[(1,)](values, 4)
assert values.tolist() == [1, 2, 3, 4], values
"""


@pytest.mark.slow
def test_its_kernel_is_right() -> None:
    pytest.importorskip("triton")
    env = {**os.environ, "PYTHONPATH": str(SOURCES), "TRITON_INTERPRET": "1"}
    subprocess.run([sys.executable, "-c", INTERPRETED], env=env, check=True)


def test_a_compiler_that_works_but_a_kernel_that_does_not_ends_the_run(
    phase_dict: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpus, "lacking_compiler", lambda: "libcuda.so cannot found!")
    with pytest.raises(UserError, match=r"which cannot work here: libcuda\.so cannot found!"):
        gpus.check_compiler(make_phase(phase_dict))
