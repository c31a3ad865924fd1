"""Is every rank's GPU what it should be? Name, driver, free memory and a short bf16 matmul, before any training.

Called by run/worker.py if there are GPUs: `measure` was run on one H100; `warnings` is a pure function of what it returns.
"""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainlab.config import Phase, ResnetPhase, Values
from trainlab.errors import UserError
from trainlab.plan import devices, estimate, source

SIZE, ROUNDS = 8192, 20  # 1.1 TFLOP a round; measured on an H100: 785 to 795 of 989 TFLOP/s
SLOW = 0.5  # of the data sheet's dense peak: measured GPUs reach 80 to 87 % (stas00/ml-engineering, accelerators)
DRIVER = Path("/proc/driver/nvidia/version")


def check(planned_gib: float | None) -> tuple[list[dict[str, Any]], list[str]]:
    """Return (every rank's GPU, what to say), ([], []) without GPUs; every rank must call it.

    `planned_gib` is what `trainlab plan` computes for one GPU.
    """
    import torch

    from trainlab.engine import dist

    found = [one for one in dist.gather(measure() if torch.cuda.is_available() else None) if one]
    return found, [*(sentence(one) for one in found), *warnings(found, planned_gib)]


def peak_tokens(phase: Phase) -> float | None:
    """Return the tokens per second at which all ranks' GPUs would compute at the bf16 (float32) peak of the data sheet.

    The share of it that a run reaches is its model FLOP utilization (MFU; Chowdhery et al., arXiv 2204.02311, appendix B):
    recomputed activations and the pass that fills the cache do not count. None without GPUs, for an unknown model or GPU.
    """
    import torch

    if isinstance(phase, ResnetPhase) or not torch.cuda.is_available():
        return None
    given: dict[str, Any] = {"phase": phase}
    job = replace(source.job_of(Values.model_construct(**given), []), checkpointing=False)
    device = known(torch.cuda.get_device_name())
    if device is None or job.arch is None or not job.on_gpu:
        return None
    length = job.tokens_per_row if job.tokens_per_row and not job.packed else float(job.max_length)
    return device.peak(job.precision) * job.world / estimate.flop_per_token(job, job.arch, length)


def measure() -> dict[str, Any]:
    """Return {rank, name, capability, driver, memory_gib, free_gib, tflops: of a bf16 matmul, None without bf16}."""
    import torch

    from trainlab.engine import dist

    free, total = torch.cuda.mem_get_info()
    major, minor = torch.cuda.get_device_capability()
    rate = None
    if torch.cuda.is_bf16_supported(including_emulation=False) and free > 4 * 2 * SIZE**2:
        left, right = (torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        for _ in range(3):
            left @ right
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(ROUNDS):
            left @ right
        end.record()
        torch.cuda.synchronize()
        rate = round(2 * SIZE**3 * ROUNDS / (start.elapsed_time(end) / 1000) / 1e12, 1)
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


def sentence(one: dict[str, Any]) -> str:
    """Return a rank's GPU in one line."""
    rate = "no bfloat16 measured" if one["tflops"] is None else f"{one['tflops']:.0f} TFLOP/s in bfloat16"
    return (
        f"rank {one['rank']}: {one['name']}, capability {one['capability']}, driver {one['driver']}, "
        f"{one['free_gib']:.1f} of {one['memory_gib']:.1f} GiB free, {rate}"
    )


def warnings(found: list[dict[str, Any]], planned_gib: float | None) -> list[str]:
    """Return a sentence for each GPU that is slow, full, or unlike the others."""
    said = []
    for one in found:
        who = f"warning: rank {one['rank']}: {one['name']}"
        device = known(one["name"])
        if device and one["tflops"] is not None and one["tflops"] * 1e12 < SLOW * device.bf16:
            said.append(
                f"{who} computes {one['tflops']:.0f} TFLOP/s, {one['tflops'] * 1e12 / device.bf16:.0%} of its data "
                f"sheet's {device.bf16 / 1e12:.0f}: it is shared, hot or power-limited; check nvidia-smi on its node"
            )
        if planned_gib is not None and one["free_gib"] < planned_gib:
            said.append(
                f"{who} has {one['free_gib']:.1f} GiB free, `trainlab plan` needs {planned_gib:.1f}: lower "
                "phase.train.batch_size or phase.model.max_length, or find out what else uses it"
            )
    names = sorted({one["name"] for one in found})
    if len(names) > 1:
        said.append(f"warning: the ranks have different GPUs ({', '.join(names)}): all wait for the slowest")
    return said


def known(name: str) -> devices.Device | None:
    """Return the device of this name in the planner's table, None if it is not there."""
    try:
        return devices.find(name.replace(" ", "-"))
    except UserError:
        return None


def driver(path: Path = DRIVER) -> str:
    """Return the version of NVIDIA's kernel module, "unknown" if its file is not visible."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    found = re.search(r"Kernel Module.*?\s(\d+\.\d+[\d.]*)", text)
    return found.group(1) if found else "unknown"
