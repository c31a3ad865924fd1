"""Applies a list of documents in one go, as roles/platform does in each of its steps.

What exists without our owner label is never changed: it is reported as `found`, with the fields that differ.
"""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.trainlab.rhoai.plugins.plugin_utils.kube import NOT_FOUND, ApiError, Json, Unreachable
from ansible_collections.trainlab.rhoai.plugins.plugin_utils.platform_api import (
    PlatformApi,
    failure,
    labelled,
    ours,
    plain,
    title,
)


class ActionModule(ActionBase):  # type: ignore[misc]
    """Arguments: kubeconfig, kube_context, documents (objects in order), fields_only."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: None = None, task_vars: Json | None = None) -> Json:
        """Apply; returns changed, objects (one line each), drift (sentences) and the number of requests."""
        super().run(tmp, task_vars)
        _, args = self.validate_argument_spec(
            {
                "kubeconfig": {"type": "path", "required": True},
                "kube_context": {"type": "str", "default": ""},
                "documents": {"type": "list", "elements": "dict", "required": True},
                "fields_only": {"type": "bool", "default": False},
            }
        )
        api = PlatformApi(args["kubeconfig"], args["kube_context"])
        self._fields_only = bool(args["fields_only"])
        lines: list[str] = []
        drift: list[str] = []
        for document in args["documents"]:
            try:
                done = self._one(api, document, drift)
            except (ApiError, Unreachable) as error:
                raise failure(error, title(document)) from error
            lines.append(f"{done}: {title(document)}")
        changed = any(not line.startswith(("unchanged", "found")) for line in lines)
        return {"changed": changed, "objects": lines, "drift": drift, "requests": api.requests}

    def _one(self, api: PlatformApi, document: Json, drift: list[str]) -> str:
        metadata, check = document["metadata"], bool(self._task.check_mode)
        path = api.path(document["apiVersion"], document["kind"], metadata.get("namespace", ""), metadata["name"])
        if path is None:
            if check:  # the operator that brings the kind is not installed in check mode
                return "would create"
            raise ApiError(
                NOT_FOUND,
                f"the cluster does not serve {document['apiVersion']} {document['kind']}; is its operator installed?",
            )
        before = api.get(path)
        if self._fields_only:  # an object that our operator made: a few fields of it become ours, the object does not
            if before is None:
                return "would change" if check else "unchanged"
            return _outcome(before, api.apply(path, document, dry_run=check), check)
        if before is not None and not ours(before):
            drift += [
                f"{title(document)} is not ours and left as it is: {text}" for text in differences(document, before)
            ]
            return "found"
        try:
            after = api.apply(path, labelled(document), dry_run=check)
        except ApiError as error:
            if check and error.status == NOT_FOUND:  # its namespace would have been created before
                return "would create"
            raise
        if before is None:
            return "would create" if check else "created"
        return _outcome(before, after, check)


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
    if isinstance(wanted, dict) and isinstance(found, dict):
        return [text for key, value in wanted.items() for text in differences(value, found.get(key), f"{where}.{key}")]
    return [] if wanted == found else [f"{where} is {found!r}, wanted {wanted!r}"]
