"""Applies documents of one owner: what exists without its label is refused or reported, never changed.

Refused (`foreign: refuse`): everything carries an owner label and the hash of the document that made it. A repeated run lists each
kind once, so a set of 400 unchanged objects costs a dozen requests. A namespace of the set that exists without the label belongs to
somebody else, and so does, with `namespace`, every other such object: nothing is applied then. What no document names any more is
deleted in `namespace`, and without one only for the attendees whose Namespaces are in the set.
Reported (`foreign: report`): one object after the other, as roles/platform does; those of others are `found`, with what differs.
With `initial` the objects are the administrator's once they exist: created with that and the documents' fields, of which only the
documents' follow later, and only while nobody else sets them otherwise.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import time
from typing import Any

import yaml
from ansible.errors import AnsibleActionFail

from ..plugin_utils import kueue, labels
from ..plugin_utils.documented import ClusterAction
from ..plugin_utils.kube import FORBIDDEN, NOT_FOUND, PAUSES, ApiError, Json, Unreachable
from ..plugin_utils.platform_api import CONFLICT, FIELDS, MANAGER, failure, title
from ..plugin_utils.pods import pulled
from ..plugin_utils.waiting import ApiRetries, polls, watch_pods

SHOWN = 5
MANAGERS = re.compile(r'conflicts? with "([^"]*)"')
"""In the API server's answer to an apply that is not forced."""
UNSCHEDULABLE_SECONDS = 60.0


