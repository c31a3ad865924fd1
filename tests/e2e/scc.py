"""The UIDs that OpenShift gives to the pods of each namespace, in nodes that run them: an admission webhook for openshift.py.

Sources: openshift/cluster-policy-controller 050c1ee6aeb0, pkg/security/controller/namespace_scc_allocation_controller.go:202, gives
each namespace a block of UIDs; openshift/apiserver-library-go a8019f39f670, pkg/securitycontextconstraints, gives each container the
first of them (user/mustrunasrange.go:38) and the pod's volumes its group (sccmatching/provider.go:115), and refuses others
(user/mustrunasrange.go:50, sccadmission/admission.go:130). That is the constraint restricted-v2, which all authenticated accounts
may use, and no other here. Not set are SELinux's labels: the kernel of this machine has none.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

from api_server.admission import Reviews
from api_server.client import Client, Json

RANGE, GROUPS = "openshift.io/sa.scc.uid-range", "openshift.io/sa.scc.supplemental-groups"
VALIDATED, CONSTRAINT = "openshift.io/scc", "restricted-v2"
FIRST, BLOCK = 1_000_000_000, 10_000
"""UIDAllocatorRange, pkg/cmd/cluster-policy-controller/openshiftcontrolplane_config.go:33."""
VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
"""Those that the constraint allows: openshift/cluster-kube-apiserver-operator, bindata/bootkube/scc-manifests, scc-restricted-v2.yaml
(05211dd6fa93), and csi and ephemeral, which its restricted-v3 (5d56b28eb52f) has and newer releases of it."""
CONFIGURATION = "uids.tests.trainlab.rhoai"


class Constraints:
    """Gives UIDs to the pods of all namespaces that come from now on; those that are there are the platform's own."""

    def __init__(self, client: Client, address: str) -> None:
        """Listen on an address of this machine that the API server reaches."""
        self._client, self._given = client, 0
        self._reviews = Reviews(self._answer, address)
        self._made = self._configuration()
        client.apply(self._made)

    def close(self) -> None:
        """Give no more; pods that run go on."""
        self._client.delete(self._made)
        self._reviews.close()

    def _configuration(self) -> Json:
        known = [one["metadata"]["name"] for one in self._client.items("v1", "Namespace")]
        others = {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": known}]}
        hooks = [
            {
                "name": f"{resource}.{CONFIGURATION}",
                "clientConfig": self._reviews.client_config(resource),
                "rules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "resources": [resource], "operations": ["CREATE"]}
                ],
                "namespaceSelector": others,
                "failurePolicy": "Fail",
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }
            for resource in ("namespaces", "pods")
        ]
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": CONFIGURATION},
            "webhooks": hooks,
        }

    def _answer(self, resource: str, request: Json) -> Json:
        """Return the response to a request of admission."""
        thing, response = request["object"], {"uid": request["uid"], "allowed": True}
        if resource == "namespaces":
            self._given += 1
            block = f"{FIRST + self._given * BLOCK}/{BLOCK}"
            patch = [annotated(thing, {RANGE: block, GROUPS: block})]
        else:
            space = self._client.look("v1", "Namespace", request["namespace"])
            block = ((space or {}).get("metadata", {}).get("annotations") or {})[RANGE]
            first = int(block.partition("/")[0])
            if wrong := list(refused(thing, first)):
                text = f"unable to validate against any security context constraint: {wrong}"
                return response | {"allowed": False, "status": {"code": 403, "reason": "Forbidden", "message": text}}
            patch = given(thing, first)
        encoded = base64.b64encode(json.dumps(patch).encode()).decode("ascii")
        return response | {"patchType": "JSONPatch", "patch": encoded}


def annotated(thing: Json, more: dict[str, str]) -> Json:
    """Return the patch that adds annotations."""
    return {"op": "add", "path": "/metadata/annotations", "value": (thing["metadata"].get("annotations") or {}) | more}


def containers(pod: Json) -> Iterator[tuple[str, Json]]:
    """Yield the path and the content of each container."""
    for sort in ("initContainers", "containers"):
        for at, one in enumerate(pod["spec"].get(sort) or []):
            yield f"/spec/{sort}/{at}", one


def refused(pod: Json, first: int) -> Iterator[str]:
    """Yield what the constraint does not allow, as OpenShift says it."""
    whole = pod["spec"].get("securityContext") or {}
    for path, container in containers(pod):
        own = container.get("securityContext") or {}
        name = path.removeprefix("/").replace("/", ".")
        uid = own.get("runAsUser", whole.get("runAsUser"))
        if uid is not None and not first <= uid < first + BLOCK:
            yield f"{name}.runAsUser: Invalid value: {uid}: must be in the ranges: [{first}, {first + BLOCK - 1}]"
        if own.get("privileged") or own.get("allowPrivilegeEscalation"):
            yield f"{name}.privileged: Invalid value: true: Privileged containers are not allowed"
        if (own.get("capabilities") or {}).get("add"):
            yield f"{name}.capabilities.add: Invalid value: capability may not be added"
    group = whole.get("fsGroup")
    if group is not None and not first <= group < first + BLOCK:
        yield f"spec.securityContext.fsGroup: Invalid value: {group} is not an allowed group"
    for volume in pod["spec"].get("volumes") or []:
        if not VOLUMES & volume.keys():
            yield f"spec.volumes: Invalid value: {next(iter(volume.keys() - {'name'}))!r} volumes are not allowed to be used"


def given(pod: Json, first: int) -> list[Json]:
    """Return the patch with what the constraint gives: a UID to each container without, a group to the volumes, no way to more rights."""
    whole = pod["spec"].get("securityContext") or {}
    whole = {"fsGroup": first, "seccompProfile": {"type": "RuntimeDefault"}} | whole
    patch = [annotated(pod, {VALIDATED: CONSTRAINT}), {"op": "add", "path": "/spec/securityContext", "value": whole}]
    for path, one in containers(pod):
        own = one.get("securityContext") or {}
        uid = {} if "runAsUser" in whole else {"runAsUser": first}
        dropped = {"drop": ["ALL"]} | (own.get("capabilities") or {})
        own = uid | {"allowPrivilegeEscalation": False, "runAsNonRoot": True} | own | {"capabilities": dropped}
        patch.append({"op": "add", "path": f"{path}/securityContext", "value": own})
    return patch
