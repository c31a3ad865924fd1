"""An API without a server, for tests of the stand-ins alone: objects in a dictionary, kinds served once their definition is applied.

It has those methods of client.Client that olm.py and operands.py use, and checks nothing.
"""

from __future__ import annotations

import copy
import itertools
from typing import Any

from api_server.client import Json, NotServed

BUILT_IN = {"v1": ("Namespace", "Node", "ConfigMap"), "apps/v1": ("Deployment",)}
DEFINITION, DEFINITIONS = "CustomResourceDefinition", "apiextensions.k8s.io/v1"
OLM = {
    "operators.coreos.com/v1alpha1": ("Subscription", "ClusterServiceVersion", "InstallPlan"),
    "operators.coreos.com/v1": ("OperatorGroup",),
    "operator.openshift.io/v1": ("ClusterCSIDriver",),
}
Key = tuple[str, str, str, str]


class Memory:
    """`told` is what each object reported, in its order: (kind, namespace, name, status and labels)."""

    def __init__(self) -> None:
        """Serve what a bare OpenShift has."""
        self._things: dict[Key, Json] = {}
        self._served = {
            (version, kind) for served in (BUILT_IN, OLM) for version, kinds in served.items() for kind in kinds
        }
        self._served.add((DEFINITIONS, DEFINITION))
        self._numbers = itertools.count(1)
        self.told: list[tuple[str, str, str, Json]] = []

    def resources(self, api_version: str, fresh: bool = False) -> Json:
        """Return the kinds of a version."""
        return {kind: {} for version, kind in self._served if version == api_version}

    def path(self, api_version: str, kind: str, name: str = "", namespace: str = "") -> str | None:
        """Return something for a kind that is served."""
        return f"{api_version}/{kind}" if (api_version, kind) in self._served else None

    def look(self, api_version: str, kind: str, name: str, namespace: str = "") -> Json | None:
        """Return one object, None when it is not there."""
        found = self._things.get(_key(api_version, kind, name, namespace))
        return copy.deepcopy(found)

    def items(self, api_version: str, kind: str, namespace: str = "", **query: Any) -> list[Json]:
        """Return all objects of a kind; of a query only `labelSelector` with one equality is understood."""
        label, _equals, value = query.get("labelSelector", "").partition("=")
        return [
            copy.deepcopy(thing) | {"apiVersion": api_version, "kind": kind}
            for (group, one, space, _name), thing in list(self._things.items())
            if (group, one) == (api_version.rpartition("/")[0], kind)
            and namespace in ("", space)
            and (not label or (thing["metadata"].get("labels") or {}).get(label) == value)
        ]

    def apply(self, thing: Json, manager: str = "") -> Json:
        """Make an object, or merge its fields into the one that is there."""
        key = _key_of(thing)
        if (thing["apiVersion"], thing["kind"]) not in self._served:
            raise NotServed(f"{thing['apiVersion']} {thing['kind']}")
        if thing["kind"] == DEFINITION:
            spec = thing["spec"]
            if key not in self._things:
                self.told.append((DEFINITION, "", thing["metadata"]["name"], {"status": {}, "labels": {}}))
            self._served |= {(f"{spec['group']}/{one['name']}", spec["names"]["kind"]) for one in spec["versions"]}
            thing = {key: value for key, value in thing.items() if key != "spec"}  # long, and nobody reads it
        before = self._things.get(key, {"metadata": {"uid": str(next(self._numbers)), "generation": 0}})
        after = _merged(before, thing)
        after["metadata"]["generation"] = before["metadata"]["generation"] + (before.get("spec") != after.get("spec"))
        self._things[key] = after
        return copy.deepcopy(after)

    def merge(self, thing: Json, change: Json, part: str = "") -> Json:
        """Merge fields into an object."""
        after = _merged(self._things[_key_of(thing)], change)
        self._things[_key_of(thing)] = after
        metadata = after["metadata"]
        if "status" in change or "labels" in change.get("metadata", {}):
            said = {"status": after.get("status", {}), "labels": metadata.get("labels", {})}
            self.told.append((thing["kind"], metadata.get("namespace", ""), metadata["name"], copy.deepcopy(said)))
        return copy.deepcopy(after)

    def status(self, thing: Json, status: Json) -> Json:
        """Set fields of an object's status."""
        return self.merge(thing, {"status": status})

    def delete(self, thing: Json) -> None:
        """Delete an object, finalizers or not."""
        self._things.pop(_key_of(thing), None)


def _key(api_version: str, kind: str, name: str, namespace: str) -> Key:
    return (api_version.rpartition("/")[0], kind, namespace or "", name)


def _key_of(thing: Json) -> Key:
    metadata = thing["metadata"]
    return _key(thing["apiVersion"], thing["kind"], metadata["name"], metadata.get("namespace", ""))


def _merged(before: Json, change: Json) -> Json:
    """Merge as JSON merge patches do."""
    after = dict(before)
    for key, value in change.items():
        inner = before.get(key)
        if isinstance(value, dict):
            after[key] = _merged(inner if isinstance(inner, dict) else {}, value)
        else:
            after[key] = copy.deepcopy(value)
    return after
