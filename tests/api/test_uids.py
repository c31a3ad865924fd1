"""The UIDs of OpenShift's namespaces, as make test-openshift has them in nodes that run pods (tests/e2e/scc.py), on a real API server."""

from typing import Any

import pytest
from api_server.client import Client, Json
from api_server.server import Server
from e2e import scc
from requests import HTTPError
from waiting import until

SPACE = "uids"


def made(client: Client, **spec: Any) -> Json:
    """Create a pod and return it as it was admitted."""
    container = {"name": "it", "image": "it", **spec.pop("container", {})}
    pod = {"metadata": {"name": "it", "namespace": SPACE}, "spec": {"containers": [container], **spec}}
    result = client.apply({"apiVersion": "v1", "kind": "Pod", **pod})
    client.delete(result | {"apiVersion": "v1", "kind": "Pod"})
    return result


REFUSED: list[tuple[dict[str, Any], str]] = [
    (
        {"container": {"securityContext": {"runAsUser": 1001}}},
        "runAsUser: Invalid value: 1001: must be in the ranges: [",
    ),
    ({"securityContext": {"runAsUser": 1001}}, "runAsUser: Invalid value: 1001: must be in the ranges: ["),
    ({"securityContext": {"fsGroup": 1001}}, "fsGroup: Invalid value: 1001"),
    ({"container": {"securityContext": {"privileged": True}}}, "Privileged containers are not allowed"),
    ({"container": {"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}}, "capability may not be added"),
    ({"volumes": [{"name": "host", "hostPath": {"path": "/"}}]}, "'hostPath' volumes are not allowed"),
]


def test_a_pod_gets_the_first_uid_of_its_namespace_and_no_other(training: Server) -> None:
    """With its group for the volumes, what it asks for besides kept; what the constraint does not allow is refused, as is the image's UID."""
    client = Client(training.kubeconfig)
    constraints = scc.Constraints(client, "127.0.0.1")
    space: Json = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}}
    try:
        # the API server asks a new webhook a moment later
        until(lambda: scc.RANGE in client.apply(space)["metadata"].get("annotations", {}) or client.delete(space))
        pod = made(client, container={"securityContext": {"readOnlyRootFilesystem": True}})
        own, whole = pod["spec"]["containers"][0]["securityContext"], pod["spec"]["securityContext"]
        assert own["runAsUser"] == whole["fsGroup"] >= scc.FIRST + scc.BLOCK
        assert own["readOnlyRootFilesystem"] and own["capabilities"] == {"drop": ["ALL"]}
        assert pod["metadata"]["annotations"][scc.VALIDATED] == scc.CONSTRAINT
        for spec, words in REFUSED:
            with pytest.raises(HTTPError) as error:
                made(client, **spec)
            assert error.value.response.status_code == 403 and words in error.value.response.text
    finally:
        constraints.close()
        client.delete(space)