class ActionModule(ClusterAction):
    """Applies what differs from the document or its hash."""

    OPERATION = "applying the objects of {owner}"

    def run_on_cluster(self, args: Json) -> Json:
        """Apply; returns changed, objects (a line for each), drift (sentences) and the number of requests."""
        self._owner, self._namespace = args["owner"], args["namespace"]
        left_out: list[str] = []
        if args["optional"]:
            reasons = [self._why_not(each) for each in args["documents"]]
            left_out = list(dict.fromkeys(filter(None, reasons)))
            args["documents"] = [each for each, why in zip(args["documents"], reasons, strict=True) if not why]
        return self._applied(args) | {"left_out": left_out}

    def _why_not(self, document: Json) -> str:
        """Return why this cluster or user has no such object, in a sentence; empty where it can be applied."""
        api_version, kind = document["apiVersion"], document["kind"]
        resource = self.api.resource(api_version, kind)
        if resource is None:
            return f"no {kind}: the cluster does not serve {api_version}"
        group, namespace = api_version.rpartition("/")[0], document["metadata"].get("namespace", "")
        if refused := [
            v for v in ("get", "create", "patch") if not self.api.may(v, resource["name"], group, namespace)
        ]:
            return f"no {kind}: this user may not {' or '.join(refused)} {resource['name']}.{group}"
        return ""

    def _applied(self, args: Json) -> Json:
        """As run_on_cluster."""
        if args["foreign"] == "report":
            self._initial = args["initial"]
            return self._apply_in_order(args["documents"], args["fields_only"])
        refuse_other_types(args["documents"])
        documents = kueue.as_served(self.api, [_marked(each, self._owner) for each in args["documents"]])
        prune = kueue.as_served(self.api, args["prune"])
        if prune and not (self._namespace or labels.attendees(documents)):
            raise AnsibleActionFail(
                "objects_apply: prune is set without namespace, and no Namespace of the documents has label "
                f"{labels.ATTENDEE}, so nothing bounds it; set the namespace to prune, or leave prune out"
            )
        existing = self._existing(documents, prune)
        left = self._unnamed(documents, existing) if self._namespace or prune else []
        lines = self._all(documents, existing) + self.remove(left)
        result = {"changed": bool(lines), "objects": lines, "drift": [], "requests": self.api.requests, "nodes": 0}
        for name in [_key(each)[2] for each in documents if each["kind"] == "DaemonSet"]:
            if args["pull_timeout"] and not self.check:
                try:
                    result["nodes"] = self._pulled(name, args["pull_timeout"])
                except (ApiError, Unreachable) as error:
                    raise failure(error, f"pulling images by DaemonSet {self._namespace}/{name}") from error
        return result

    def _pulled(self, name: str, timeout: float) -> int:
        """Wait until each node that a DaemonSet targets has the images of its pods, which a running one has; return their number.

        A node that is away or full holds up no training on the others: without it the number is smaller, and a line says why.
        """
        nodes: list[int] = []  # that have them, of how many
        try:
            return self._await_pulled(name, timeout, nodes)
        except AnsibleActionFail as error:
            if not nodes or not nodes[0]:
                raise
            self.lines.say(f"goes on with the images on {nodes[0]} of {nodes[1]} nodes: {error.message}")
            return nodes[0]

    def _await_pulled(self, name: str, timeout: float, nodes: list[int]) -> int:
        """As _pulled; keeps in `nodes` how many have the images, of how many."""
        space, lines = self._namespace, self.lines
        retries = ApiRetries(lines)
        for _poll in polls(
            timeout,
            f"the pull by DaemonSet {space}/{name}",
            f"see `{self.api.kubectl} -n {space} get pods -l app.kubernetes.io/name={name} -o wide`; raise image_prepull_timeout, "
            "or run the playbook again: the nodes keep pulling",
        ):
            daemonset = retries.ask(lambda: self.api.get(f"/apis/apps/v1/namespaces/{space}/daemonsets/{name}"))
            if daemonset is None:
                continue
            wanted, ready = pulled(daemonset)
            if ready is not None:
                nodes[:] = [ready, wanted]
                lines.changed("images", f"on {ready} of {wanted} nodes")
                if ready == wanted:
                    return wanted
            path = f"/api/v1/namespaces/{space}/pods"
            pods = retries.ask(lambda path=path: self.api.items(path, f"app.kubernetes.io/name={name}"))
            if trouble := watch_pods(self.api, space, pods or [], lines, UNSCHEDULABLE_SECONDS):
                raise AnsibleActionFail(f"images are not on the nodes: {trouble}")
            lines.alive(f"still pulling: {ready or 0} of {wanted} nodes")
        raise AssertionError("polls() ends with an error")

    def _apply_in_order(self, documents: list[Json], fields_only: bool) -> Json:
        lines: list[str] = []
        drift: list[str] = []
        for document in documents:
            try:
                lines.append(f"{self._reported(document, fields_only, drift)}: {title(document)}")
            except (ApiError, Unreachable) as error:
                raise failure(error, title(document)) from error
        changed = any(not line.startswith(("unchanged", "found")) for line in lines)
        return {"changed": changed, "objects": lines, "drift": drift, "requests": self.api.requests}

    def _reported(self, document: Json, fields_only: bool, drift: list[str]) -> str:
        if (
            as_served := self._served(document)
        ) is None:  # in check mode: the operator that brings the kind is not installed
            return "would create"
        document, before = as_served, self.api.current(as_served)
        if fields_only:  # an object that our operator made: a few of its fields become ours, the object does not
            if before is None:
                return "would change" if self.check else "unchanged"
            return self.api.put(document, before, self.check)
        if before is not None and not self._owned(before):
            wanted = merged(self._initial.get(document["kind"], {}), document)
            self._report("is not ours", wanted, before, drift)
            return "found"
        if self._initial:
            return self._administrators(_labeled(document, self._owner), before, drift)
        return self.api.put(_labeled(document, self._owner), before, self.check)

    def _report(self, why: str, document: Json, before: Json, drift: list[str]) -> None:
        metadata = document["metadata"]
        space = f" -n {metadata['namespace']}" if metadata.get("namespace") else ""
        edit = f"`{self.api.oc}{space} edit {document['kind'].lower()} {metadata['name']}`"
        drift += [
            f"{title(document)} {why} and left as it is: {text}; set it there if you want it: {edit}"
            for text in differences(document, before)
        ]

    def _administrators(self, document: Json, before: Json | None, drift: list[str]) -> str:
        """Create an object with what `initial` has for its kind; of one that exists only set the document's own fields."""
        initial = self._initial.get(document["kind"], {})
        if before is None:
            created = self.api.put(merged(initial, document), None, self.check)
            if (
                initial and not self.check
            ):  # the document's fields get a manager of their own, and end with the inventory's
                self.api.put(document, None, False, FIELDS)
                self.api.put(document | without(initial, document), None, False)
            return created
        try:
            return self.api.put(document, before, self.check, FIELDS, force=False)
        except ApiError as error:
            managers = set(MANAGERS.findall(str(error))) - {MANAGER}
            if error.status != CONFLICT:
                raise
        if not managers:
            return self.api.put(document, before, self.check, FIELDS)
        self._report(f"has been changed by {', '.join(sorted(managers))}", document, before, drift)
        return "found"

    def _served(self, document: Json) -> Json | None:
        """Return it as it is served, which one of several API servers may not do yet; otherwise None in check mode, ApiError outside."""
        for pause in (0.0,) if self.check else (*PAUSES, 0.0):
            (document,) = kueue.as_served(self.api, [document])
            if self.api.resource(document["apiVersion"], document["kind"]) is not None:
                return document
            time.sleep(pause)
        if self.check:
            return None
        raise _not_served(document["apiVersion"], document["kind"])

    def _owned(self, item: Json) -> bool:
        return bool((item["metadata"].get("labels") or {}).get(labels.OWNER) == self._owner)

    def _existing(self, documents: list[Json], prune: list[Json]) -> dict[tuple[str, str, str], Json]:
        """Return the owner's objects of all kinds of the set; within one namespace, others' of the same name are refused."""
        existing: dict[tuple[str, str, str], Json] = {}
        foreign: list[str] = []
        wanted = {_key(each) for each in documents}
        kinds = dict.fromkeys((each["apiVersion"], each["kind"]) for each in documents)
        for api_version, kind in kinds | dict.fromkeys((each["apiVersion"], each["kind"]) for each in prune):
            path = self.api.path(api_version, kind, self._namespace)
            if path is None:
                if (api_version, kind) not in kinds:
                    continue
                raise _not_served(api_version, kind)
            for item in self._items(path, (api_version, kind) in kinds):
                typed = item | {"apiVersion": api_version, "kind": kind}
                if self._owned(item):
                    existing[_key(typed)] = typed
                elif _key(typed) in wanted:
                    foreign.append(title(typed))
        if foreign:
            raise AnsibleActionFail(
                f"{', '.join(foreign[:SHOWN])}{', ...' if len(foreign) > SHOWN else ''} "
                f"{'is' if len(foreign) == 1 else 'are'} there without label {labels.OWNER}={self._owner}, so somebody else "
                f"made {'it' if len(foreign) == 1 else 'them'}; delete or label, or leave that part out; nothing was applied"
            )
        return existing

    def _items(self, path: str, applied: bool) -> list[Json]:
        try:
            return self.api.items(path, "" if self._namespace else f"{labels.OWNER}={self._owner}")
        except ApiError as error:
            if error.status != FORBIDDEN or applied:
                raise
            return []  # a user who may not list a kind has not created any of it

    def _unnamed(self, documents: list[Json], existing: dict[tuple[str, str, str], Json]) -> list[Json]:
        """Return the owner's objects that no document names, without a namespace those of the attendees in the documents."""
        wanted = {_key(each) for each in documents}
        left = [item for key, item in existing.items() if key not in wanted]
        if self._namespace:
            return left
        asked = labels.attendees(documents)
        known = labels.attendees(existing.values()) | asked
        return [item for item in left if item["kind"] != "Namespace" and labels.attendee_space(item, known) in asked]

    def _all(self, documents: list[Json], existing: dict[tuple[str, str, str], Json]) -> list[str]:
        spaces = [each for each in documents if each["kind"] == "Namespace" and _key(each) not in existing]
        self._refuse_foreign(spaces)
        absent = {each["metadata"]["name"] for each in spaces}
        lines = []
        for document in documents:
            before = existing.get(_key(document))
            if before is not None and _as_wanted(document, before):
                continue
            done = self._put(document, before, absent)
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

    def _put(self, document: Json, before: Json | None, absent: set[str]) -> str:
        metadata = document["metadata"]
        if self.check and metadata.get("namespace") in absent:
            return "would create"
        try:
            done = self.api.put(document, before, self.check)
        except (ApiError, Unreachable) as error:
            raise failure(error, title(document)) from error
        return "" if done == "unchanged" else done


