"""manifest.json: what a run was made of (versions, seeds, data, model, machines, times); written by run/worker.py."""

import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from trainlab import __version__, files
from trainlab.config.loading import phase_hash, used_overrides
from trainlab.engine import dist
from trainlab.errors import UserError
from trainlab.models import compute
from trainlab.recipes.base import Run

PACKAGES = (
    *("torch", "torchvision", "scikit-learn", "transformers", "trl", "peft", "datasets", "accelerate", "tokenizers"),
    *("safetensors", "gguf", "lm_eval", "numpy"),
)


def now() -> str:
    """Return the time in UTC, ISO 8601, seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def begin(run: Run, origin: Mapping[str, Any], ranks: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest of a run starting now; every rank must call it (the names of GPUs are gathered). Raises UserError.

    `origin` says where model and data come from, under the keys "model" and "data" (Recipe.origin); `ranks` is what
    dist.check_collectives returned.
    """
    kinds = sorted({str(kind).removeprefix("torch.") for kind in dist.gather(compute.dtype(run.phase))})
    if len(kinds) > 1:
        raise UserError(
            f"phase.model.dtype is {run.phase.model.dtype}: the processors of the ranks differ, so some would compute in {kinds[0]} and "
            f"some in {kinds[1]}; set phase.model.dtype to one of them"
        )
    return {
        "run": run.run_dir.name,
        "phase": run.phase.name,
        "phase_hash": phase_hash(run.phase),
        "seed": run.phase.seed,
        "started": now(),
        "ended": None,
        "versions": versions(),
        "options": run.phase.options,
        "dtype": kinds[0],
        "environment_overrides": used_overrides(os.environ, run.data_dir, run.run_dir.parent),
        "model": {key: value for key, value in origin["model"].items() if key != "parent"},
        "parent": origin["model"].get("parent"),
        "data": origin["data"],
        "world_size": ranks["world_size"],
        "hardware": hardware(ranks),
        "ranks": ranks,
    }


def dtype(run_dir: Path) -> str | None:
    """Return the dtype in which a run has computed since its first start, None before that."""
    path = run_dir / "manifest.json"
    return files.read_json(path).get("dtype") if path.exists() else None


def versions() -> dict[str, str]:
    """Return the versions of Python, trainlab and the compute libraries."""
    numbers = {"trainlab": __version__, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            numbers[name] = version(name)
        except PackageNotFoundError:
            numbers[name] = "not installed"
    return numbers


def hardware(ranks: Mapping[str, Any]) -> dict[str, Any]:
    """Return hosts, CPU, GPUs, threads of the whole job; every rank must call it."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
    return {
        "hosts": ranks["hosts"],
        "nodes": ranks["nodes"],
        "gpus": [name for name in dist.gather(gpu) if name],
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "threads_per_rank": torch.get_num_threads(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": platform.platform(terse=True),
    }


def cpu_model() -> str:
    """Return the CPU model as Linux reports it."""
    info = Path("/proc/cpuinfo")
    for line in info.read_text().splitlines() if info.exists() else []:
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
