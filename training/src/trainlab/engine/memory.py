"""The peak memory of each part of a run, for manifest.json and the report; the recipes mark where a part ends.

A CPU rank is measured by VmHWM of /proc/self/status, which writing 5 to /proc/self/clear_refs resets (proc(5)), and its
pod by the cgroup; a GPU rank by PyTorch's allocator. The GPU half was run on one H100, but not the snapshot.
"""

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trainlab.config import Phase

GIB = 2**30
UNLIMITED = 2**60  # cgroup v1 reports a number of this size if there is no limit
SNAPSHOT = "memory_snapshot.pickle"
ENTRIES = 100_000  # newest allocations that a snapshot holds
NO_MEMORY_SIGNS = ("out of memory", "can't allocate memory", "cannot allocate memory", "status_alloc_failed")
"""In what torch says of the pod's memory (DefaultCPUAllocator) and of a GPU's (CUDA, cuBLAS), in lower case."""


class Profile:
    """The parts of this rank so far."""

    def __init__(self) -> None:
        self.parts: dict[str, dict[str, float]] = {}

    def mark(self, part: str) -> None:
        """End a part: keep its peaks in GiB and begin the next one; a part that occurs again keeps the higher ones."""
        import torch

        peaks = {"process_gib": _peak_gib("self")}
        if torch.cuda.is_available():
            peaks["allocated_gib"] = _gib(torch.cuda.max_memory_allocated())
            peaks["reserved_gib"] = _gib(torch.cuda.max_memory_reserved())
            torch.cuda.reset_peak_memory_stats()
        known = self.parts.get(part, {})
        self.parts[part] = {name: max(value, known.get(name, 0.0)) for name, value in peaks.items()}
        try:
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        except OSError:  # a sandbox without it: the peak then counts from the start of the process
            self.parts[part]["from_start"] = 1.0

    @contextmanager
    def training(self, phase: Phase, run_dir: Path) -> Iterator[None]:
        """Wrap the training: mark it, and save PyTorch's snapshot of rank 0 if `train.memory_snapshot` asks for it."""
        import torch

        from trainlab.engine import dist

        wanted = phase.train.memory_snapshot and dist.is_main() and torch.cuda.is_available()
        recorded: Any = torch.cuda.memory
        if wanted:
            recorded._record_memory_history(max_entries=ENTRIES)
        try:
            yield
        finally:  # above all when it ran out of memory
            if wanted:
                recorded._dump_snapshot(str(run_dir / SNAPSHOT))
                recorded._record_memory_history(enabled=None)
        self.mark("train")

    def report(self, phase: Phase) -> dict[str, Any]:
        """Return what the manifest says about all ranks; every rank must call it. Sizes in GiB, None if unknown.

        {planned_gib, planned_for, gpu_gib, pods: [{host, ranks, processes_gib: sum of the peaks of the
        ranks and of torchrun (shared pages are counted for each), limit_gib, peak_gib: of the cgroup, page cache
        included}], ranks: [{rank, host, parts}]}.
        """
        from trainlab.engine import dist

        launcher = _peak_gib(str(os.getppid())) if "TORCHELASTIC_RUN_ID" in os.environ else 0.0
        here = {"rank": dist.rank(), "host": _host(), "parts": self.parts, "gpu_gib": _gpu_gib()}
        return {**planned(phase), **by_pod(dist.gather({**here, "launcher_gib": launcher, **pod()}))}


def exhausted(error: BaseException) -> str | None:
    """Return the sentence for an error that means `out of memory`, of the pod or of a GPU, else None."""
    text = " ".join(str(error).split())
    no_memory = isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM
    if not no_memory and not any(sign in text.lower() for sign in NO_MEMORY_SIGNS):
        return None
    more = (
        "use GPUs with more memory"
        if "CU" in text
        else "raise phase.resources.memory (another run, which train.resume_from lets go on from a checkpoint of this one)"
    )
    return (
        f"memory ran out: {text or type(error).__name__}; lower phase.train.batch_size (gradient_accumulation keeps the rows "
        f"of a step) or phase.evaluate.batch_size, or {more}"
    )


