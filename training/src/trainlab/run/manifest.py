"""manifest.json: what a run was made of (versions, seeds, data, model, machines, times); written by run/worker.py."""

import os
import platform
import socket
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from trainlab import __version__
from trainlab.config import Phase
from trainlab.config.loading import phase_hash, used_overrides
from trainlab.engine import dist

PACKAGES = (
    "torch",
    "torchvision",
    "scikit-learn",
    "transformers",
    "trl",
    "peft",
    "datasets",
    "accelerate",
    "tokenizers",
    "safetensors",
    "gguf",
    "lm_eval",
    "numpy",
)


def now() -> str:
    """Return the time in UTC, ISO 8601, seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def begin(phase: Phase, run_dir: Path, data_dir: Path, origin: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest of a run starting now; every rank must call it (hosts are gathered).

    `origin` says where model and data come from, under the keys "model" and "data" (Recipe.origin).
    """
    return {
        "run": run_dir.name,
        "phase": phase.name,
        "phase_hash": phase_hash(phase),
        "seed": phase.seed,
        "started": now(),
        "ended": None,
        "versions": versions(),
        "environment_overrides": used_overrides(os.environ, data_dir, run_dir.parent),
        "model": origin["model"],
        "data": origin["data"],
        "world_size": dist.world_size(),
        "hardware": hardware(),
    }


def versions() -> dict[str, str]:
    """Return the versions of Python, trainlab and the compute libraries."""
    found = {"trainlab": __version__, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def hardware() -> dict[str, Any]:
    """Return hosts, CPU, GPUs, threads of the whole job, gathered from every rank."""
    here = {"host": socket.gethostname(), "node": os.environ.get("NODE_NAME", ""), "gpus": _gpu()}
    ranks = dist.gather(here)
    return {
        "hosts": sorted({str(r["host"]) for r in ranks}),
        "nodes": sorted({str(r["node"]) for r in ranks if r["node"]}),
        "gpus": [r["gpus"] for r in ranks if r["gpus"]],
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "threads_per_rank": torch.get_num_threads(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": platform.platform(terse=True),
    }


def _gpu() -> str:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else ""


def cpu_model() -> str:
    """Return the CPU model as Linux reports it."""
    info = Path("/proc/cpuinfo")
    for line in info.read_text().splitlines() if info.exists() else []:
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
