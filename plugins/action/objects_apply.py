"""Applies a whole set of documents of one owner: one look per kind, one request for each object that differs.

Everything carries an owner label and the hash of the document that made it. A repeated run lists each kind once, so a
set of 400 objects that are as they should be costs a dozen requests. A namespace of the set that exists without the
label is somebody else's: nothing is applied then.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.trainlab.rhoai.plugins.plugin_utils.kube import (
    NOT_FOUND,
    ApiError,
    Json,
    Unreachable,
    connect,
)
from ansible_collections.trainlab.rhoai.plugins.plugin_utils.platform_api import (
    OWNER_LABEL,
    PlatformApi,
    failure,
    plain,
    title,
)

HASH = "trainlab.rhoai/applied"
"""Annotation: hash of the document as it was applied; tells a field that was taken out of the document."""
SHOWN = 5


class ActionModule(ActionBase):  # type: ignore[misc]
    """Arguments: kubeconfig, kube_context, owner (value of the owner label), documents (objects in order)."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: None = None, task_vars: Json | None = None) -> Json:
        """Apply; returns changed, objects (a line for each that was changed) and the number of requests."""
        super().run(tmp, task_vars)
        _, args = self.validate_argument_spec(
            {
                "kubeconfig": {"type": "path", "required": True},
                "kube_context": {"type": "str", "default": ""},
                "owner": {"type": "str", "required": True},
                "documents": {"type": "list", "elements": "dict", "required": True},
            }
        )
        connect(args["kubeconfig"], args["kube_context"])
        self._api = PlatformApi(args["kubeconfig"], args["kube_context"])
        self._owner = args["owner"]
        try:
            lines = self._all([_marked(each, self._owner) for each in args["documents"]])
        except (ApiError, Unreachable) as error:
            raise failure(error, f"applying the objects of {self._owner}") from error
        return {"changed": bool(lines), "objects": lines, "requests": self._api.requests}

    def _all(self, documents: list[Json]) -> list[str]:
        there: dict[tuple[str, str, str], Json] = {}
        for api_version, kind in dict.fromkeys((each["apiVersion"], each["kind"]) for each in documents):
            path = self._api.path(api_version, kind)
            if path is None:
                raise ApiError(
                    NOT_FOUND, f"the cluster does not serve {api_version} {kind}; is its operator installed?"
                )
            for one in self._api.items(path, f"{OWNER_LABEL}={self._owner}"):
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
            name for each in spaces if self._api.look("v1", "Namespace", name := each["metadata"]["name"]) is not None
        ]
        if foreign:
            raise AnsibleActionFail(
                f"{'namespace' if len(foreign) == 1 else 'namespaces'} {', '.join(foreign[:SHOWN])}"
                f"{', ...' if len(foreign) > SHOWN else ''} exist without label {OWNER_LABEL}={self._owner}, so somebody "
                "else made them; choose other names, or delete them; nothing was applied"
            )

    def _one(self, document: Json, before: Json | None, absent: set[str]) -> str:
        metadata, check = document["metadata"], bool(self._task.check_mode)
        if check and metadata.get("namespace") in absent:
            return "would create"
        path = self._api.path(document["apiVersion"], document["kind"], metadata.get("namespace", ""), metadata["name"])
        try:
            after = self._api.apply(str(path), document, dry_run=check)
        except (ApiError, Unreachable) as error:
            raise failure(error, title(document)) from error
        if before is not None and plain(before) == plain(after):  # e.g. the quantity 1000m, which is kept as 1
            return ""
        return f"{'would ' if check else ''}{'create' if before is None else 'change'}{'' if check else 'd'}"


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
