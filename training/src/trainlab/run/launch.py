"""Start a run: find everything that can be wrong before the first rank starts, then hand over to torchrun.

Called by the CLI: `trainlab run`, once per pod, or once on one machine. Without GPUs torchrun forks the ranks from this process,
which has imported what they need (8 CPU-seconds each). With GPUs it runs the same command line again in every rank, as CUDA does
not survive a fork. Both enter run/worker.py.
"""

import argparse
import ctypes
import gc
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainlab import recipes
from trainlab.config import LanguagePhase, Phase
from trainlab.config.loading import of_command, run_name
from trainlab.config.types import quantity
from trainlab.engine import checkpoints, gpus, trackers
from trainlab.errors import LOST_PEER, STOPPED, UserError
from trainlab.evaluation import tasks
from trainlab.models import parents
from trainlab.recipes.base import Run
from trainlab.run import attempts, identity, results, resuming

# Read when a process starts, so set here, before torchrun starts the ranks; a value set by the user wins.
RANK_ENVIRONMENT = {
    "OMP_WAIT_POLICY": "PASSIVE",  # waiting threads yield the core: ranks share cores
    # glibc mmaps each tensor above 32 MiB anew: 220,000 page faults and a quarter of the CPU time per step of the local
    # survival phase (1.9 s with, 1.5 s without; peak memory 2.45 and 2.54 GB). So big blocks stay on the heap.
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "100000000000",
}
HEAP = {"MALLOC_MMAP_MAX_": (-4, 0), "MALLOC_TRIM_THRESHOLD_": (-1, -1)}
"""The same for a process that runs already: options and values of mallopt(3), whose -1 stands for no trimming."""
RANK_THREADS = "TRAINLAB_RANK_THREADS"
"""OpenMP threads of a forked rank; its launcher has one."""
REPORTED_FIRST = 10.0
"""Seconds that a pod whose peer is gone waits before it ends: where the peer ended with an error, its end is the job's."""
# torchrun options (--standalone in its parts). Without an address the ranks resolve this machine's hostname, and hang if neither
# DNS nor a file has it.
INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
"""Set in the pods of a TrainJob, by the Job that JobSet makes."""
ONE_MACHINE = ("--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", "--nnodes=1", "--local-addr=127.0.0.1")
FETCH_ERROR = "TRAINLAB_FETCH_ERROR"
FORKED_LOG = "torch.distributed.elastic.multiprocessing.api"


@contextmanager
def report_fetch_error() -> Iterator[None]:
    """Write what a block raises into the file that the environment names; without one it is raised.

    So the pod's first container, `trainlab fetch`, tells its second, `trainlab run`, in a file of their common volume. The training
    operator sees the exit code of the second one only. It takes a pod whose first one failed for one that is lost, and makes it again
    without end (training-operator 1.9.4, pkg/controller.v1/common/pod.go, exitCode). So the first one ends well, and the second one
    with the error.
    """
    path = os.environ.get(FETCH_ERROR)
    try:
        yield
    except Exception as error:
        if not path:
            raise
        if not isinstance(error, UserError):
            traceback.print_exc()
        print(f"error: {error}", file=sys.stderr)
        Path(path).write_text(str(error) or type(error).__name__, encoding="utf-8")


def raise_fetch_error() -> None:
    """Raise UserError with what the first container told."""
    path = Path(os.environ.get(FETCH_ERROR) or os.devnull)
    if path.is_file():
        raise UserError(path.read_text(encoding="utf-8"))


def launch(args: argparse.Namespace) -> int:
    """Check values, model, data and folders, then run the ranks of this pod (or machine); return the exit code."""
    values = of_command(args)
    raise_fetch_error()
    phase = values.phase
    out = args.out or (Path(os.environ["OUTPUT_DIR"]) if os.environ.get("OUTPUT_DIR") else None)
    if out is None:
        raise UserError("--out is missing: name the folder of run directories, or set OUTPUT_DIR")
    run_dir = out / (args.run or run_name(phase, os.environ))
    identity.refuse_other_phase(run_dir, phase)
    recipe = recipes.get_recipe(phase)
    data_dir = recipe.data_dir(phase, args.models, args.data)
    report_to = trackers.chosen(args.report_to, values.site.report_to)
    model_dir = parents.model_dir(phase, args.models, run_dir)
    run = Run(phase, run_dir, model_dir, data_dir, args.models, report_to=report_to)
    if "TORCHELASTIC_RUN_ID" in os.environ:
        from trainlab.run.worker import rank_main

        rank_main(run)
    trackers.check(report_to)
    set_environment(phase, args.processes)
    if isinstance(phase, LanguagePhase) and phase.parent:
        parents.adopt(phase, out, run_dir)
    preflight(run)
    if isinstance(phase, LanguagePhase) and phase.tasks:
        tasks.load(phase, args.models)
    # With several pods all ranks rendezvous first: a worker whose master has already exited would wait for it in vain.
    if results.finished(run_dir) and int(os.environ.get("PET_NNODES", "1")) == 1:
        identity.refuse_other_inputs(run_dir, recipe.origin(phase, run.model_dir, data_dir, args.models))
        checkpoints.drop(run_dir, print)  # of a run that was killed before it could
        print(results.COMPLETE.format(run_dir), flush=True)
        return 0
    if not results.finished(run_dir):
        resuming.take_up(run, _world(phase, args.processes), _first(), _say)
    return _attempt(run, args)


