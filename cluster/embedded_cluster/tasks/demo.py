"""`make demo`: from a bare machine to a trained, gated, served and compared phase on the embedded cluster.

Every step is idempotent; a second run changes nothing that is already right, even after Ctrl-C or a kill.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence

from embedded_cluster.base import identity, locks, paths, processes, progress, say
from embedded_cluster.builds import build, prebuilt
from embedded_cluster.nodes import kept, layout, operators
from embedded_cluster.tasks import alone, preflight

COMMAND = [sys.executable, str(paths.PACKAGE.parent)]
CONTINUE = "make demo continues where it stopped"


class Clock:
    """Step times, for the steps' title lines and for the table at the end."""

    def __init__(self) -> None:
        """Start counting."""
        self.began = time.monotonic()
        self.path: list[tuple[str, float]] = []

    def title(self, text: str) -> None:
        """Print the line that begins a step."""
        say.line(f"\n==> {text}  ({_minutes(time.monotonic() - self.began)})")

    def table(self, children: Sequence[processes.Child]) -> None:
        """Print where the time went: the steps that ran alone or longest, and what ran in parallel with the longest."""
        total = time.monotonic() - self.began
        say.line(f"\n==> Where {_minutes(total)} went: the critical path, and what ran beside it")
        for name, seconds in self.path:
            say.info(f"{_minutes(seconds):>12}  {name}")
        longest = max(children, key=lambda child: child.seconds)
        for child in sorted(children, key=lambda child: -child.seconds):
            if child is not longest and child.seconds >= 1:
                say.info(f"{_minutes(child.seconds):>12}  ({child.name}, beside {longest.name})")


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60} min {int(seconds) % 60:02d} s"


def node_count() -> int:
    """The number of nodes that NODES sets, else that of the existing cluster."""
    asked = os.environ.get("NODES") or str(kept.count())
    if not asked.isdecimal() or not 1 <= int(asked) <= layout.MAX_NODES:
        raise say.UserError(f"NODES={asked}: give 1 to {layout.MAX_NODES}")
    return int(asked)


def run() -> int:
    """Run the whole demo and return the exit code."""
    wanted, nodes, clock = alone.phase(), node_count(), Clock()
    clock.title("Can this machine host the cluster?")
    if preflight.report(nodes):
        say.line("\n*** This machine cannot host the embedded cluster (see above). Going on WITHOUT Kubernetes. ***")
        return alone.run()
    with locks.waiting(paths.HOME / f"demo{identity.SUFFIX}.lock", "another make demo is running", seconds=0):
        kept.require(nodes)  # before anything is built
        meter = _meter(wanted)
        with meter.step("parts"):
            children = _parts(clock, wanted)
        with meter.step("cluster"):
            _cluster(clock, nodes)
        with meter.step("phase"):
            _play(clock, f"Phase {wanted}: playbooks/site.yml", "site", {"phase": wanted})
            _play(clock, "The room, where everybody asks both models: playbooks/room.yml", "room", {"phase": wanted})
    clock.table(children)
    clock.title("make demo done; make demo-down removes it all")
    return 0


PROGRAMS, IMAGE, ANSWER, CLUSTER = 640.0, 240.0, 110.0, 40.0
"""Processor seconds of what comes before the phase (docs/evidence/benchmarks.md); ANSWER is phase quick in the image's root."""
PHASES = {"quick": 140.0, "survival": 700.0}
OTHER_PHASE = 800.0
"""With the idle ones of their waits, so that the pace of what comes before holds for them."""
TELLS, MOSTLY = 0.15, 0.5
"""Shares of what Go compiles: from the first on it tells how far the parts are, unless the cache had the second before."""


def _meter(wanted: str) -> progress.Progress:
    """Return the bar, with the processor seconds of each step, of what the cache lacks."""
    missing, before = preflight.to_come(), build.compiled()
    programs = PROGRAMS * ("programs" in missing and not os.environ.get(prebuilt.VARIABLE))
    image = (IMAGE + ANSWER * (wanted != "quick")) * ("images" in missing)
    parts = programs + image + 20

    def parts_share() -> float | None:
        """By what Go has compiled, once that is enough: the image's chain, beside it, gets twice its processor seconds until it ends."""
        compiled = (build.compiled() - before) / (1 - before) * programs
        return (compiled + min(2 * compiled, image)) / parts if compiled > TELLS * programs else None

    steps = {"parts": parts, "cluster": CLUSTER, "phase": PHASES.get(wanted, OTHER_PHASE)}
    return progress.Progress(steps, measured={"parts": parts_share} if programs and before < MOSTLY else {})


def _parts(clock: Clock, wanted: str) -> list[processes.Child]:
    """Programs, Python environment and trainer image, in parallel; the first that fails ends the others."""
    clock.title("Programs from Go modules, and beside them Python and the trainer image")
    # The image is one serial chain: it has priority when both want the CPU.
    nice = ["nice", "-n", "10"]
    began = time.monotonic()
    commands = {
        "programs": [*nice, *COMMAND, "build", "--only", *operators.BASIC],
        "python": [*COMMAND, "venv"],
        # phase quick is its own first answer
        "image": [*COMMAND, "trainer-image", *([] if wanted == "quick" else ["--first-answer"])],
    }
    children = processes.together(commands, f"{CONTINUE} once that is fixed")
    longest = max(children, key=lambda child: child.seconds)
    clock.path.append((longest.name, time.monotonic() - began))
    return children


def _cluster(clock: Clock, nodes: int) -> None:
    title = f"Embedded cluster of {nodes} nodes with its operators"
    _play(clock, title, "local", {"embedded_cluster_nodes": nodes, "embedded_cluster_operators": operators.BASIC})


def _play(clock: Clock, title: str, playbook: str, variables: Mapping[str, object]) -> None:
    clock.title(title)
    began = time.monotonic()
    program = str(paths.REPO / ".venv" / "bin" / "ansible-playbook")
    code = processes.run([program, "-i", "inventory/local", f"playbooks/{playbook}.yml", "-e", json.dumps(variables)])
    if code:
        raise say.UserError(f"playbooks/{playbook}.yml failed with exit code {code}, see above; {CONTINUE}")
    clock.path.append((f"playbooks/{playbook}.yml", time.monotonic() - began))
