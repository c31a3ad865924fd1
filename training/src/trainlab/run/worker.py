"""What every rank of a run does, from the untuned scores to the report; started by run/launch.py under torchrun.

Rank 0 writes all artifacts, each atomically; a restarted run reuses what is complete.
"""

import ctypes
import io
import os
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import NoReturn, cast

import torch
from torch.distributed import DistError

from trainlab import files, recipes
from trainlab.engine import acceleration, checkpoints, dist, gpu_use, gpus, memory, trackers
from trainlab.errors import LOST_PEER, STOPPED, UserError
from trainlab.models import compute
from trainlab.progress import Progress
from trainlab.recipes.base import Run
from trainlab.run import attempts, identity, manifest, results
from trainlab.run.tracker import Tracker

PR_SET_NAME = 15  # prctl(2)
NAMED_FIRST = 2.0
"""Seconds that a rank waits whose peer is gone: of two that have ended torchrun names the first by number, and it looks ten times a second."""
TIMED_OUT = ("Timed out waiting", "timed out after", "Timed out after")
"""What gloo, and the store that ranks meet in, say when another rank does not answer; nccl: run/launch.py."""
LOST_PEER_SIGNS = (
    *("remote process exit", "Connection closed", "Connection was likely closed", "Connection reset by peer"),
    *("Connection refused", "Broken pipe"),
)


def forked_rank(run: Run, threads: int) -> None:
    """As rank_main in a process forked from the launcher, but return after success: torchrun waits for that.

    The launcher's handlers and buffers came with the fork, and its one OpenMP thread, of which a rank has `threads`.
    multiprocessing ends the process as dist.finish does.
    """
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ["OMP_NUM_THREADS"] = str(threads)
    torch.set_num_threads(threads)
    for stream in (sys.stdout, sys.stderr):
        cast(io.TextIOWrapper, stream).reconfigure(line_buffering=True)
    if code := _run(run):
        if code == LOST_PEER:
            time.sleep(NAMED_FIRST)
        dist.finish(code)
    dist.leave()


def rank_main(run: Run) -> NoReturn:
    """Run this rank and exit: 0 done, 1 failed on the way, 2 invalid input, 130 interrupted, LOST_PEER a peer is gone, STOPPED."""
    dist.finish(_run(run))


def _run(run: Run) -> int:
    """Return the exit code."""
    _name_process()
    where = f"rank {os.environ.get('RANK', '0')}: "
    threading.excepthook = suppress_disk_full
    try:
        asked = run.phase.resources
        dist.start(asked.timeout_minutes, gpus.lacking(asked.gpus_per_node))
        work(run)
        dist.leave()  # a peer that is lost now leaves a complete run, too: the next start says so
        code = 0
    except UserError as error:
        code = int(getattr(error, "code", 2))
        print("\n".join(f"error: {where}{line}" for line in str(error).splitlines()), file=sys.stderr)
        if code == STOPPED and dist.is_main():
            attempts.end(run.run_dir, code)
    except KeyboardInterrupt:  # Ctrl-C reaches all ranks; the launcher says what to do
        code = 130
    except BaseException as error:
        code = 1
        text = " ".join(str(error).split())
        full = checkpoints.explain_full(error, run.run_dir / "checkpoints", "a file of the run")
        if known := full or memory.exhausted(error):
            print(f"error: {where}{known}", file=sys.stderr)
        elif isinstance(error, RuntimeError) and any(sign in str(error) for sign in TIMED_OUT):
            code = LOST_PEER
            minutes = dist.wait_limit(run.phase.resources.timeout_minutes).total_seconds() / 60
            print(
                f"error: {where}no answer from another rank for {minutes:g} minutes: its pod or node is gone, or hangs; see "
                f"the messages of the other pods ({text}); {checkpoints.RESUMES}",
                file=sys.stderr,
            )
        elif isinstance(error, RuntimeError) and lost_peer(error):
            code = LOST_PEER
            print(f"error: {where}another rank exited; see its own message ({text})", file=sys.stderr)
        elif isinstance(error, DistError):
            print(
                f"error: {where}the ranks cannot reach one another: {text}; correct the network or the GPUs that it names; "
                "NCCL_DEBUG=INFO (site.env) prints what it tries",
                file=sys.stderr,
            )
        else:
            traceback.print_exc()
    return code