def _attempt(run: Run, args: argparse.Namespace) -> int:
    """Train until the end or the first loss; return the exit code, from 128 on only where a restart may follow."""
    operator, run_dir, restarts = _operator(), run.run_dir, run.phase.resources.restarts
    allowed = restarts if operator and restarts else None
    first = _first()
    if first and not results.finished(run_dir):
        with checkpoints.explained_if_full(run_dir / "checkpoints", attempts.FILE):
            line = attempts.begin(run_dir, allowed)
        if line:
            _say(line)
    last = allowed is not None and attempts.is_last(run_dir, allowed)  # now: later it may be the next attempt's
    try:
        code = _torchrun(run, args)
    except UserError as error:  # before any rank
        if first:
            attempts.end(run_dir, int(getattr(error, "code", 2)))
        raise
    # JobSet, which ends the pods that are left of a job that lost one, counts that itself; a PyTorchJob's operator ends none then.
    stopped = code == STOPPED or (code == LOST_PEER and INDEX_VARIABLE not in os.environ)
    if code == LOST_PEER:
        if not operator:
            return 1
        if _ended_within(REPORTED_FIRST):
            code = STOPPED
    if code >= attempts.LOSSES and code != STOPPED and last and allowed is not None:
        print(f"error: {attempts.used_up(allowed)}", file=sys.stderr)
        code = attempts.UsedUp.code
    if first and (code < attempts.LOSSES or (code == STOPPED and stopped)):
        attempts.end(run_dir, code)
    return code


def _ended_within(seconds: float) -> bool:
    """Wait for the end of the pod, that long; torchrun has left a handler, which would end the wait with a traceback."""
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *__: ended.set())
    return ended.wait(seconds)


def preflight(run: Run) -> None:
    """Raise UserError for a missing model, broken data, or a folder that cannot be written."""
    recipes.get_recipe(run.phase).preflight(run.phase, run.model_dir, run.data_dir, run.models)
    run_dir = run.run_dir
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"--out {run_dir.parent}: cannot be written: {error.strerror}; name a writable folder"
        ) from None
    if not os.access(run_dir, os.W_OK):
        raise UserError(f"{run_dir}: not writable by user {os.getuid()}; fix its owner or mode")


def set_environment(phase: Phase, processes: int | None) -> None:
    """Set what torch, OpenMP and the heap read when they are loaded: here for forked ranks, and for those that start anew.

    `processes` is --processes. With GPUs the number of ranks, and so of their threads, is known after torch has counted them.
    """
    for name, value in RANK_ENVIRONMENT.items():
        if name in HEAP and name not in os.environ and hasattr(libc := ctypes.CDLL(None), "mallopt"):
            libc.mallopt(*HEAP[name])
        os.environ.setdefault(name, value)
    if phase.resources.gpus_per_node == 0:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # 0 GPUs means the CPU, even on a machine with a GPU
        _limit_threads(phase, _count(phase, processes))
        # A rank that is forked from a process whose OpenMP threads have run waits for them forever: they are not forked with it.
        os.environ[RANK_THREADS], os.environ["OMP_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"], "1"


def _operator() -> bool:
    """True in a pod of the training operator, which says how many there are."""
    return "PET_NNODES" in os.environ


def _first() -> bool:
    """True in the first pod, or on one machine."""
    return int(os.environ.get("PET_NODE_RANK", "0")) == 0


def _say(line: str) -> None:
    print(f"trainlab: {line}", flush=True)


def _world(phase: Phase, processes: int | None) -> int:
    """Return the ranks of the whole job."""
    if _operator():
        return phase.world_size
    if phase.resources.gpus_per_node:
        import torch

        return _count(phase, processes, torch.cuda.device_count())
    return _count(phase, processes)


def _count(phase: Phase, processes: int | None, gpus: int = 0) -> int:
    """Return the ranks of this node; `gpus` is what torch sees."""
    if _operator():
        return phase.resources.processes_per_node
    return processes or (gpus if phase.resources.gpus_per_node else phase.world_size)


