"""One rank's view of the job: start of the process group, small collectives, and an end that always exits with 0.

Called by run/worker.py and the recipes. Rank, world size and addresses come from torchrun, never from here.
"""

import contextlib
import os
import sys
from datetime import timedelta
from typing import Any, NoReturn, TypeVar

import torch
import torch.distributed as td

T = TypeVar("T")


# minutes; torch's own default with gloo, 10 with nccl: rank 0 alone writes models of tens of gigabytes
MOST_PATIENCE = 30.0


def patience_minutes(timeout_minutes: float) -> float:
    """Return how long ranks wait for one another: less than the job may take, so that they can say that one is lost."""
    return min(MOST_PATIENCE, timeout_minutes / 2)


def patience(timeout_minutes: float) -> timedelta:
    """The same as a time-out of torch."""
    return timedelta(minutes=patience_minutes(timeout_minutes))


def start(timeout_minutes: float) -> None:
    """Join the process group if torchrun started this process: nccl with GPUs, gloo without.

    `timeout_minutes` is what the whole job may take.
    """
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    if "WORLD_SIZE" in os.environ and not td.is_initialized():
        backend = "nccl" if torch.cuda.is_available() else "gloo"
        td.init_process_group(backend, timeout=patience(timeout_minutes))


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
