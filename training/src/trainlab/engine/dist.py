"""One rank's view of the job: start of the process group, a check of all ranks and their link, an end that always exits with 0.

Called by run/worker.py and the recipes. Rank, world size and addresses come from torchrun, never from here.
"""

import contextlib
import os
import socket
import sys
import time
from datetime import timedelta
from typing import Any, NoReturn, TypeVar

import torch
import torch.distributed as td

from trainlab.errors import UserError
from trainlab.progress import where

T = TypeVar("T")
MAX_WAIT = timedelta(minutes=30)
"""torch's own default with gloo, 10 with nccl: rank 0 alone writes models of tens of gigabytes."""
MEGABYTES, ROUNDS = 16, 3


def wait_limit(timeout_minutes: float) -> timedelta:
    """Return how long ranks wait for one another: less than the job may take, so that they can say that one is lost."""
    return min(MAX_WAIT, timedelta(minutes=timeout_minutes / 2))


def start(timeout_minutes: float, lacking: str | None = None) -> None:
    """Join the process group if torchrun started this process: nccl with GPUs, gloo without.

    `timeout_minutes` is what the whole job may take; `lacking` is what this rank's GPU lacks. Raises UserError on every rank if any
    rank lacks something: ranks that chose different backends would wait for one another.
    """
    lacks, limit = [lacking or ""], wait_limit(timeout_minutes)
    meet = "WORLD_SIZE" in os.environ and not td.is_initialized()
    if meet:
        store, number, world = next(td.rendezvous("env://", timeout=limit))
        store.set(f"gpu of rank {number}", f"rank {number} on {socket.gethostname()}: {lacking}" if lacking else "")
        lacks = [store.get(f"gpu of rank {each}").decode() for each in range(world)]
        store.set(f"told rank {number}", "")
        if number == 0:  # the store ends with it, or with its launcher
            store.wait([f"told rank {each}" for each in range(world)])
    if wrong := next(filter(None, lacks), None):
        raise UserError(wrong)
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    if meet:
        backend = "nccl" if torch.cuda.is_available() else "gloo"
        td.init_process_group(backend, store=store, rank=number, world_size=world, timeout=limit)


def rank() -> int:
    """Return this process's rank in the job, 0 when alone."""
    return td.get_rank() if td.is_initialized() else 0


def world_size() -> int:
    """Return the number of ranks, 1 when alone."""
    return td.get_world_size() if td.is_initialized() else 1


def is_main() -> bool:
    """True on the rank that writes artifacts."""
    return rank() == 0


def barrier() -> None:
    """Wait until every rank is here."""
    if td.is_initialized():
        # Named, as nccl else guesses the device and says so in every log (seen on one H100, torch 2.11).
        td.barrier(device_ids=[torch.cuda.current_device()] if td.get_backend() == "nccl" else None)


def gather(value: T) -> list[T]:
    """Return every rank's `value`, in rank order, on every rank; the value must pickle."""
    if not td.is_initialized():
        return [value]
    values: list[Any] = [None] * world_size()
    td.all_gather_object(values, value)
    return values


def step_parts(model: Any) -> dict[str, float] | None:
    """Return the mean seconds of this rank's steps: {forward, backward, communication, overlapped}; None if DDP does not wrap
    `model`, and for one rank, whose gradients DDP sends to itself.

    DDP logs the first ten steps and every hundredth. Communication is from the first bucket of gradients to the last one, waits for
    slower ranks included; overlapped is the part of it during which the backward pass went on.
    """
    logged = getattr(model, "_get_ddp_logging_data", None)
    if logged is None or world_size() == 1:
        return None
    names = {
        "forward": "avg_forward_compute_time",
        "backward": "avg_backward_compute_time",
        "communication": "avg_backward_comm_time",
        "overlapped": "avg_backward_compute_comm_overlap_time",
    }
    data = logged()
    return {name: data[key] / 1e9 for name, key in names.items()} if names["communication"] in data else None