def _not_served(api_version: str, kind: str) -> ApiError:
    return ApiError(NOT_FOUND, f"the cluster does not serve {api_version} {kind}; is its operator installed?")


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


def _labeled(document: Json, owner: str) -> Json:
    """The document with its owner's label."""
    metadata = document["metadata"]
    return document | {"metadata": metadata | {"labels": (metadata.get("labels") or {}) | {labels.OWNER: owner}}}


def _marked(document: Json, owner: str) -> Json:
    """The document with owner label and hash."""
    labeled = _labeled(document, owner)
    digest = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:16]
    marks = (document["metadata"].get("annotations") or {}) | {labels.APPLIED: digest}
    return labeled | {"metadata": labeled["metadata"] | {"annotations": marks}}


def merged(below: Json, above: Json) -> Json:
    """Return the fields of both; where both have one, that of `above`."""
    return below | {
        key: merged(below[key], value) if isinstance(value, dict) and isinstance(below.get(key), dict) else value
        for key, value in above.items()
    }


def without(fields: Json, others: Json) -> Json:
    """Return the fields that `others` does not have."""
    left: Json = {}
    for key, value in fields.items():
        if isinstance(value, dict) and isinstance(others.get(key), dict):
            left |= {key: without(value, others[key])}
        elif key not in others:
            left |= {key: value}
    return left


