"""OpenShift's Projects for the test API server: what a user without the right to create namespaces requests.

ProjectRequest and Project are an aggregated API, so they have no CRDs anywhere: a small proxy before the API server
answers them, with an administrator's rights, as OpenShift does, and forwards everything else with the user's own token.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from api_server.client import Client
from api_server.front import Front
from api_server.server import Server

Json = dict[str, Any]
API = "project.openshift.io/v1"
RBAC = "rbac.authorization.k8s.io"
ALL = ["get", "list", "watch", "create", "update", "patch", "delete"]
# what OpenShift's ClusterRole admin grants of what the playbooks need: limits and labels are not in it
ADMIN = [
    {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["resourcequotas", "limitranges"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [""], "resources": ["pods", "secrets", "configmaps", "persistentvolumeclaims"], "verbs": ALL},
    {"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ALL},
    {"apiGroups": ["apps", "batch"], "resources": ["deployments", "statefulsets", "jobs", "cronjobs"], "verbs": ALL},
    {"apiGroups": [RBAC], "resources": ["roles", "rolebindings"], "verbs": ALL},
    {"apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": ALL},
]


class Projects(Front):
    """The proxy; `allowed` says whether users may request projects."""

    def __init__(self, server: Server, folder: Path) -> None:
        """Start it; `kubeconfig` points to it, as the user who may do nothing."""
        self.client, self.allowed = Client(server.kubeconfig), True
        super().__init__(server.nobody, folder / "through-projects")

    def _own(self, method: str, path: str, body: bytes) -> tuple[int, bytes] | None:
        """As Front._own."""
        start = f"/apis/{API}"
        return self._answer(method, path.removeprefix(start), body) if path.startswith(start) else None

    def _answer(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        if method == "GET" and not path:
            kinds = (("projects", "Project"), ("projectrequests", "ProjectRequest"))
            return _json(
                200, {"resources": [{"name": name, "kind": kind, "namespaced": False} for name, kind in kinds]}
            )
        if method == "POST" and path == "/projectrequests":
            return self._request(json.loads(body))
        name = path.removeprefix("/projects/")
        found = self.client.look("v1", "Namespace", name)
        if found is None:
            return _json(404, {"kind": "Status", "message": f'projects "{name}" not found'})
        if method == "DELETE":
            self.client.delete(found | {"apiVersion": "v1", "kind": "Namespace"})
        return _json(200, found)

    def _request(self, wanted: Json) -> tuple[int, bytes]:
        name = wanted["metadata"]["name"]
        if not self.allowed:
            message = "You may not request a new project via this API."
            return _json(403, {"kind": "Status", "message": message})
        if self.client.look("v1", "Namespace", name):
            return _json(409, {"kind": "Status", "message": f'project.project.openshift.io "{name}" already exists'})
        notes = {"openshift.io/description": wanted["description"], "openshift.io/requester": "nobody"}
        made = self.client.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "annotations": notes}}
        )
        metadata = {"name": "admin", "namespace": name}
        self.client.apply({"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": metadata, "rules": ADMIN})
        binding = {
            "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": "admin"},
            "subjects": [{"apiGroup": RBAC, "kind": "User", "name": "nobody"}],
        }
        self.client.apply({"apiVersion": f"{RBAC}/v1", "kind": "RoleBinding", "metadata": metadata, **binding})
        return _json(201, made)


def _json(status: int, content: Json) -> tuple[int, bytes]:
    return status, json.dumps(content).encode()
