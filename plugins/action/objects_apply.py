"""Applies a whole set of documents of one owner: one list per kind, one request for each object that differs.

Everything carries an owner label and the hash of the document that made it. A repeated run lists each kind once, so a
set of 400 unchanged objects costs a dozen requests. A namespace of the set that exists without the label belongs to
somebody else, and so does, with `namespace`, every other such object: nothing is applied then. What no document names any
more is deleted in `namespace`, and without one only for the attendees whose Namespaces are in the set.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from ansible.errors import AnsibleActionFail

from ..plugin_utils import labels
from ..plugin_utils.documented import ClusterAction
from ..plugin_utils.kube import NOT_FOUND, ApiError, Json, Unreachable
from ..plugin_utils.platform_api import failure, plain, title
from ..plugin_utils.removing import remove
from ..plugin_utils.waiting import StatusLines

SHOWN = 5
FORBIDDEN = 403
REMOVE_SECONDS, POLL_SECONDS = 120.0, 1.0


class ActionModule(ClusterAction):
    """Applies what differs from the document or its hash."""

    OPERATION = "applying the objects of {owner}"

    def run_on_cluster(self, args: Json) -> Json:
        """Apply; returns changed, objects (a line for each that was changed) and the number of requests."""
        self._owner, self._namespace = args["owner"], args["namespace"]
        refuse_other_types(args["documents"])
        documents = [_marked(each, self._owner) for each in args["documents"]]
        if args["prune"] and not (self._namespace or _attendees(documents)):
            raise AnsibleActionFail(
                "objects_apply: prune is set without namespace, and no Namespace of the documents has label "
                f"{labels.ATTENDEE}, so nothing bounds it; set the namespace to prune, or leave prune out"
            )
        there = self._there(documents, args["prune"])
        left = self._unnamed(documents, there) if self._namespace or args["prune"] else []
        lines = self._all(documents, there) + self._remove(left)
        return {"changed": bool(lines), "objects": lines, "requests": self.api.requests}

    def _there(self, documents: list[Json], prune: list[Json]) -> dict[tuple[str, str, str], Json]:
        """Return the owner's objects of all kinds of the set; within one namespace, others' of the same name are refused."""
        there: dict[tuple[str, str, str], Json] = {}
        foreign: list[str] = []
        wanted = {_key(each) for each in documents}
        kinds = dict.fromkeys((each["apiVersion"], each["kind"]) for each in documents)
        for api_version, kind in kinds | dict.fromkeys((each["apiVersion"], each["kind"]) for each in prune):
            path = self.api.path(api_version, kind, self._namespace)
            if path is None:
                if (api_version, kind) not in kinds:
                    continue
                raise ApiError(
                    NOT_FOUND, f"the cluster does not serve {api_version} {kind}; is its operator installed?"
                )
            for one in self._items(path, (api_version, kind) in kinds):
                typed = one | {"apiVersion": api_version, "kind": kind}
                if (one["metadata"].get("labels") or {}).get(labels.OWNER) == self._owner:
                    there[_key(typed)] = typed
                elif _key(typed) in wanted:
                    foreign.append(title(typed))
        if foreign:
            raise AnsibleActionFail(
                f"{', '.join(foreign[:SHOWN])}{', ...' if len(foreign) > SHOWN else ''} "
                f"{'is' if len(foreign) == 1 else 'are'} there without label {labels.OWNER}={self._owner}, so somebody else "
                f"made {'it' if len(foreign) == 1 else 'them'}; delete or label, or leave that part out; nothing was applied"
            )
        return there

    def _items(self, path: str, applied: bool) -> list[Json]:
        try:
            return self.api.items(path, "" if self._namespace else f"{labels.OWNER}={self._owner}")
        except ApiError as error:
            if error.status != FORBIDDEN or applied:
                raise
            return []  # a user who may not list a kind has not created any of it

    def _unnamed(self, documents: list[Json], there: dict[tuple[str, str, str], Json]) -> list[Json]:
        """Return the owner's objects that no document names, without a namespace those of the attendees in the documents."""
        wanted = {_key(each) for each in documents}
        left = [one for key, one in there.items() if key not in wanted]
        if self._namespace:
            return left
        asked = _attendees(documents)
        known = _attendees(there.values()) | asked
        return [one for one in left if one["kind"] != "Namespace" and _space(one, known) in asked]

    def _remove(self, left: list[Json]) -> list[str]:
        if not self.check:
            remove(self.api, left, REMOVE_SECONDS, POLL_SECONDS, StatusLines())
        return [f"{'would delete' if self.check else 'deleted'}: {title(one)}" for one in left]

    def _all(self, documents: list[Json], there: dict[tuple[str, str, str], Json]) -> list[str]:
        spaces = [each for each in documents if each["kind"] == "Namespace" and _key(each) not in there]
        self._refuse_foreign(spaces)
        absent = {each["metadata"]["name"] for each in spaces}
        lines = []
        for document in documents:
            before = there.get(_key(document))
            if before is not None and _as_wanted(document, before):
                continue
            done = self._one(document, before, absent)
            if done:
                lines.append(f"{done}: {title(document)}")
        return lines

    def _refuse_foreign(self, spaces: list[Json]) -> None:
        foreign = [
            name for each in spaces if self.api.look("v1", "Namespace", name := each["metadata"]["name"]) is not None
        ]
        if foreign:
            raise AnsibleActionFail(
                f"not created by this play, as label {labels.OWNER}={self._owner} is missing: namespace "
                f"{', '.join(foreign[:SHOWN])}{', ...' if len(foreign) > SHOWN else ''}; choose other names, or delete what is "
                "there; nothing was applied"
            )

    def _one(self, document: Json, before: Json | None, absent: set[str]) -> str:
        metadata = document["metadata"]
        if self.check and metadata.get("namespace") in absent:
            return "would create"
        path = self.api.path(document["apiVersion"], document["kind"], metadata.get("namespace", ""), metadata["name"])
        try:
            after = self.api.apply(str(path), document, dry_run=self.check)
        except (ApiError, Unreachable) as error:
            if self.check and before is None and isinstance(error, ApiError) and error.status == NOT_FOUND:
                return "would create"  # its namespace would have been created before
            raise failure(error, title(document)) from error
        if before is not None and plain(before) == plain(after):  # e.g. the quantity 1000m, which is stored as 1
            return ""
        return f"{'would ' if self.check else ''}{'create' if before is None else 'change'}{'' if self.check else 'd'}"


