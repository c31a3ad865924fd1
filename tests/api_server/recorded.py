"""What real operators report while they come up, as data: a file in statuses/ for each operator and release.

A file names the repository and the commit that it was read from; each step, each object that the operator makes and each
denial of its webhooks names path and line there (`source`), or a `repository` and `commit` of its own. Replayed one step a
round, so that minutes take seconds.

A file may also come from a cluster: those in `statuses/` of a bundle that playbooks/collect.yml wrote name the `bundle`, and each
step its line in the bundle's changes.jsonl. bundles.py replays such a folder in the place of ours.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import yaml

from api_server.client import Json

FOLDER = Path(__file__).resolve().parent / "statuses"
ORIGINS = (
    {"repository": r"[\w.-]+/[\w.-]+", "commit": r"[0-9a-f]{40}", "source": r"[\w./-]+\.(go|yaml):\d+"},
    {"module": r"[\w./-]+@v\d+\.\d+\.\d+", "source": r"[\w./-]+\.go:\d+"},
    {"bundle": r"trainlab-collect-[0-9a-z]+-\d{8}T\d{6}Z", "source": r"changes\.jsonl:[1-9]\d*"},
)
"""Where a step may come from: an operator's code, a Go module of the embedded cluster, or a cluster."""


@functools.cache
def read(name: str, folder: Path = FOLDER) -> Json:
    """Return the file of an operator and release, e.g. `rhoai-3.4`: `sequences` by name, and `missing`, `makes`, `queues` and `denies` where it has them.

    `folder` is that of an unpacked bundle.
    """
    result: Json = yaml.safe_load((folder / f"{name}.yaml").read_text(encoding="utf-8"))
    return result


def entries(name: str, folder: Path = FOLDER) -> list[Json]:
    """Return all steps, objects and denials of a file, each with its origin: see ORIGINS."""
    found = read(name, folder)
    steps = [step for steps in found["sequences"].values() for step in steps]
    origin = {key: found[key] for key in ("repository", "commit", "bundle") if key in found}
    return [
        ({} if "module" in one else origin) | one
        for one in [*steps, *(one for key in ("missing", "makes", "queues", "denies") for one in found.get(key, []))]
    ]


def sourced(entry: Json) -> bool:
    """Tell whether an entry names where it comes from, in one of these ways."""
    return any(all(re.fullmatch(form, str(entry.get(key, ""))) for key, form in origin.items()) for origin in ORIGINS)


class Replay:
    """Remembers which step each object has reached in each sequence."""

    def __init__(self) -> None:
        """No object has been seen."""
        self._reached: dict[tuple[str, str], int] = {}

    def step(self, thing: Json, steps: list[Any], sequence: str, stay: bool = False) -> Any:
        """Return the object's step and advance by one, unless it is to `stay`; the last step remains."""
        key, at = (thing["metadata"]["uid"], sequence), self.at(thing, sequence)
        self._reached[key] = min(at + (not stay), len(steps) - 1)
        return steps[at]

    def at(self, thing: Json, sequence: str) -> int:
        """Return the index of the object's next step."""
        return self._reached.get((thing["metadata"]["uid"], sequence), 0)

    def begun(self, thing: Json, sequence: str) -> bool:
        """Tell whether the object has taken a step of this sequence."""
        return (thing["metadata"]["uid"], sequence) in self._reached

    def ended(self, thing: Json, steps: list[Any], sequence: str) -> bool:
        """Tell whether the object has reached the last step."""
        return self._reached.get((thing["metadata"]["uid"], sequence), -1) == len(steps) - 1

    def skip(self, thing: Json, steps: list[Any], sequence: str) -> None:
        """Put the object at the last step."""
        self._reached[thing["metadata"]["uid"], sequence] = len(steps) - 1

    def again(self, thing: Json, sequence: str) -> None:
        """Put the object at the first step."""
        self._reached.pop((thing["metadata"]["uid"], sequence), None)
