"""The table of tests/api_server/scopes.py, which the chart and the playbook's check follow, as a real API server counts pods."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial

import pytest
import requests
from api_server.client import Client, Json
from api_server.scopes import CLASS, COUNTED
from api_server.server import Server
from charts.rendering import case, one, rendered, with_service
from waiting import until

EXCEEDED = "exceeded quota: scoped"
pytestmark = pytest.mark.usefixtures("training")


def test_a_quota_with_scopes_counts_the_pods_that_it_is_expected_to(server: Server) -> None:
    """Asked, in a namespace for each quota, with the pods that the operators make of the chart's objects."""
    client = Client(server.kubeconfig)
    specs = pods()

    def make(api: str, kind: str, name: str, space: str = "", **parts: object) -> None:
        client.apply({"apiVersion": api, "kind": kind, "metadata": {"name": name, "namespace": space}, **parts})

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
        wanted = {kind: pod(spec, kind, priority) for kind, spec in specs.items()}
        ask = partial(refusals, client, f"scopes-{number}", wanted)
        until(partial(heard, ask, counts), said=ask)
        found = [kind for kind, each in ask().items() if each]
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


def heard(ask: Callable[[], dict[str, str]], counts: list[str]) -> bool:
    """Whether the admission has heard of account, class and quota.

    Until then it has other reasons to refuse a pod ("status unknown for quota"), or none.
    """
    said = ask().values()
    return all(not each or EXCEEDED in each for each in said) and (any(said) or not counts)


def refusals(client: Client, space: str, wanted: dict[str, Json]) -> dict[str, str]:
    """Why the namespace does not take each pod, empty if it does."""
    return {kind: refusal(client, space, each) for kind, each in wanted.items()}


def refusal(client: Client, space: str, wanted: Json) -> str:
    """Why the namespace does not take this pod, empty if it does."""
    try:
        client.send("POST", f"/api/v1/namespaces/{space}/pods", wanted, dryRun="All")
    except requests.HTTPError as error:
        return str(error)
    return ""
