"""The webhooks that deny a workload whose HardwareProfile is not there, as admission webhooks that policies.py registers.

Which of them a release has, with whose name, words and HTTP status, is in statuses/rhoai-RELEASE.yaml. The real ones write what the
profile says into the workload, too; these only deny.
"""

from __future__ import annotations

from api_server.admission import Reviews
from api_server.client import Client, Json

WHAT = "a hardware profile that is not there"
API = "infrastructure.opendatahub.io"
NAME, NAMESPACE = "opendatahub.io/hardware-profile-name", "opendatahub.io/hardware-profile-namespace"


class Profiles:
    """One HTTPS server for the webhooks of a release, started with the first of them."""

    def __init__(self, client: Client) -> None:
        """Deny nothing before it is asked for a webhook."""
        self._client = client
        self._denials: dict[str, Json] = {}
        self._reviews: Reviews | None = None

    def webhook(self, denial: Json) -> Json:
        """Return the configuration that makes the API server ask here; `denial` is an entry of the file."""
        self._reviews = self._reviews or Reviews(self._answer)
        name = denial["webhook"]
        self._denials[name] = denial
        group, version, resource = denial["resource"].split("/")
        rule = {"apiGroups": [group], "apiVersions": [version], "resources": [resource]}
        hook = {
            "name": name,
            "clientConfig": self._reviews.client_config(name),
            "rules": [rule | {"operations": denial["operations"]}],
            # the real one allows what names no profile; asked for nothing else, as no node of the embedded cluster reaches loopback
            "matchConditions": [
                {"name": "named", "expression": f"'{NAME}' in object.metadata.?annotations.orValue({{}})"}
            ],
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": name},
            "webhooks": [hook],
        }

    def _answer(self, webhook: str, request: Json) -> Json:
        """Return the response to a request of admission."""
        denial = self._denials[webhook]
        metadata, allowed = request["object"]["metadata"], {"uid": request["uid"], "allowed": True}
        annotations = metadata.get("annotations") or {}
        name = annotations.get(NAME)
        if not name or metadata.get("deletionTimestamp"):
            return allowed
        space = annotations.get(NAMESPACE) or request["namespace"]
        if any(self._client.look(f"{API}/{one}", "HardwareProfile", name, space) for one in ("v1", "v1alpha1")):
            return allowed
        status = {key: denial[key] for key in ("code", "reason") if key in denial}
        said = denial["message"].format(name=name, namespace=space)
        return allowed | {"allowed": False, "status": status | {"message": said}}
