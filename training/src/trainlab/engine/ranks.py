"""Are all ranks there, do they add up, and how fast is their link? Checked before training; called by run/worker.py."""

import os
import socket
import time
from typing import Any

import torch
import torch.distributed as td

from trainlab.engine import dist
from trainlab.errors import UserError
from trainlab.progress import where

MEGABYTES, ROUNDS = 16, 3


def prove() -> dict[str, Any]:
    """Return {world_size, hosts, nodes, backend, sum, expected, megabytes, seconds, bandwidth_mb_s}; every rank must call it.

    A pod's host is its own name; its node is NODE_NAME, which the chart sets. Elsewhere `nodes` is empty.

    Each rank adds its number plus one in an all-reduce; then one of 16 MB is timed, the median of three rounds on the
    slowest rank after a warm-up round. bandwidth_mb_s is what each rank sends in a ring, 2 (n - 1) / n of the payload,
    per second (nccl-tests calls it bus bandwidth). Alone there is nothing to measure: backend and what follows are
    None. Raises UserError if ranks are missing, duplicate or add up wrongly.
    """
    world = dist.world_size()
    here: dict[str, Any] = {
        "rank": dist.rank(),
        "world": world,
        "host": socket.gethostname(),
        "node": os.environ.get("NODE_NAME"),
    }
    everyone = dist.gather(here)
    if [one["rank"] for one in everyone] != list(range(world)) or {one["world"] for one in everyone} != {world}:
        raise UserError(f"the ranks do not agree on who they are: {everyone}; give every pod the same number of nodes")
    hosts = sorted({one["host"] for one in everyone})
    found: dict[str, Any] = {
        "world_size": world,
        "hosts": hosts,
        "nodes": sorted({one["node"] for one in everyone if one["node"]}),
        "sum": 1,
        "expected": world * (world + 1) // 2,
    }
    if world == 1:
        return {**found, "backend": None, "megabytes": None, "seconds": None, "bandwidth_mb_s": None}
    device = torch.device("cuda" if td.get_backend() == "nccl" else "cpu")
    total = torch.tensor([float(dist.rank() + 1)], device=device)
    td.all_reduce(total)
    found["sum"] = int(total.item())
    if found["sum"] != found["expected"]:
        raise UserError(
            f"the sum over {world} ranks is {found['sum']}, it must be {found['expected']}: check the network"
        )
    seconds = _timed(torch.zeros(MEGABYTES * 250_000, device=device))
    rate = 2 * (world - 1) / world * MEGABYTES / seconds
    return {
        **found,
        "backend": td.get_backend(),
        "megabytes": MEGABYTES,
        "seconds": round(seconds, 4),
        "bandwidth_mb_s": round(rate, 1),
    }


def sentence(found: dict[str, Any]) -> str:
    """Return what `prove` found in one line."""
    if found["world_size"] == 1:
        return f"ranks: 1, alone on {found['hosts'][0]}"
    return (
        f"ranks: {found['world_size']} {where(found['hosts'], found['nodes'])} by {found['backend']}: "
        f"their sum is {found['sum']} as it must be; all-reduce of {found['megabytes']} MB in {found['seconds']:.3f} s, "
        f"{found['bandwidth_mb_s']:.0f} MB/s"
    )


def _timed(payload: torch.Tensor) -> float:
    """Return the seconds of one all-reduce of `payload` on the slowest rank."""
    rounds: list[float] = []
    for _ in range(ROUNDS + 1):
        dist.barrier()
        began = time.perf_counter()
        td.all_reduce(payload)
        if payload.is_cuda:
            torch.cuda.synchronize()
        rounds.append(time.perf_counter() - began)
    return float(max(sorted(own)[len(own) // 2] for own in dist.gather(rounds[1:])))
