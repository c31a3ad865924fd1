"""Applies a whole set of documents of one owner: one look per kind, one request for each object that differs.

Everything carries an owner label and the hash of the document that made it. A repeated run lists each kind once, so a
set of 400 objects that are as they should be costs a dozen requests. A namespace of the set that exists without the
label is somebody else's: nothing is applied then.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, ClassVar

from ansible.errors import AnsibleActionFail
from ansible_collections.trainlab.rhoai.plugins.plugin_utils.cluster_action import ClusterAction
from ansible_collections.trainlab.rhoai.plugins.plugin_utils.kube import NOT_FOUND, ApiError, Json, Unreachable
from ansible_collections.trainlab.rhoai.plugins.plugin_utils.platform_api import OWNER_LABEL, failure, plain, title

HASH = "trainlab.rhoai/applied"
"""Annotation: hash of the document as it was applied; tells a field that was taken out of the document."""
SHOWN = 5


class ActionModule(ClusterAction):
    """Applies what differs from the document or its hash."""

    DOING = "applying the objects of {owner}"
    SPEC: ClassVar[Json] = {
        "owner": {"type": "str", "required": True},
        "documents": {"type": "list", "elements": "dict", "required": True},
    }

    def act(self, args: Json) -> Json:
        """Apply; returns changed, objects (a line for each that was changed) and the number of requests."""
        self._owner = args["owner"]
        lines = self._all([_marked(each, self._owner) for each in args["documents"]])
        return {"changed": bool(lines), "objects": lines, "requests": self.api.requests}

    def _all(self, documents: list[Json]) -> list[str]:
        there: dict[tuple[str, str, str], Json] = {}
        for api_version, kind in dict.fromkeys((each["apiVersion"], each["kind"]) for each in documents):
            path = self.api.path(api_version, kind)
            if path is None:
                raise ApiError(
                    NOT_FOUND, f"the cluster does not serve {api_version} {kind}; is its operator installed?"
                )
            for one in self.api.items(path, f"{OWNER_LABEL}={self._owner}"):
                there[(kind, one["metadata"].get("namespace", ""), one["metadata"]["name"])] = one
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
                f"{'namespace' if len(foreign) == 1 else 'namespaces'} {', '.join(foreign[:SHOWN])}"
                f"{', ...' if len(foreign) > SHOWN else ''} exist without label {OWNER_LABEL}={self._owner}, so somebody "
                "else made them; choose other names, or delete them; nothing was applied"
            )

    def _one(self, document: Json, before: Json | None, absent: set[str]) -> str:
        metadata = document["metadata"]
        if self.check and metadata.get("namespace") in absent:
            return "would create"
        path = self.api.path(document["apiVersion"], document["kind"], metadata.get("namespace", ""), metadata["name"])
        try:
            after = self.api.apply(str(path), document, dry_run=self.check)
        except (ApiError, Unreachable) as error:
            raise failure(error, title(document)) from error
        if before is not None and plain(before) == plain(after):  # e.g. the quantity 1000m, which is kept as 1
            return ""
        return f"{'would ' if self.check else ''}{'create' if before is None else 'change'}{'' if self.check else 'd'}"


def _marked(document: Json, owner: str) -> Json:
    """The document with owner label and hash."""
    metadata = document["metadata"]
    digest = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:16]
    labels = (metadata.get("labels") or {}) | {OWNER_LABEL: owner}
    annotations = (metadata.get("annotations") or {}) | {HASH: digest}
    return document | {"metadata": metadata | {"labels": labels, "annotations": annotations}}


def _key(document: Json) -> tuple[str, str, str]:
    metadata = document["metadata"]
    return document["kind"], metadata.get("namespace", ""), metadata["name"]


def _as_wanted(wanted: Any, found: Any, top: bool = True) -> bool:
    """Tell whether each field of the document has its value; the server adds fields of its own."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(
            _as_wanted(value, found.get(key), top=False)
            for key, value in wanted.items()
            if not (top and key in ("apiVersion", "kind"))  # lists of the API server leave them out
        )
    if isinstance(wanted, list):
        return (
            isinstance(found, list)
            and len(wanted) == len(found)
            and all(_as_wanted(*pair, top=False) for pair in zip(wanted, found, strict=True))
        )
    return bool(wanted == found)
