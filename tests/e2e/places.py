"""Places for attendees, and people who train in them at the same time, each with nothing but what was handed out; seen by an administrator."""

from __future__ import annotations

import json
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from e2e import machine
from e2e.commands import WITH_PROGRAMS, objects, playbook

Json = dict[str, Any]
POLL_SECONDS = 3.0
QUEUED = "workloads.kueue.x-k8s.io"


@contextmanager
def handed_out(folder: Path, count: int, *more: str) -> Iterator[str]:
    """Hand out places into a folder with the checkout's charts and values; yield the line that the playbook printed."""
    dest = ("-e", f"attendees_count={count}", "-e", f"attendees_dest={folder}", *more)
    for name in ("charts", "values"):
        (folder / name).symlink_to(machine.REPO / name)
    try:
        (line,) = re.findall(r"^ *(helm install .*)$", playbook("attendees", *dest), re.MULTILINE)
        yield str(line)
    finally:
        playbook("attendees", *dest, "-e", "attendees_state=absent")


def of_sheet() -> str:
    """What the attendee's sheet has the first attendee type."""
    lines = (machine.REPO / "docs" / "present" / "attendees.md").read_text(encoding="utf-8").splitlines()
    at = lines.index("export KUBECONFIG=user1.kubeconfig")
    return "\n".join(lines[at : at + 2])


@dataclass
class Attendee:
    """One person: their name, the folder with what was handed out, and when what happened, in seconds."""

    name: str
    folder: Path
    queued: bool = True
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def space(self) -> str:
        """Their namespace."""
        return f"trainlab-{self.name}"

    @property
    def environment(self) -> dict[str, str]:
        """Their kubeconfig alone, over the tests' own environment."""
        return {"KUBECONFIG": str(self.folder / f"{self.name}.kubeconfig"), **WITH_PROGRAMS}

    def run(self, *argv: str, ok: bool = True) -> str:
        """Run a program with their kubeconfig alone; return its output, nothing if it failed and may."""
        env = machine.ENVIRONMENT | self.environment
        done = subprocess.run(argv, cwd=self.folder, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0 or not ok, f"{self.name}: {argv}: {done.stdout}{done.stderr}"
        return done.stdout if done.returncode == 0 else ""

    def train(self, line: str, began: float, patience: float) -> None:
        """Run the line, follow the job through training, gate and, where there is one, queue, and ask the model."""

        def until(what: str, kind: str, name: str) -> None:
            while not any(condition(item, name) for item in self._items(kind)):
                gone = time.monotonic() - began
                assert gone < patience, f"{self.name}: not {what} after {gone:.0f} s: {self._items('pods,events')}"
                time.sleep(POLL_SECONDS)
            self.seconds[what] = round(time.monotonic() - began, 1)

        self.run("sh", "-c", line)
        self.seconds["installed"] = round(time.monotonic() - began, 1)
        if self.queued:
            until("admitted", QUEUED, "Admitted")
        until("trained", "pytorchjobs", "Succeeded")
        until("served", "inferenceservices", "Ready")
        self.run("helm", "test", "quick", "--timeout", "10m")
        self.seconds["answered"] = round(time.monotonic() - began, 1)

    def leave(self) -> None:
        """Remove all of it again."""
        self.run("helm", "uninstall", "quick")

    def _items(self, kind: str) -> list[Json]:
        """Objects of a kind as they see them; none while the server is busy."""
        said = self.run("kubectl", "-n", self.space, "get", kind, "-o", "json", ok=False)
        return json.loads(said)["items"] if said else []


def condition(item: Json, name: str) -> Json:
    """Return the condition if it is true."""
    found = item.get("status", {}).get("conditions", [])
    return next((one for one in found if one["type"] == name and one["status"] == "True"), {})


@dataclass
class Watched:
    """What an administrator saw: most jobs at once, and for each namespace when its job was created and admitted."""

    most: int = 0
    created: dict[str, str] = field(default_factory=dict)
    admitted: dict[str, str] = field(default_factory=dict)

    def look(self, workloads: list[Json]) -> None:
        """Note the state of all workloads."""
        running = [
            workload
            for workload in workloads
            if condition(workload, "Admitted") and not condition(workload, "Finished")
        ]
        self.most = max(self.most, len(running))
        for workload in workloads:
            space = workload["metadata"]["namespace"]
            self.created.setdefault(space, workload["metadata"]["creationTimestamp"])
            if admitted := condition(workload, "Admitted"):
                self.admitted.setdefault(space, admitted["lastTransitionTime"])

    def out_of_order(self) -> list[str]:
        """Namespaces whose job was admitted after one that was created later, to the second that Kubernetes notes."""
        return [
            f"{first} after {second}"
            for first in self.admitted
            for second in self.admitted
            if self.created[first] < self.created[second] and self.admitted[first] > self.admitted[second]
        ]


def trained_and_left(one: Attendee, line: str, began: float, patience: float) -> None:
    """Make room in the queue for the next."""
    one.train(line, began, patience)
    one.leave()


def together(people: list[Attendee], line: str, patience: float) -> Watched:
    """Let all train at once, each in a thread of their own, within so many seconds; return what the administrator saw."""
    watched, done, began = Watched(), threading.Event(), time.monotonic()

    def watch() -> None:
        while not done.wait(POLL_SECONDS):
            watched.look(objects(QUEUED, "default", "--all-namespaces"))

    with ThreadPoolExecutor(len(people) + 1) as pool:
        watching = pool.submit(watch)
        futures = [pool.submit(trained_and_left, person, line, began, patience) for person in people]
        try:
            for each in futures:
                each.result()
        finally:
            done.set()
        watching.result()
    return watched
