"""How busy this rank's GPU is and how full its memory, by NVML (libnvidia-ml.so.1, which comes with the driver), for history and report.

By ctypes: three calls of a stable interface. nvidia-ml-py is one more package in the lock, and not in the environment of tests, as
cpu_only.py leaves out what only GPUs need. NVML counts as busy each moment in which a kernel runs, however few of its cores compute
(nvmlDeviceGetUtilizationRates): a low number is a GPU that waits, a high one is no sign of a fast program; that is MFU.
"""

import ctypes
import statistics
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trainlab import files
from trainlab.progress import Progress

EVERY = 1.0  # seconds; NVML's own period is up to one second (its documentation of nvmlUtilization_t)
LIBRARY = "libnvidia-ml.so.1"
GIB = 2**30


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class Nvml:
    """One GPU as NVML sees it."""

    def __init__(self, uuid: str) -> None:
        """Open the GPU of this UUID, without its prefix, as CUDA gives it. OSError: NVML is missing, or knows no such GPU."""
        self._library = ctypes.CDLL(LIBRARY)
        self._device = ctypes.c_void_p()
        self._call("nvmlInit_v2")
        self._call("nvmlDeviceGetHandleByUUID", f"GPU-{uuid}".encode(), ctypes.byref(self._device))

    def read(self) -> tuple[float, float]:
        """Return (share of the last period in which it was busy, GiB in use by all its processes). OSError: it does not say."""
        busy, memory = _Utilization(), _Memory()
        self._call("nvmlDeviceGetUtilizationRates", self._device, ctypes.byref(busy))
        self._call("nvmlDeviceGetMemoryInfo", self._device, ctypes.byref(memory))
        return busy.gpu / 100, memory.used / GIB

    def _call(self, name: str, *arguments: Any) -> None:
        try:
            code = getattr(self._library, name)(*arguments)
        except AttributeError:
            raise OSError(f"{LIBRARY} has no {name}") from None
        if code:
            raise OSError(f"{name}: NVML says {code}")


class GpuUse:
    """Samples of one GPU, each second; what came before the first `take` is not counted: it loads, and scores the base."""

    def __init__(self, gpu: Nvml) -> None:
        self._gpu, self._ended = gpu, threading.Event()
        self._new: list[tuple[float, float]] = []
        self._all: list[tuple[float, float]] | None = None

    def take(self) -> dict[str, float]:
        """Return {gpu_utilization: mean share, gpu_memory_gib: the most} since the last call; {} at the first, and if NVML fails."""
        if not self._new and self._all is not None:
            self._sample()  # steps are shorter than a period
        new, self._new = self._new, []
        if self._all is None:
            self._all = []
            return {}
        self._all += new
        if not new:
            return {}
        busy, memory = zip(*new, strict=True)
        return {"gpu_utilization": statistics.fmean(busy), "gpu_memory_gib": max(memory)}

    def summary(self) -> dict[str, dict[str, float]] | None:
        """Return mean and max of `utilization` (a share) and `memory_gib` from the first `take` to the last; None without a sample."""
        if not self._all:
            return None
        busy, memory = zip(*self._all, strict=True)
        return {
            name: {"mean": round(statistics.fmean(values), 3), "max": round(max(values), 3)}
            for name, values in (("utilization", busy), ("memory_gib", memory))
        }

    @contextmanager
    def sampling(self) -> Iterator[None]:
        """Sample in a thread within the block."""
        thread = threading.Thread(target=self._repeat, name="gpu use", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()

    def _repeat(self) -> None:
        while not self._ended.wait(EVERY):
            self._sample()

    def _sample(self) -> None:
        try:
            self._new.append(self._gpu.read())
        except OSError:  # a slice of a GPU (MIG) has no utilization
            self._ended.set()


@contextmanager
def sampled(progress: Progress) -> Iterator[GpuUse | None]:
    """Let `progress.gpu_use` tell of this rank's GPU within the block; None without one, or without NVML."""
    import torch

    if not torch.cuda.is_available():
        yield None
        return
    try:
        use = GpuUse(Nvml(str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)))
    except (OSError, AttributeError):  # a driver without NVML; a torch without CUDA has no UUID
        yield None
        return
    progress.gpu_use = use.take
    with use.sampling():
        yield use


def add_to_history(run_dir: Path, use: GpuUse | None) -> None:
    """Write the use of every rank's GPU as the last entry of training_history.json, {step, gpus: [{rank, utilization, memory_gib}]}.

    Without GPUs nothing is written. Every rank must call it.
    """
    from trainlab.engine import dist

    own = use.summary() if use else None
    gathered: list[tuple[int, Any]] = dist.gather((dist.rank(), own))
    used = [{"rank": rank, **theirs} for rank, theirs in gathered if theirs]
    path = run_dir / "training_history.json"
    if used and dist.is_main() and path.exists():
        history = [entry for entry in files.read_json(path) if "gpus" not in entry]
        files.write_json(path, [*history, {"step": history[-1]["step"], "gpus": used}])


def summary(history: Sequence[Mapping[str, Any]]) -> tuple[str, str] | None:
    """Return what the GPUs of a history did, and their memory; None without any.

    >>> summary([{"gpus": [{"rank": 0, "utilization": {"mean": 0.9, "max": 1.0}, "memory_gib": {"mean": 60.0, "max": 70.5}}]}])
    ('busy 90% (most 100%)', 'memory 70.5 GiB at most')
    """
    gpus: Sequence[Any] = next((entry["gpus"] for entry in reversed(history) if "gpus" in entry), [])
    if not gpus:
        return None
    busy = [gpu["utilization"]["mean"] for gpu in gpus]
    most, memory = (max(gpu[name]["max"] for gpu in gpus) for name in ("utilization", "memory_gib"))
    least = f"least of {len(gpus)} {min(busy):.0%}, " if len(gpus) > 1 else ""
    return f"busy {statistics.fmean(busy):.0%} ({least}most {most:.0%})", f"memory {memory:.1f} GiB at most"
