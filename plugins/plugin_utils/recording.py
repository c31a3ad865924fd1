"""What a cluster reported over time, changes only, and the same as sequences of statuses that a test can replay.

The sequences have the format of tests/api_server/statuses: there, a step's source is a line of an operator's code; here it is
the line of changes.jsonl in the same bundle. What is written down is cleaned of secrets, by the name of a key and by form: when in
doubt, it is removed.
"""

from __future__ import annotations

import io
import json
import os
import re
import tarfile
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ansible.errors import AnsibleActionFail

from .kube import Json

REMOVED = "REMOVED"
NAMES = r"token|passw|pwd|secret|auth|dockerc|credential|cookie|(?:api|access|private)[_-]?key"
KEY = re.compile(rf"{NAMES}|_KEY$", re.IGNORECASE)
PEM = r"-----{}[A-Z0-9 ]+-----"
WHOLE = (
    # a log may begin or end within a block
    re.compile(rf"\A(?:(?!{PEM.format('BEGIN ')}).)*?{PEM.format('END ')}", re.DOTALL),
    re.compile(rf"{PEM.format('BEGIN ')}.*?(?:{PEM.format('END ')}|\Z)", re.DOTALL),
    re.compile(r"LS0tLS1CRUdJTi[\w+/=-]*"),  # the same in base64
    re.compile(r"\beyJ[\w+/=-]{8,}(?:\.[\w=-]+)*"),  # a JWT, and JSON in base64: a pull secret
    re.compile(r"\bsha256~[\w-]+"),  # OpenShift's own tokens
    # of model hubs, NVIDIA, GitHub, GitLab, Slack and AWS
    re.compile(r"\b(?:hf_|nvapi-|gh[oprsu]_|github_pat_|glpat-|xox[a-z]-)[\w-]{8,}|\b(?:AKIA|ASIA)[A-Z0-9]{12,}"),
)
IN_PLACE = (
    re.compile(r"(?P<before>\w://)[^/\s\"']+(?P<after>@)"),  # the user of a URL
    re.compile(
        # numbers of tokens are what training reports
        r"(?<![\w.-])(?!\w*tokens[\"']?\s*[=:]\s*[\d.]+\b)"
        rf"(?P<before>(?:[\w.-]*(?:{NAMES})[\w.-]*|\w+_KEY)\\?[\"']?\s*[=:]\s*)"
        r"(?:\\\"(?:(?!\\\").)*|\"[^\"]*|'[^']*|(?:(?:Bearer|Basic)\s+)?[^\s\"'\\]+)(?P<after>)",
        re.IGNORECASE,
    ),
    re.compile(rf"(?P<before>--[\w-]*(?:{NAMES})[\w-]*\s+)[^\s-]\S*(?P<after>)", re.IGNORECASE),
    re.compile(r"(?P<before>\b(?:Bearer|Basic)\s+)[\w.~+/=-]{8,}(?P<after>)"),
)
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


def clean_text(text: str) -> str:
    """Return the text without anything that has the form of a secret."""
    for form in WHOLE:
        text = form.sub(REMOVED, text)
    for form in IN_PLACE:
        text = form.sub(rf"\g<before>{REMOVED}\g<after>", text)
    return text


def clean(data: Any) -> Any:
    """Return data of the API without secrets; what is below a key that names one goes as a whole."""
    if isinstance(data, dict):
        secret = "value" in data and KEY.search(str(data.get("name", "")))  # an environment variable
        return {
            key: REMOVED
            if _is_secret(value) and (KEY.search(str(key)) or (secret and key == "value"))
            else clean(value)
            for key, value in data.items()
        }
    if isinstance(data, list):
        return [clean(item) for item in data]
    return clean_text(data) if isinstance(data, str) else data


def _is_secret(value: Any) -> bool:
    """Tell whether a value may be a secret: an empty one and a switch are none."""
    return not isinstance(value, bool) and bool(value)


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
    """An object in one pass: `fields` holds `status` and, for nodes, `labels`; `file` is the file of its sequence, empty: none."""

    place: Place
    fields: Json
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
        fields: Json = clean(still(seen.fields))
        text = json.dumps(fields, sort_keys=True)
        if self._last.get(seen.place) == text:
            return False
        self._last[seen.place] = text
        self._append(seconds, stamp, seen.place, fields)
        if seen.file:
            step = {"source": f"{CHANGES}:{len(self.lines)}", "at": round(seconds, 1)} | fields
            self._steps[seen.file].setdefault(seen.place, []).append(step)
        return True

    def gone(self, seconds: float, stamp: str, kinds: set[str], present: set[Place]) -> bool:
        """Append that objects are no longer there; only for kinds that were listed in this pass."""
        left = [place for place in self._last if place.kind in kinds and place not in present]
        for place in left:
            del self._last[place]
            self._append(seconds, stamp, place, {"gone": True})
        return bool(left)

    def _append(self, seconds: float, stamp: str, place: Place, fields: Json) -> None:
        line = {"at": round(seconds, 1), "time": stamp, **place._asdict(), **fields}
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


def still(data: Any) -> Any:
    """Return the data without stamps that change by themselves."""
    if isinstance(data, dict):
        return {key: still(value) for key, value in data.items() if key not in VOLATILE}
    return [still(item) for item in data] if isinstance(data, list) else data


def write_bundle(archive: Path, files: dict[str, str]) -> None:
    """Write the files, by their path in it, below a folder named like the archive; only its owner may read it.

    AnsibleActionFail where that is not possible.
    """
    try:
        _write_bundle(archive, files)
    except OSError as error:
        raise AnsibleActionFail(
            f"collect_dest: {archive.parent}: the bundle cannot be written there ({error.strerror}); name a folder that can be written"
        ) from error


def _write_bundle(archive: Path, files: dict[str, str]) -> None:
    archive.parent.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=archive.parent, prefix=f".{archive.name}.")  # mode 0600
    with os.fdopen(handle, "wb") as stream, tarfile.open(fileobj=stream, mode="w:gz") as made:
        for name, text in sorted(files.items()):
            content = text.encode("utf-8")
            info = tarfile.TarInfo(f"{archive.name.removesuffix('.tar.gz')}/{name}")
            info.size, info.mtime = len(content), int(time.time())
            made.addfile(info, io.BytesIO(content))
    Path(part).replace(archive)