def check_collectives() -> dict[str, Any]:
    """Return {world_size, hosts, nodes, backend, sum, expected, megabytes, seconds, bandwidth_mb_s}; every rank must call it.

    A pod's host is its own name; its node is NODE_NAME, which the chart sets. Elsewhere `nodes` is empty.

    Each rank adds its number plus one in an all-reduce; then one of 16 MB is timed, the median of three rounds on the
    slowest rank after a warm-up round. bandwidth_mb_s is what each rank sends in a ring, 2 (n - 1) / n of the payload,
    per second (nccl-tests calls it bus bandwidth). Alone there is nothing to measure: backend and what follows are
    None. Raises UserError if ranks are missing, duplicate or add up wrongly.
    """
    world = world_size()
    here: dict[str, Any] = {
        "rank": rank(),
        "world": world,
        "host": socket.gethostname(),
        "node": os.environ.get("NODE_NAME"),
    }
    peers = gather(here)
    if [peer["rank"] for peer in peers] != list(range(world)) or {peer["world"] for peer in peers} != {world}:
        raise UserError(f"the ranks do not agree on who they are: {peers}; give every pod the same number of nodes")
    hosts = sorted({peer["host"] for peer in peers})
    measured: dict[str, Any] = {
        "world_size": world,
        "hosts": hosts,
        "nodes": sorted({peer["node"] for peer in peers if peer["node"]}),
        "sum": 1,
        "expected": world * (world + 1) // 2,
    }
    if world == 1:
        return {**measured, "backend": None, "megabytes": None, "seconds": None, "bandwidth_mb_s": None}
    device = torch.device("cuda" if td.get_backend() == "nccl" else "cpu")
    total = torch.tensor([float(rank() + 1)], device=device)
    td.all_reduce(total)
    measured["sum"] = int(total.item())
    if measured["sum"] != measured["expected"]:
        raise UserError(
            f"the sum over {world} ranks is {measured['sum']}, it must be {measured['expected']}: check the network"
        )
    seconds = _timed(torch.zeros(MEGABYTES * 250_000, device=device))
    rate = 2 * (world - 1) / world * MEGABYTES / seconds
    return {
        **measured,
        "backend": td.get_backend(),
        "megabytes": MEGABYTES,
        "seconds": round(seconds, 4),
        "bandwidth_mb_s": round(rate, 1),
    }


def collectives_sentence(measured: dict[str, Any]) -> str:
    """Return what `check_collectives` returned in one line."""
    if measured["world_size"] == 1:
        return f"ranks: 1, alone on {measured['hosts'][0]}"
    return (
        f"ranks: {measured['world_size']} {where(measured['hosts'], measured['nodes'])} by {measured['backend']}: "
        f"their sum is {measured['sum']} as it must be; all-reduce of {measured['megabytes']} MB in {measured['seconds']:.3f} s, "
        f"{measured['bandwidth_mb_s']:.0f} MB/s"
    )


def _timed(payload: torch.Tensor) -> float:
    """Return the seconds of one all-reduce of `payload` on the slowest rank."""
    rounds: list[float] = []
    for __ in range(ROUNDS + 1):
        barrier()
        began = time.perf_counter()
        td.all_reduce(payload)
        if payload.is_cuda:
            torch.cuda.synchronize()
        rounds.append(time.perf_counter() - began)
    return float(max(sorted(own)[len(own) // 2] for own in gather(rounds[1:])))


def leave() -> None:
    """Leave the group together with the other ranks."""
    if td.is_initialized():
        barrier()
        with contextlib.suppress(RuntimeError):  # a peer that is already gone does not change this rank's result
            td.destroy_process_group()


def finish(code: int = 0) -> NoReturn:
    """Leave the group and end this process with `code`, without interpreter teardown.

    gloo in torch 2.13 and 2.15 sometimes aborts a finished process during teardown ("terminate called without an active
    exception", 10 of 81 runs), which torchrun reports as a failed job. bench/clean_exit.py measures this function.
    """
    if code == 0:  # a failed rank leaves at once: torchrun then ends the others
        leave()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