def by_pod(ranks: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the ranks' own numbers and, per pod, their sum against the pod's limit."""
    pods = []
    for host in dict.fromkeys(str(rank["host"]) for rank in ranks):
        own = [rank for rank in ranks if rank["host"] == host]
        peaks = [max((part["process_gib"] for part in rank["parts"].values()), default=0.0) for rank in own]
        pods.append(
            {
                "host": host,
                "ranks": len(own),
                "processes_gib": round(sum(peaks) + max(rank["launcher_gib"] for rank in own), 3),
                "limit_gib": own[0]["limit_gib"],
                "peak_gib": max((rank["peak_gib"] for rank in own if rank["peak_gib"] is not None), default=None),
            }
        )
    gpus = [rank["gpu_gib"] for rank in ranks if rank["gpu_gib"] is not None]
    brief = [{key: rank[key] for key in ("rank", "host", "parts")} for rank in ranks]
    return {"gpu_gib": min(gpus, default=None), "pods": pods, "ranks": brief}


def planned(phase: Phase) -> dict[str, Any]:
    """Return what `trainlab plan` computes for one GPU (for a pod without one: for the pod), None for unknown models."""
    import torch

    from trainlab.plan.source import plan_of

    name = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    plan = plan_of(phase, name)
    if plan.parameters is None:
        return {"planned_gib": None, "planned_for": None}
    gib = _gib(plan.memory.total) if plan.memory else None
    return {"planned_gib": gib, "planned_for": "GPU" if plan.job.on_gpu else "pod"}


def pod(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> dict[str, float | None]:
    """Return {limit_gib, peak_gib} of this process's cgroup (version 2 or 1); None if there is no limit or file."""
    lines = own.read_text(encoding="utf-8").splitlines() if own.exists() else []
    paths = {line.split(":", 2)[1]: line.split(":", 2)[2] for line in lines if line.count(":") >= 2}
    first = (root / "memory", paths.get("memory", "/"), "memory.limit_in_bytes", "memory.max_usage_in_bytes")
    second = (root, paths.get("", "/"), "memory.max", "memory.peak")
    for base, path, limit, peak in (second, first):
        # A container sees its own group at the root and the host's path in /proc, unless it has a cgroup namespace.
        for folder in (base / path.lstrip("/"), base):
            if (folder / limit).exists():
                return {"limit_gib": _bytes(folder / limit), "peak_gib": _bytes(folder / peak)}
    return {"limit_gib": None, "peak_gib": None}


def sentence(measured: Mapping[str, Any]) -> str:
    """Return the row of the report: the parts' peaks of the fullest rank, and the pods against their limit."""
    kind = "allocated_gib" if measured.get("gpu_gib") else "process_gib"
    parts: dict[str, float] = {}
    for rank in measured["ranks"]:
        for name, peaks in rank["parts"].items():
            parts[name] = max(parts.get(name, 0.0), peaks.get(kind, 0.0))
    text = ", ".join(f"{name} {value:.2f}" for name, value in parts.items()) + " GiB"
    text += f" of the GPU's {measured['gpu_gib']:.1f} GiB" if measured.get("gpu_gib") else " per process"
    if measured.get("planned_gib") is not None:
        text += f"; planned for training: {measured['planned_gib']:.2f} GiB for the {measured['planned_for']}"
    limited = [pod for pod in measured["pods"] if pod["limit_gib"]]
    if limited:
        full = max(limited, key=lambda pod: pod["processes_gib"] / pod["limit_gib"])
        verdict = "within" if full["processes_gib"] <= full["limit_gib"] else "above"
        text += f"; processes of the fullest pod {full['processes_gib']:.2f} GiB, {verdict} its limit of {full['limit_gib']:.2f}"
        if full["peak_gib"] is not None:
            text += f" (with page cache {full['peak_gib']:.2f})"
    return text


def _host() -> str:
    import socket

    return os.environ.get("HOSTNAME") or socket.gethostname()  # of the pod; several pods may share a node


def _gpu_gib() -> float | None:
    import torch

    if not torch.cuda.is_available():
        return None
    return _gib(torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory)


def _peak_gib(process: str) -> float:
    """Return the peak memory of a process (a number, or self) in GiB, 0 if /proc does not say."""
    path, name = Path("/proc") / process / "status", "VmHWM"
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        if line.startswith(f"{name}:"):
            return _gib(int(line.split()[1]) * 1024)
    return 0.0


def _bytes(path: Path) -> float | None:
    text = path.read_text(encoding="ascii").strip() if path.exists() else "max"
    return None if text == "max" or int(text) >= UNLIMITED else _gib(int(text))


def _gib(size: float) -> float:
    return round(size / GIB, 3)
