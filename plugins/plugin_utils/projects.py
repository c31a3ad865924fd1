"""Namespaces as OpenShift users get them, and who owns them; used by the action plugin namespace.

Source: openshift/api project/v1 (ProjectRequest, the annotations of a Project).
"""

from __future__ import annotations

from .kube import Api, Json

API = "project.openshift.io/v1"
REQUESTS = f"/apis/{API}/projectrequests"
MARK = {"app.kubernetes.io/managed-by": "trainlab"}
"""Label of the namespaces that we created."""
DESCRIPTION = "Made by playbooks/workspace.yml of trainlab"
"""The only mark of its origin that a ProjectRequest can give a Project: its labels and annotations are dropped."""
REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def request(name: str) -> Json:
    """Return the ProjectRequest for a name."""
    return {
        "apiVersion": API,
        "kind": "ProjectRequest",
        "metadata": {"name": name},
        "displayName": name,
        "description": DESCRIPTION,
    }


def requested(namespace: Json) -> bool:
    """Tell whether our ProjectRequest created this namespace."""
    annotations = namespace["metadata"].get("annotations") or {}
    return bool(annotations.get("openshift.io/description") == DESCRIPTION)


def ours(namespace: Json) -> bool:
    """Tell whether we created this namespace."""
    labels = namespace["metadata"].get("labels") or {}
    return requested(namespace) or all(labels.get(key) == value for key, value in MARK.items())


def may(api: Api, verb: str, resource: str, group: str = "", namespace: str = "") -> bool:
    """Ask the API server whether this user may do that."""
    wanted = {"verb": verb, "group": group, "resource": resource, "namespace": namespace}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    answer = api.send("POST", REVIEW, review | {"spec": {"resourceAttributes": wanted}})
    return bool(answer["status"]["allowed"])
