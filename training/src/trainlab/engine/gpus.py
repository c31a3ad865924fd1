"""Can CUDA use every rank's GPU, is it what it should be, and can Triton compile for it? Asked before any training, by run/.

`measure` was run on one H100; `warnings` is a pure function of what it returns. Triton (3.7, runtime/build.py) compiles a C file
against Python.h for each of its GPU kernels, while the run goes on: those of TRL's loss and fused head
(trl.kernels.chunked_logprob), with which every language model here is trained or scored, of compiled layers, and so of FP8. On
one H100 it found a compiler; what is said without one is tested on CPU.
"""

import os
import re
import subprocess
import sysconfig
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainlab.config import LanguagePhase, Phase, ResnetPhase, Values
from trainlab.errors import UserError
from trainlab.plan import devices, estimate, source

SIZE, ROUNDS = 8192, 20  # 1.1 TFLOP a round; measured on an H100: 785 to 795 of 989 TFLOP/s
SLOW = 0.5  # of the data sheet's dense peak: measured GPUs reach 80 to 87 % (stas00/ml-engineering, accelerators)
DRIVER = Path("/proc/driver/nvidia/version")
DRIVERS = {12: 525, 13: 580}
"""The oldest major version of the driver for each major version of CUDA (release notes of the CUDA toolkit, table 2)."""
MODULE = """
#include <Python.h>
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "trainlab_probe", NULL, -1, NULL};
PyMODINIT_FUNC PyInit_trainlab_probe(void) { return PyModule_Create(&module); }
"""


def lacking(wanted: int) -> str | None:
    """Return why this machine has not the `wanted` GPUs that CUDA can use, in a sentence with its remedy; None if it has them.

    torch counts GPUs by NVML, which works under any driver, while CUDA may not.
    """
    import torch

    if not wanted:
        return None
    key, have = f"phase.resources.gpus_per_node is {wanted}", torch.cuda.device_count()
    if have < wanted:
        return f"{key}: torch sees {have} GPUs here; lower it, or set 0 for the CPU"
    if torch.cuda.is_available():
        return None
    try:
        torch.cuda.init()
        why = "it says no more"
    except (RuntimeError, AssertionError) as error:
        why = str(error).splitlines()[0]
    version, toolkit = driver(), torch.version.cuda or ""
    need = DRIVERS.get(int(toolkit.partition(".")[0] or 0))
    major = version.partition(".")[0]
    new = need is None or (major.isdecimal() and int(major) >= need)
    remedy = "nvidia-smi on its node says more" if new else "update it (spec.driver.version of the ClusterPolicy)"
    needs = f", CUDA {toolkit} needs driver {need} or newer" if need else ""
    return f"{key}: CUDA cannot use the GPU here: {why}; its driver is {version}{needs}: {remedy}, or set 0 for the CPU"


def check(planned_gib: float | None) -> tuple[list[dict[str, Any]], list[str]]:
    """Return (every rank's GPU, what to say), ([], []) without GPUs; every rank must call it.

    `planned_gib` is what `trainlab plan` computes for one GPU.
    """
    import torch

    from trainlab.engine import dist

    gpus = [gpu for gpu in dist.gather(measure() if torch.cuda.is_available() else None) if gpu]
    return gpus, [*(sentence(gpu) for gpu in gpus), *warnings(gpus, planned_gib)]


def peak_tokens(phase: Phase) -> float | None:
    """Return the tokens per second at which all ranks' GPUs would compute at the bf16 (float32) peak of the data sheet.

    The share of it that a run reaches is its model FLOP utilization (MFU; Chowdhery et al., arXiv 2204.02311, appendix B):
    recomputed activations and the pass that fills the cache do not count. None without GPUs, for an unknown model or GPU.
    """
    import torch

    if isinstance(phase, ResnetPhase) or not torch.cuda.is_available():
        return None
    fields: dict[str, Any] = {"phase": phase}
    job = replace(source.job_of(Values.model_construct(**fields), []), checkpointing=False)
    device = known(torch.cuda.get_device_name())
    if device is None or job.arch is None or not job.on_gpu:
        return None
    length = job.tokens_per_row if job.tokens_per_row and not job.packed else float(job.max_length)
    return device.peak(job.arithmetic) * job.world / estimate.flop_per_token(job, job.arch, length)


def measure() -> dict[str, Any]:
    """Return {rank, name, capability, driver, memory_gib, free_gib, tflops: of a bf16 matmul, None without bf16}."""
    import torch

    from trainlab.engine import dist

    free, total = torch.cuda.mem_get_info()
    major, minor = torch.cuda.get_device_capability()
    rate = None
    if torch.cuda.is_bf16_supported(including_emulation=False) and free > 4 * 2 * SIZE**2:
        left, right = (torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16) for __ in range(2))
        rate = round(2 * SIZE**3 / seconds(lambda: left @ right) / 1e12, 1)
        del left, right
        torch.cuda.empty_cache()
    return {
        "rank": dist.rank(),
        "name": torch.cuda.get_device_name(),
        "capability": f"{major}.{minor}",
        "driver": driver(),
        "memory_gib": round(total / 2**30, 2),
        "free_gib": round(free / 2**30, 2),
        "tflops": rate,
    }


