"""The test-only operators themselves: they report, make and deny what statuses/ says, without any playbook."""

from __future__ import annotations

import time
from typing import Any

import requests
from api_server import catalog, recorded
from api_server.harness import Cluster

OLM = "operators.coreos.com"
DSC, DSCI = "datasciencecluster.opendatahub.io/v2", "dscinitialization.opendatahub.io/v2"
Json = dict[str, Any]
OURS: Json = {"labels": {"trainlab.dev/owner": "platform"}}
"""So that the role's undo removes it."""


def test_statuses_objects_and_denials_are_those_of_the_files(cluster: Cluster) -> None:
    """Each step is seen, in its order, and what OpenShift AI makes without an owner outlives its owner."""
    client, bare = cluster.client, cluster.objects()
    for package, namespace in (("nfd", "openshift-nfd"), ("rhods-operator", "redhat-ods-operator")):
        install(cluster, package, namespace, "stable" if package == "nfd" else "stable-3.4")
    csv = ("operators.coreos.com/v1alpha1", "ClusterServiceVersion", "nfd.4.20.0-202510211040", "openshift-nfd")
    steps = recorded.read("olm")["sequences"]["ClusterServiceVersion"]
    assert seen(cluster, csv, lambda status: status.get("reason"), "Succeeded") == unique(
        [step["status"]["reason"] for step in steps]
    )

    nfd = {"apiVersion": "nfd.openshift.io/v1", "kind": "NodeFeatureDiscovery"}
    client.apply(nfd | {"metadata": OURS | {"name": "nfd-instance", "namespace": "openshift-nfd"}, "spec": {}})
    place = (nfd["apiVersion"], nfd["kind"], "nfd-instance", "openshift-nfd")
    steps = recorded.read("nfd-4.20")["sequences"]["NodeFeatureDiscovery"]
    assert seen(cluster, place, active, "AllInstanceComponentsAreDeployedSuccessfuly") == unique(
        [active(step["status"]) for step in steps]
    )

    wait(lambda: client.look("services.platform.opendatahub.io/v1alpha1", "GatewayConfig", "default-gateway"))
    auth = client.look("services.platform.opendatahub.io/v1alpha1", "Auth", "auth")
    assert auth and "ownerReferences" not in auth["metadata"]
    cluster_ = {"apiVersion": DSC, "kind": "DataScienceCluster", "spec": {}}
    client.apply(cluster_ | {"metadata": OURS | {"name": "default-dsc"}})
    made = wait(lambda: client.look(DSCI, "DSCInitialization", "default-dsci"))
    denied(lambda: client.apply(cluster_ | {"metadata": {"name": "another"}}), "Only one instance")
    denied(lambda: client.delete(made | {"apiVersion": DSCI, "kind": "DSCInitialization"}), "Cannot delete")
    managed = {"spec": {"components": {"kueue": {"managementState": "Managed"}}}}
    denied(lambda: client.merge(cluster_ | {"metadata": {"name": "default-dsc"}}, managed), "Managed is no longer")

    assert cluster.playbook("platform_teardown").code == 0
    wait(lambda: cluster.objects() == bare)


def install(cluster: Cluster, package: str, namespace: str, channel: str) -> None:
    """Subscribe as the role does."""
    targets = {"targetNamespaces": [namespace]} if catalog.PACKAGES[package].mode == catalog.OWN else {}
    spec = {"name": package, "channel": channel, "source": catalog.PACKAGES[package].source}
    for thing in (
        {"apiVersion": "v1", "kind": "Namespace", "metadata": OURS | {"name": namespace}},
        {"apiVersion": f"{OLM}/v1", "kind": "OperatorGroup", "spec": targets},
        {"apiVersion": f"{OLM}/v1alpha1", "kind": "Subscription"}
        | {"spec": {**spec, "sourceNamespace": "openshift-marketplace"}},
    ):
        named = {"metadata": OURS | {"name": package, "namespace": namespace}}
        cluster.client.apply(named | thing)


def active(status: Json) -> str:
    """The reason of the condition that is True, of those that are not about upgrades."""
    kinds = ("Available", "Progressing", "Degraded")
    true = [one["reason"] for one in status.get("conditions", []) if one["type"] in kinds and one["status"] == "True"]
    return true[0] if true else ""


def unique(values: list[str]) -> list[str]:
    """Without what is equal to its predecessor."""
    return [value for at, value in enumerate(values) if at == 0 or values[at - 1] != value]


def seen(cluster: Cluster, place: tuple[str, str, str, str], key: Any, last: str) -> list[str]:
    """Poll an object's status until its key, or its phase, is the last one; return its values in their order."""
    values: list[str] = []
    end = time.monotonic() + 60
    while time.monotonic() < end:
        status = ((cluster.client.look(*place) or {}).get("status")) or {}
        values += [key(status)] if key(status) else []
        if last in (key(status), status.get("phase")):
            return unique(values)
        time.sleep(0.05)
    raise AssertionError(f"{place}: {unique(values)}")


def denied(request: Any, words: str) -> None:
    """A new policy applies a moment later."""

    def refused() -> bool:
        try:
            request()
        except requests.HTTPError as error:
            return words in str(error)
        return False

    wait(refused)


def wait(question: Any) -> Any:
    """Return the first answer that is true."""
    end = time.monotonic() + 60
    while not (answer := question()):
        assert time.monotonic() < end, question
        time.sleep(0.2)
    return answer