def _torchrun(run: Run, args: argparse.Namespace) -> int:
    """Run this node's ranks with torchrun; nodes, rank and address come from PET_* when an operator set them."""
    import torch
    from torch.distributed import DistError
    from torch.distributed import run as torchrun
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous import RendezvousError
    from torch.distributed.launcher.api import elastic_launch

    operator, phase = _operator(), run.phase
    peers = operator and int(os.environ["PET_NNODES"]) > 1
    wanted = phase.resources.gpus_per_node
    if not peers and (lack := gpus.lacking(wanted)):  # with peers the ranks tell one another
        raise UserError(lack)
    count = _count(phase, args.processes, torch.cuda.device_count() if wanted else 0)
    if phase.resources.gpus_per_node:
        _limit_threads(phase, count)
    if not operator and count != phase.world_size:
        print(f"trainlab: {count} processes instead of {phase.world_size}: the effective batch changes", flush=True)
    where = () if operator else ONE_MACHINE
    if not operator:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    options = torchrun.parse_args([*where, f"--nproc-per-node={count}", "-m", "trainlab.cli"])
    options.training_script_args = args.argv  # not parsed: argparse would take our --run for a torchrun option
    try:
        if phase.resources.gpus_per_node:
            torchrun.run(options)
        else:
            from trainlab.run.worker import forked_rank

            torch.set_num_threads(1)  # where torch was there before the environment was set
            gc.disable()  # an eighth of the time of the imports would be collections, which free nothing of what is imported
            recipes.get_recipe(phase).preload()
            gc.freeze()  # a collection in a rank would copy the pages that it shares with this process
            gc.enable()
            # It logs the end of a rank with a traceback of its own; the rank's sentence is above it.
            logging.getLogger(FORKED_LOG).addFilter(_without_traceback)
            options.start_method = "fork"
            config, *__ = torchrun.config_from_args(options)
            threads = int(os.environ[RANK_THREADS].partition(",")[0])
            elastic_launch(config, forked_rank)(run, threads)
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        if failure.exitcode == STOPPED:  # its ranks said so
            return STOPPED
        print(f"error: {ended(rank, failure.exitcode, phase)}", file=sys.stderr)
        if operator and failure.exitcode < 0:
            return 128 - failure.exitcode
        return failure.exitcode if failure.exitcode in (1, 2, LOST_PEER) else 1
    except SignalException as error:  # a deleted or evicted pod, a full node, Ctrl-C
        name = signal.Signals(error.sigval).name
        print(f"error: ended by {name}; {checkpoints.RESUMES}", file=sys.stderr)
        return 128 + int(error.sigval)
    except (DistError, RendezvousError, ConnectionError) as error:  # the launchers meet before their ranks do
        if not peers:
            raise
        print(
            f"error: no other pod to meet ({type(error).__name__}: {' '.join(str(error).split())}); {checkpoints.RESUMES}",
            file=sys.stderr,
        )
        return LOST_PEER
    return 0


def ended(rank: int, code: int, phase: Phase) -> str:
    """Return the sentence about the first rank that failed, by its exit code (below 0: a signal's number)."""
    if code >= 0:
        return f"rank {rank} exited with code {code}; see its message above"
    from trainlab.engine import dist

    name = signal.Signals(-code).name
    if name == "SIGABRT" and phase.resources.gpus_per_node and phase.world_size > 1:
        # torch's watchdog (ProcessGroupNCCL) ends the process itself when a collective takes too long: no exception to catch
        minutes = dist.wait_limit(phase.resources.timeout_minutes).total_seconds() / 60
        why = (
            f"with GPUs also the end of a wait of {minutes:g} minutes for another rank, whose pod or node is gone, or hangs; "
            "see the messages of the other pods"
        )
    else:
        why = "its memory ran out (phase.resources.memory), or something ended it" if name == "SIGKILL" else "see above"
    return f"rank {rank} was ended by {name}: {why}; {checkpoints.RESUMES}"


def _limit_threads(phase: Phase, ranks: int) -> None:
    """Divide this node's cores among its ranks; a pod also stays within its CPU request."""
    setting = os.environ.get("OMP_NUM_THREADS")
    if setting is not None and not (setting.partition(",")[0].strip().isdecimal() and int(setting.partition(",")[0])):
        raise UserError(f"OMP_NUM_THREADS is {setting}: give a number of threads from 1, or unset it")
    if setting is None:
        request = quantity(phase.resources.cpu) if _operator() and not phase.resources.gpus_per_node else None
        os.environ["OMP_NUM_THREADS"] = str(threads(ranks, request))


def threads(local_ranks: int, cpu_request: float | None) -> int:
    """Return the OpenMP threads of one rank: its share of this node's cores.

    A pod does not see its neighbors, so its CPU request caps the share; without one (local processes) only
    `local_ranks` counts.
    """
    cores = float(len(os.sched_getaffinity(0)))
    if cpu_request is not None:
        cores = min(cores, max(1.0, cpu_request))
    return max(1, int(cores / local_ranks))


def _without_traceback(record: logging.LogRecord) -> bool:
    record.exc_info = None
    return True
