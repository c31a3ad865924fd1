"""What can be lost during a training: a small table of faults; each strikes a run in progress and returns what it did."""

from __future__ import annotations

import os
import random
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from api_server import killing

from drills import node, volume
from drills.place import CLAIM, PATIENCE, RANKS, Place

SECONDS_AWAY = 30.0
SECONDS_OFF = 60.0
"""Longer than it takes Kubernetes to call a node NotReady (50 s), shorter than it takes to give up its pods (5 minutes)."""
FROZEN, GOING = 0.9, 0.1
"""Seconds of each second in which a slow etcd stands and goes."""
FULL = "the volume is full while"
"""Of the trainer's sentence."""


class WrongError(Exception):
    """Something in between went otherwise than it must, whatever the weights are in the end."""


@contextmanager
def installed(place: Place) -> Iterator[None]:
    """Train by Helm."""
    place.install()
    yield


@contextmanager
def on_the_second_node(place: Place) -> Iterator[None]:
    """Train by Helm; a single pod comes to the node that can be stopped, for the first one has the API server."""
    place.cordon("n1", place.pods_wanted == 1)
    try:
        place.install()
        yield
    finally:
        place.cordon("n1", False)


@contextmanager
def played(place: Place) -> Iterator[None]:
    """Train by playbooks/train.yml."""
    with tempfile.TemporaryDirectory() as folder:
        place.playbook = place.play(Path(folder) / "train.log")
        place.said = Path(folder) / "train.log"
        yield


@contextmanager
def on_a_small_volume(place: Place) -> Iterator[None]:
    """Train by Helm on a volume that can be full."""
    place.claim()
    with volume.small(CLAIM):
        place.install()
        try:
            yield
        finally:
            place.uninstall()


@dataclass(frozen=True)
class Fault:
    """What strikes, how often the run has to start again for it, how it begins, and what has to hold in the end."""

    strike: Callable[[Place, random.Random], str]
    restarts: int
    begun: Callable[[Place], AbstractContextManager[None]] = installed
    ended: Callable[[Place], str] = lambda place: ""
    """What was wrong in between, once the job has ended."""


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


def node_stopped(place: Place, dice: random.Random) -> str:
    """Kill all that runs on the second node, its kubelet first, and start the node again after a minute."""
    node.off("n2")
    try:
        time.sleep(SECONDS_OFF)
    finally:
        node.on("n2")
    return f"n2, {SECONDS_OFF:.0f} s"


def api_away(place: Place, dice: random.Random) -> str:
    """Stop the API server's process for 30 seconds: connections stay open and nobody answers."""
    pid = node.process("n1", "kube-apiserver")
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(SECONDS_AWAY)
    finally:
        os.kill(pid, signal.SIGCONT)
    return f"{SECONDS_AWAY:.0f} s"


def etcd_slow(place: Place, dice: random.Random) -> str:
    """Let etcd run a tenth of the time for 30 seconds: each request of the API server waits for it."""
    pid, end = node.process("n1", "etcd"), time.monotonic() + SECONDS_AWAY
    while time.monotonic() < end:
        os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(FROZEN)
        finally:
            os.kill(pid, signal.SIGCONT)
        time.sleep(GOING)
    return f"{SECONDS_AWAY:.0f} s at a tenth"


def operators_restarted(place: Place, dice: random.Random) -> str:
    """Delete the pods of the operators that watch the job."""
    place.kubectl("delete", "pods", "--all", "--wait=false", namespace=place.operator)
    return place.operator


def playbook_killed(place: Place, dice: random.Random) -> str:
    """Kill the playbook, with all that it started, while it waits, and start it again."""
    assert place.playbook and place.said, "this drill begins by the playbook"
    place.before = place.jobs()
    for pid in killing.family(place.playbook.pid):
        os.kill(pid, signal.SIGKILL)
    place.playbook.wait()
    place.playbook = place.play(place.said)
    return "while it waited"


def same_job(place: Place) -> str:
    """Nothing if the second playbook ended well with the first one's job; else what it did."""
    assert place.playbook and place.said, "this drill begins by the playbook"
    code, now = place.playbook.wait(PATIENCE), place.jobs()
    if code == 0 and len(now) == 1 and now == place.before:
        return ""
    return f"again: exit code {code}, jobs {place.before}, then {now}: {place.said.read_text()[-3000:]}"


def volume_full(place: Place, dice: random.Random) -> str:
    """Leave no room on the run volume until the job has failed with its sentence, then free it and train again."""
    run = place.run_dir()
    assert run, "a run in progress has a folder"
    volume.fill(run.parent)
    try:
        if (end := place.end(PATIENCE)) != "Failed":
            raise WrongError(f"on a full volume the job's end is: {end}")
        said = place.logs()
    finally:
        volume.free(run.parent)
    sentences = [line for line in said.splitlines() if FULL in line]
    if not sentences or len(set(sentences)) != len(sentences) or len(sentences) > RANKS or "Traceback" in said:
        raise WrongError(f"a full volume is not one sentence of each rank that meets it: {said[-3000:]}")
    place.uninstall()
    place.install()
    return sentences[0]


FAULTS = {
    "rank killed": Fault(rank_killed, 1),
    "pod deleted": Fault(pod_deleted, 1),
    "node stopped": Fault(node_stopped, 1, on_the_second_node),
    "API server away": Fault(api_away, 0),
    "etcd slow": Fault(etcd_slow, 0),
    "operator restarted": Fault(operators_restarted, 0),
    "playbook killed": Fault(playbook_killed, 0, played, same_job),
    "volume full": Fault(volume_full, 1, on_a_small_volume),  # by the person who makes room
}
