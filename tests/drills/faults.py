"""What can be lost during a training: a small table of faults; each strikes a run in progress and returns what it did."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from drills.place import Place

SECONDS_AWAY = 30.0


@dataclass(frozen=True)
class Fault:
    """What strikes, and how often the run has to start again for it."""

    strike: Callable[[Place, random.Random], str]
    restarts: int


def rank_killed(place: Place, dice: random.Random) -> str:
    """Kill one rank with -9."""
    rank = dice.choice(sorted(place.ranks()))
    os.kill(place.ranks()[rank], signal.SIGKILL)
    return f"rank {rank}"


def pod_deleted(place: Place, dice: random.Random) -> str:
    """Delete one pod, with its 30 seconds to end or without."""
    pod, grace = dice.choice(place.pods()), dice.choice((0, 30))
    more = ("--force",) if grace == 0 else ()
    place.kubectl("delete", "pod", pod, f"--grace-period={grace}", "--wait=false", *more)
    return f"{pod.rsplit('-', 2)[-2]}-{pod.rsplit('-', 1)[-1]}, grace {grace} s"


def api_away(place: Place, dice: random.Random) -> str:
    """Stop the API server's process for 30 seconds: connections stay open and nobody answers."""
    pid = next(processes("kube-apiserver", place.services))
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(SECONDS_AWAY)
    finally:
        os.kill(pid, signal.SIGCONT)
    return f"{SECONDS_AWAY:.0f} s"


def operators_restarted(place: Place, dice: random.Random) -> str:
    """Delete the pods of the operators that watch the job."""
    place.kubectl("delete", "pods", "--all", "--wait=false", namespace=place.operator)
    return place.operator


def processes(program: str, word: str) -> Iterator[int]:
    """Yield the processes of a program with `word` in their command lines."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if program in line.split(" ")[0] and word in line:
                yield int(folder.name)


FAULTS = {
    "rank killed": Fault(rank_killed, 1),
    "pod deleted": Fault(pod_deleted, 1),
    "API server away": Fault(api_away, 0),
    "operator restarted": Fault(operators_restarted, 0),
}
