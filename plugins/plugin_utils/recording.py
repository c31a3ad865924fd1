"""What a cluster reported over time, changes only, and the same as sequences of statuses that a test can replay.

The sequences have the format of tests/api_server/statuses: there, a step's source is a line of an operator's code; here it is
the line of changes.jsonl in the same bundle.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, NamedTuple

from .redaction import clean

Json = dict[str, Any]
CHANGES = "changes.jsonl"
VOLATILE = {
    "lastTransitionTime",
    "lastHeartbeatTime",
    "lastProbeTime",
    "lastUpdateTime",
    "lastUpdated",
    "lastTransition",
}
"""Stamps that operators renew without anything having changed."""


class Place(NamedTuple):
    """Which object."""

    kind: str
    namespace: str
    name: str

    @property
    def full_name(self) -> str:
        """Namespace, where there is one, and name."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True)
class Seen:
    """An object in one pass: `found` holds `status` and, for nodes, `labels`; `file` is the file of its sequence, empty: none."""

    place: Place
    found: Json
    file: str = ""


class Recording:
    """Changes, in their order; everything that goes in is cleaned of secrets."""

    def __init__(self) -> None:
        """Nothing was seen."""
        self.lines: list[str] = []
        self._last: dict[Place, str] = {}
        self._steps: dict[str, dict[Place, list[Json]]] = defaultdict(dict)

    def see(self, seconds: float, stamp: str, seen: Seen) -> bool:
        """Append what an object reports if it differs from the last time; tell whether it did."""
        found: Json = clean(still(seen.found))
        text = json.dumps(found, sort_keys=True)
        if self._last.get(seen.place) == text:
            return False
        self._last[seen.place] = text
        self._append(seconds, stamp, seen.place, found)
        if seen.file:
            step = {"source": f"{CHANGES}:{len(self.lines)}", "at": round(seconds, 1)} | found
            self._steps[seen.file].setdefault(seen.place, []).append(step)
        return True

    def gone(self, seconds: float, stamp: str, kinds: set[str], present: set[Place]) -> bool:
        """Append that objects are no longer there; only for kinds that were listed in this pass."""
        left = [place for place in self._last if place.kind in kinds and place not in present]
        for place in left:
            del self._last[place]
            self._append(seconds, stamp, place, {"gone": True})
        return bool(left)

    def _append(self, seconds: float, stamp: str, place: Place, found: Json) -> None:
        line = {"at": round(seconds, 1), "time": stamp, **place._asdict(), **found}
        self.lines.append(json.dumps(line))

    def files(self, bundle: str) -> dict[str, Json]:
        """Return the documents by file name: a sequence for each object, named by its kind, namespace and name."""
        return {
            file: {
                "bundle": bundle,
                "sequences": {f"{place.kind}, {place.full_name}": steps for place, steps in places.items()},
            }
            for file, places in self._steps.items()
        }


def still(thing: Any) -> Any:
    """Return the data without stamps that change by themselves."""
    if isinstance(thing, dict):
        return {key: still(value) for key, value in thing.items() if key not in VOLATILE}
    return [still(one) for one in thing] if isinstance(thing, list) else thing