def _key(document: Json) -> tuple[str, str, str]:
    metadata = document["metadata"]
    return document["kind"], metadata.get("namespace", ""), metadata["name"]


def _as_wanted(wanted: Any, actual: Any, top: bool = True) -> bool:
    """Tell whether each field of the document has its value; the server adds fields of its own."""
    if isinstance(wanted, dict):
        return isinstance(actual, dict) and all(
            _as_wanted(value, actual.get(key), top=False)
            for key, value in wanted.items()
            if not (top and key in ("apiVersion", "kind"))  # the API server's lists omit them
        )
    if isinstance(wanted, list):
        return (
            isinstance(actual, list)
            and len(wanted) == len(actual)
            and all(_as_wanted(*pair, top=False) for pair in zip(wanted, actual, strict=True))
        )
    return bool(wanted == actual)


def differences(wanted: Any, actual: Any, where: str = "") -> list[str]:
    """Name each wanted field below `spec` or `data` that has another value in the cluster."""
    if not where:
        return [
            text for key in ("spec", "data") if key in wanted for text in differences(wanted[key], actual.get(key), key)
        ]
    if where.endswith(".yaml") and isinstance(
        actual, str
    ):  # a file in a ConfigMap: other people's may contain more than ours
        with contextlib.suppress(yaml.YAMLError):
            wanted, actual = yaml.safe_load(wanted), yaml.safe_load(actual)
    if isinstance(wanted, dict) and isinstance(actual, dict):
        return [text for key, value in wanted.items() for text in differences(value, actual.get(key), f"{where}.{key}")]
    return [] if wanted == actual else [f"{where} is {actual!r}, wanted {wanted!r}"]