def _name_process() -> None:
    """Let the kernel call this process `rank N` (/proc/PID/comm), by which the drills know it: a forked rank has its launcher's environment."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "prctl"):  # on Linux
        libc.prctl(PR_SET_NAME, f"rank {os.environ.get('RANK', '0')}".encode(), 0, 0, 0)


def suppress_disk_full(failed: threading.ExceptHookArgs) -> None:
    """Print what ended a thread, but not a full volume: TensorBoard's writer passes that to the rank, which reports it."""
    if failed.exc_value is None or checkpoints.explain_full(failed.exc_value, Path(), "") is None:
        threading.__excepthook__(failed)


def lost_peer(error: BaseException) -> bool:
    """True for what gloo, nccl and the store that ranks meet in raise on the surviving ranks when one is lost."""
    return any(sign in str(error) for sign in LOST_PEER_SIGNS)


def work(run: Run) -> None:
    """Score the base model, train, score the tuned model, decide, report."""
    began, phase, run_dir = time.monotonic(), run.phase, run.run_dir
    recipe = recipes.get_recipe(phase)
    compute.set_tf32(phase)
    origin = recipe.origin(phase, run.model_dir, run.data_dir, run.models)
    if dist.gather(results.finished(run_dir))[0]:
        identity.refuse_other_inputs(run_dir, origin)
        if dist.is_main():
            checkpoints.drop(run_dir, print)
            print(results.COMPLETE.format(run_dir), flush=True)
        return
    with Progress(dist.is_main()) as progress:
        run.progress = progress
        tracker = Tracker(progress, run_dir) if dist.is_main() else None
        ranks = dist.check_collectives()
        compute.keep(dist.gather(manifest.dtype(run_dir))[0])
        record = manifest.begin(run, origin, ranks)
        progress.say(dist.collectives_sentence(ranks))
        record["gpus"], lines = gpus.check(memory.planned(phase)["planned_gib"])
        progress.peak_tokens = gpus.peak_tokens(phase)
        for line in lines:
            progress.say(line)
        if record["gpus"]:
            gpus.check_compiler(phase)
        if record["parent"]:
            progress.say("continues from run {run} of stage {stage}, weights {sha256:.12}".format(**record["parent"]))
        if dist.is_main():
            identity.refuse_other_inputs(run_dir, record)
            files.remove_leftovers(run_dir)
            files.write_json(run_dir / "phase.json", {"phase": phase.model_dump(mode="json")})
            files.write_json(run_dir / "manifest.json", record)
        run.hardware = record["hardware"]
        reported = run.report_to if tracker else ()
        with gpu_use.sampled(progress) as use, trackers.reporting(reported, phase, run_dir, progress):
            before, after = recipe.train(run)
        gpu_use.add_to_history(run_dir, use)
        record["memory"] = run.memory.report(phase)
        record["fp8"] = acceleration.chosen_fp8(run_dir)
        if tracker:
            decision = results.decide(phase, run_dir, before, after)
            files.write_json(run_dir / "gate.json", decision)
            seconds = round(time.monotonic() - began, 1)
            ended = {"attempts": attempts.summary(run_dir), "ended": manifest.now(), "seconds": seconds}
            files.write_json(run_dir / "manifest.json", {**record, **ended})
            results.write_report(run_dir)
            verdict = "promoted" if decision["promoted"] else "not promoted"
            progress.say(f"gate: {verdict}: {' '.join(decision['reasons'])}")
            # after the manifest says that the run ended: before, it would resume
            checkpoints.drop(run_dir, progress.say)
            tracker.end()
            progress.say(f"done in {seconds:.0f} s: {run_dir}")
