"""The table of tests/api_server/scopes.py, which the chart and the playbook's check follow, as a real API server counts pods."""

from __future__ import annotations

from copy import deepcopy

import pytest
import requests
from api_server.client import Client, Json
from api_server.scopes import CLASS, COUNTED
from api_server.server import Server
from charts.rendering import case, one, rendered, with_service
from waiting import until

pytestmark = pytest.mark.usefixtures("training")


def test_a_quota_with_scopes_counts_the_pods_that_it_is_expected_to(server: Server) -> None:
    """Asked, in a namespace for each quota, with the pods that the operators make of the chart's objects."""
    client = Client(server.kubeconfig)
    specs = pods()

    def make(api: str, kind: str, name: str, space: str = "", **parts: object) -> None:
        client.apply({"apiVersion": api, "kind": kind, "metadata": {"name": name, "namespace": space}, **parts})

    def counted(space: str, priority: str) -> list[str]:
        return [kind for kind, spec in specs.items() if is_counted(client, space, pod(spec, kind, priority))]

    make("scheduling.k8s.io/v1", "PriorityClass", CLASS, value=1)
    # What counts something is made last: by the time it does, the admission has heard of all others, too.
    ordered = sorted(enumerate(COUNTED), key=lambda each: bool(each[1][2]))
    for number, (scopes, _, _) in ordered:
        space = f"scopes-{number}"
        make("v1", "Namespace", space)
        make("v1", "ServiceAccount", "default", space)
        make("v1", "ResourceQuota", "scoped", space, spec={"hard": {"requests.cpu": "1m"}, **scopes})
        until(lambda space=space: (client.look("v1", "ResourceQuota", "scoped", space) or {})["status"].get("hard"))  # type: ignore[misc]
    for number, (scopes, priority, counts) in reversed(ordered):
        space = f"scopes-{number}"
        if counts:
            until(lambda space=space, priority=priority: counted(space, priority), said=lambda scopes=scopes: scopes)  # type: ignore[misc]
        found = counted(space, priority)
        if "scopeSelector" in scopes:  # without a class, where the chart cannot know the cluster's default
            found = [kind for kind in found if kind != "promotion"]
        assert found == counts, scopes
    client.delete({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": CLASS}})


def pods() -> dict[str, Json]:
    """The specs of the pods of job, server and promotion."""
    objects = with_service(rendered(case("survival-local-pytorchjob")))
    (promotion,) = (each for each in objects if each["kind"] == "Job")
    return {
        "job": one(objects, "PyTorchJob")["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"],
        "server": {"containers": one(objects, "ServingRuntime")["spec"]["containers"]},
        "promotion": promotion["spec"]["template"]["spec"],
    }


def pod(spec: Json, kind: str, priority: str) -> Json:
    """A pod as it would be made in a namespace that has nothing else."""
    wanted = {key: deepcopy(spec[key]) for key in ("activeDeadlineSeconds", "containers") if key in spec}
    wanted |= {"priorityClassName": priority} if priority and kind != "promotion" else {}
    # without the claims, of which no quota of the table counts anything
    for container in wanted["containers"]:
        container.pop("volumeMounts", None)
    wanted["automountServiceAccountToken"], wanted["restartPolicy"] = False, "Never"
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": kind}, "spec": wanted}


def is_counted(client: Client, space: str, wanted: Json) -> bool:
    """Whether the namespace's quota refuses this pod."""
    try:
        client.send("POST", f"/api/v1/namespaces/{space}/pods", wanted, dryRun="All")
    except requests.HTTPError as error:
        assert "exceeded quota: scoped" in str(error), error
        return True
    return False
