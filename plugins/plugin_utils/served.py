"""Where a playbook asks the served model: through the API server's proxy, which works wherever the API does; used by serve_wait and verify."""

from __future__ import annotations

from .kube import Api, Json
from .pods import name

AUTH = "security.opendatahub.io/enable-auth"


def address(api: Api, namespace: str, release: str, service: Json) -> str:
    """Return the path of the server of a release, whose InferenceService this is, without a slash at its end.

    With site.auth that is a pod's: its Service then has only the port that wants a token, and the API server keeps the caller's
    for itself. Who may reach pods through it may also ask the model.
    """
    space = f"/api/v1/namespaces/{namespace}"
    if (service.get("metadata", {}).get("annotations") or {}).get(AUTH) == "true":
        for pod in api.items(f"{space}/pods", f"serving.kserve.io/inferenceservice={release}"):
            if not pod["metadata"].get("deletionTimestamp"):
                return f"{space}/pods/{name(pod)}:8080/proxy"
    return f"{space}/services/{release}-predictor:80/proxy"


def loaded(listing: Json) -> set[str]:
    """Return the names in an answer of /v1/models without the other runs on the volume, which load only when somebody asks them."""
    return {str(each["id"]) for each in listing.get("data", []) if not each.get("on_request")}
