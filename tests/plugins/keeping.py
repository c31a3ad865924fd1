"""The tests' API server made to keep what is applied to it: PATCH stores, DELETE removes, lists filter by label; discovery is below."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

Json = dict[str, Any]
RBAC = "rbac.authorization.k8s.io/v1"
KUEUE = "kueue.x-k8s.io/v1beta2"
SPACED: dict[str, dict[str, str]] = {
    "v1": {
        "ConfigMap": "configmaps",
        "LimitRange": "limitranges",
        "PersistentVolumeClaim": "persistentvolumeclaims",
        "ResourceQuota": "resourcequotas",
        "ServiceAccount": "serviceaccounts",
    },
    RBAC: {"Role": "roles", "RoleBinding": "rolebindings"},
    "networking.k8s.io/v1": {"NetworkPolicy": "networkpolicies"},
    KUEUE: {"LocalQueue": "localqueues"},
    "template.openshift.io/v1": {"Template": "templates"},
}
"""Kinds within a namespace, by API: how paths name them."""
WIDE: dict[str, dict[str, str]] = {
    "v1": {"Namespace": "namespaces", "PersistentVolume": "persistentvolumes"},
    RBAC: {"ClusterRole": "clusterroles", "ClusterRoleBinding": "clusterrolebindings"},
    KUEUE: {"ClusterQueue": "clusterqueues"},
}
"""Kinds of the whole cluster."""


class Kept(dict[str, Any]):
    """Objects by path, in place of those of a Cluster of conftest.py."""

    def __init__(self, cluster: Any) -> None:
        """Serve `cluster` from here on."""
        super().__init__(cluster.objects)
        self._cluster = cluster
        handler = cluster.server.RequestHandlerClass
        handler.do_PATCH = handler.do_GET
        groups = []
        for api in SPACED:
            self[base(api)] = {"kind": "APIResourceList", "groupVersion": api, "resources": resources(api)}
            if api != "v1":
                version = {"groupVersion": api, "version": api.partition("/")[2]}
                groups.append({"name": api.partition("/")[0], "versions": [version], "preferredVersion": version})
        self["/apis"] = {"kind": "APIGroupList", "groups": groups}
        cluster.objects = self

    def keep(self, *documents: Json) -> None:
        """Store objects as if somebody had made them."""
        for each in documents:
            name = each["metadata"]["name"]
            own = {"uid": f"{each['kind']}-{name}", "resourceVersion": "1"}
            self[place(each)] = each | {"metadata": each["metadata"] | own}

    def names(self, kind: str) -> set[str]:
        """Return NAMESPACE/NAME of all objects of a kind."""
        found = [each["metadata"] for each in self.values() if isinstance(each, dict) and each.get("kind") == kind]
        return {f"{one.get('namespace', '')}/{one['name']}" for one in found if "name" in one}

    def get(self, path: str, default: Any = None) -> Any:
        """Answer the request that was asked last."""
        method, asked = self._cluster.asked[-1]
        query = parse_qs(urlsplit(asked).query)
        if method == "PATCH":
            return lambda sent: self._applied(sent, "dryRun" in query)
        if method == "DELETE":
            return self.pop(path, default)
        return super().get(path) or self._listed(path, query.get("labelSelector", [""])[0]) or default

    def _applied(self, sent: Json, dry: bool) -> Json:
        before = dict(self)
        self.keep(sent)
        answer: Json = self[place(sent)]
        if dry:
            self.clear()
            self.update(before)
        return answer

    def _listed(self, path: str, selector: str) -> Json | None:
        for api, kinds in {api: SPACED[api] | WIDE.get(api, {}) for api in SPACED}.items():
            for kind, plural in kinds.items():
                start, _, last = path.rpartition("/")
                if last == plural and start.startswith(base(api)):
                    found = [each for key, each in self.items() if key.startswith(start) and each.get("kind") == kind]
                    return {"kind": f"{kind}List", "apiVersion": api, "metadata": {}, "items": chosen(found, selector)}
        return None


def base(api: str) -> str:
    """Return the path of an API."""
    return "/api/v1" if api == "v1" else f"/apis/{api}"


def resources(api: str) -> list[Json]:
    """Return what discovery says of an API."""
    return [
        {
            "name": plural,
            "singularName": kind.lower(),
            "kind": kind,
            "namespaced": kinds is SPACED,
            "verbs": ["get", "list"],
        }
        for kinds in (SPACED, WIDE)
        for kind, plural in kinds.get(api, {}).items()
    ]


def place(document: Json) -> str:
    """Return the path of an object."""
    api, kind, metadata = document["apiVersion"], document["kind"], document["metadata"]
    scope = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
    return f"{base(api)}{scope}/{(SPACED[api] | WIDE.get(api, {}))[kind]}/{metadata['name']}"


def chosen(objects: list[Json], selector: str) -> list[Json]:
    """Return those with the labels of a selector, KEY=VALUE or KEY alone."""
    wanted = [each.partition("=") for each in selector.split(",") if each]
    return [
        one
        for one in objects
        if all(
            key in (labels := one["metadata"].get("labels") or {}) and (not equals or labels[key] == value)
            for key, equals, value in wanted
        )
    ]
