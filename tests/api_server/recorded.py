"""What real operators report while they come up, as data: a file in statuses/ for each operator and release.

A file names the repository and the commit that it was read from; each step, each object that the operator makes and each
denial of its webhooks names path and line there (`source`), or a `repository` and `commit` of its own. Replayed one step a
round, so that minutes take seconds.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import yaml

from api_server.client import Json

FOLDER = Path(__file__).resolve().parent / "statuses"


@functools.cache
def read(name: str) -> Json:
    """Return the file of an operator and release, e.g. `rhoai-3.4`: `sequences` by name, and `makes` and `denies` where it has them."""
    found: Json = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    return found


def entries(name: str) -> list[Json]:
    """Return all steps, objects and denials of a file, each with repository, commit and source."""
    found = read(name)
    steps = [step for steps in found["sequences"].values() for step in steps]
    origin = {key: found[key] for key in ("repository", "commit")}
    return [origin | one for one in [*steps, *found.get("makes", []), *found.get("denies", [])]]


class Replay:
    """Remembers which step each object has reached in each sequence."""

    def __init__(self) -> None:
        """No object has been seen."""
        self._reached: dict[tuple[str, str], int] = {}

    def step(self, thing: Json, steps: list[Any], sequence: str, stay: bool = False) -> Any:
        """Return the object's step and advance by one, unless it is to `stay`; the last step remains."""
        key = (thing["metadata"]["uid"], sequence)
        at = self._reached.get(key, 0)
        self._reached[key] = min(at + (not stay), len(steps) - 1)
        return steps[at]

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
