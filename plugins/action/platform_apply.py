"""Applies a list of documents in one go, as roles/platform does in each of its steps.

What exists without our owner label is never changed: it is reported as `found`, with the fields that differ.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

import yaml

from ..plugin_utils.documented import ClusterAction
from ..plugin_utils.kube import NOT_FOUND, PAUSES, ApiError, Json, Unreachable
from ..plugin_utils.platform_api import failure, labeled, ours, plain, title


class ActionModule(ClusterAction):
    """Applies the documents in their order."""

    OPERATION = "applying objects"

    def run_on_cluster(self, args: Json) -> Json:
        """Apply; returns changed, objects (one line each), drift (sentences) and the number of requests."""
        self._fields_only = bool(args["fields_only"])
        lines: list[str] = []
        drift: list[str] = []
        for document in args["documents"]:
            try:
                done = self._one(document, drift)
            except (ApiError, Unreachable) as error:
                raise failure(error, title(document)) from error
            lines.append(f"{done}: {title(document)}")
        changed = any(not line.startswith(("unchanged", "found")) for line in lines)
        return {"changed": changed, "objects": lines, "drift": drift, "requests": self.api.requests}

    def _one(self, document: Json, drift: list[str]) -> str:
        check = self.check
        path = self._path(document)
        for pause in () if check else PAUSES:  # one of several API servers may not serve a new kind yet
            if path is not None:
                break
            time.sleep(pause)
            path = self._path(document)
        if path is None:
            if check:  # the operator that brings the kind is not installed in check mode
                return "would create"
            raise ApiError(
                NOT_FOUND,
                f"the cluster does not serve {document['apiVersion']} {document['kind']}; is its operator installed?",
            )
        before = self.api.get(path)
        if self._fields_only:  # an object that our operator made: a few of its fields become ours, the object does not
            if before is None:
                return "would change" if check else "unchanged"
            return _outcome(before, self.api.apply(path, document, dry_run=check), check)
        if before is not None and not ours(before):
            drift += [
                f"{title(document)} is not ours and left as it is: {text}" for text in differences(document, before)
            ]
            return "found"
        try:
            after = self.api.apply(path, labeled(document), dry_run=check)
        except ApiError as error:
            if check and error.status == NOT_FOUND:  # its namespace would have been created before
                return "would create"
            raise
        if before is None:
            return "would create" if check else "created"
        return _outcome(before, after, check)

    def _path(self, document: Json) -> str | None:
        metadata = document["metadata"]
        return self.api.path(document["apiVersion"], document["kind"], metadata.get("namespace", ""), metadata["name"])


def _outcome(before: Json, after: Json, check: bool) -> str:
    if plain(before) == plain(after):
        return "unchanged"
    return "would change" if check else "changed"


def differences(wanted: Any, found: Any, where: str = "") -> list[str]:
    """Name each wanted field below `spec` or `data` that has another value in the cluster."""
    if not where:
        return [
            text for key in ("spec", "data") if key in wanted for text in differences(wanted[key], found.get(key), key)
        ]
    if where.endswith(".yaml") and isinstance(
        found, str
    ):  # a file in a ConfigMap: other people's may contain more than ours
        with contextlib.suppress(yaml.YAMLError):
            wanted, found = yaml.safe_load(wanted), yaml.safe_load(found)
    if isinstance(wanted, dict) and isinstance(found, dict):
        return [text for key, value in wanted.items() for text in differences(value, found.get(key), f"{where}.{key}")]
    return [] if wanted == found else [f"{where} is {found!r}, wanted {wanted!r}"]