def seconds(compute: Callable[[], Any]) -> float:
    """Return the seconds on the GPU of one call: the mean of ROUNDS, after three that warm up (or compile)."""
    import torch

    for __ in range(3):
        compute()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for __ in range(ROUNDS):
        compute()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) / 1000 / ROUNDS


def sentence(gpu: dict[str, Any]) -> str:
    """Return a rank's GPU in one line."""
    rate = "no bfloat16 measured" if gpu["tflops"] is None else f"{gpu['tflops']:.0f} TFLOP/s in bfloat16"
    return (
        f"rank {gpu['rank']}: {gpu['name']}, capability {gpu['capability']}, driver {gpu['driver']}, "
        f"{gpu['free_gib']:.1f} of {gpu['memory_gib']:.1f} GiB free, {rate}"
    )


def warnings(gpus: list[dict[str, Any]], planned_gib: float | None) -> list[str]:
    """Return a sentence for each GPU that is slow, full, or unlike the others."""
    lines = []
    for gpu in gpus:
        who = f"warning: rank {gpu['rank']}: {gpu['name']}"
        device = known(gpu["name"])
        if device and gpu["tflops"] is not None and gpu["tflops"] * 1e12 < SLOW * device.bf16:
            lines.append(
                f"{who} computes {gpu['tflops']:.0f} TFLOP/s, {gpu['tflops'] * 1e12 / device.bf16:.0%} of its data "
                f"sheet's {device.bf16 / 1e12:.0f}: it is shared, hot or power-limited; check nvidia-smi on its node"
            )
        if planned_gib is not None and gpu["free_gib"] < planned_gib:
            lines.append(
                f"{who} has {gpu['free_gib']:.1f} GiB free, `trainlab plan` needs {planned_gib:.1f}: lower "
                "phase.train.batch_size or phase.model.max_length, or find out what else uses it"
            )
    names = sorted({gpu["name"] for gpu in gpus})
    if len(names) > 1:
        lines.append(f"warning: the ranks have different GPUs ({', '.join(names)}): all wait for the slowest")
    return lines


def known(name: str) -> devices.Device | None:
    """Return the device of this name in the planner's table, None if it is not there."""
    try:
        return devices.find(name.replace(" ", "-"))
    except UserError:
        return None


def driver(path: Path = DRIVER) -> str:
    """Return the version of NVIDIA's kernel module, "unknown" if its file is not visible."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    version = re.search(r"Kernel Module.*?\s(\d+\.\d+[\d.]*)", text)
    return version.group(1) if version else "unknown"


def check_compiler(phase: Phase) -> None:
    """Raise UserError where a phase needs Triton's compiler and it does not work; some 0.2 s, once per cache."""
    if (key := needs_compiler(phase)) and (lack := lacking_compiler()):
        raise UserError(
            f"{key}: on a GPU, Triton compiles while the run goes on, which cannot work here: {lack}; build the image "
            "(site.images.trainer) by images/trainer/Containerfile, which adds gcc, libc6-dev and libpython3-dev, or take a base "
            "image that has them"
        )


def needs_compiler(phase: Phase) -> str | None:
    """Return the key and value that make a phase need Triton on a GPU, None if nothing does."""
    if phase.stage_block and phase.stage_block.compile:
        return "phase.stage.compile is true"
    return f"phase.recipe is {phase.recipe}" if isinstance(phase, LanguagePhase) else None


def lacking_compiler() -> str | None:
    """Return why Triton cannot compile here, None if it can: compiles a module as Triton does, and with a GPU launches a kernel."""
    import torch

    headers = Path(sysconfig.get_path("include"))
    try:
        _compile()
        if torch.cuda.is_available():
            _launch()  # finds libcuda and ptxas as well
    except FileNotFoundError as error:
        compiler = os.environ.get("CC")
        return f"CC is {compiler}: no such program" if error.filename == compiler else str(error)
    except subprocess.CalledProcessError as error:
        if not (headers / "Python.h").is_file():
            return f"Python's headers are missing ({headers}/Python.h)"
        return f"{Path(error.cmd[0]).name} exits with {error.returncode}, see its message above"
    # no compiler; an unwritable cache; a broken module; no libcuda
    except (RuntimeError, OSError, ImportError, AssertionError) as error:
        return (str(error) or type(error).__name__).splitlines()[0]
    return None


def _compile() -> None:
    from triton.runtime.build import compile_module_from_src

    compile_module_from_src(MODULE, "trainlab_probe")


def _launch() -> None:
    import torch

    from trainlab.engine import triton_probe

    values = torch.zeros(16, device="cuda")
    triton_probe.increment[(1,)](values, 16)
    if values.sum().item() != 16:
        raise RuntimeError("a kernel of Triton computes wrongly")