def refuse_other_types(documents: list[Json]) -> None:
    """Raise AnsibleActionFail, before anything is applied, for a name, label or annotation that is no text."""
    for each in documents:
        metadata = each["metadata"]
        texts = {key: metadata[key] for key in ("name", "namespace") if key in metadata}
        for part in ("labels", "annotations"):
            texts |= {f"{part}.{key}": value for key, value in (metadata.get(part) or {}).items()}
        for key, value in texts.items():
            if not isinstance(value, str):
                raise AnsibleActionFail(
                    f"{each['kind']} {metadata['name']}: metadata.{key} is {json.dumps(value)}, which is no text; put it in "
                    "quotes; nothing was applied"
                )


def _marked(document: Json, owner: str) -> Json:
    """The document with owner label and hash."""
    metadata = document["metadata"]
    digest = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:16]
    marks = {
        "labels": (metadata.get("labels") or {}) | {labels.OWNER: owner},
        "annotations": (metadata.get("annotations") or {}) | {labels.APPLIED: digest},
    }
    return document | {"metadata": metadata | marks}


def _key(document: Json) -> tuple[str, str, str]:
    metadata = document["metadata"]
    return document["kind"], metadata.get("namespace", ""), metadata["name"]


def _attendees(things: Iterable[Json]) -> dict[str, str]:
    """Return the attendee of each Namespace that is one's."""
    spaces = [one["metadata"] for one in things if one["kind"] == "Namespace"]
    return {one["name"]: name for one in spaces if (name := (one.get("labels") or {}).get(labels.ATTENDEE))}


def _space(one: Json, known: dict[str, str]) -> str:
    """Return the attendee's namespace that an object is in or, outside of them, whose name its own ends with; empty without one.

    The label alone does not tell: two attendees have the same name where the prefixes of their namespaces differ.
    """
    metadata = one["metadata"]
    who = (metadata.get("labels") or {}).get(labels.ATTENDEE)
    if not who:
        return metadata["namespace"] if metadata.get("namespace") in known else ""
    return max(
        (space for space, name in known.items() if name == who and metadata["name"].endswith(f"-{space}")),
        key=len,
        default="",
    )


def _as_wanted(wanted: Any, found: Any, top: bool = True) -> bool:
    """Tell whether each field of the document has its value; the server adds fields of its own."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(
            _as_wanted(value, found.get(key), top=False)
            for key, value in wanted.items()
            if not (top and key in ("apiVersion", "kind"))  # the API server's lists omit them
        )
    if isinstance(wanted, list):
        return (
            isinstance(found, list)
            and len(wanted) == len(found)
            and all(_as_wanted(*pair, top=False) for pair in zip(wanted, found, strict=True))
        )
    return bool(wanted == found)
