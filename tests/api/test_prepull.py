"""The gate of the role image: a job is not queued before its images are on the nodes; a real API server, test-only nodes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from api_server.daemons import Daemons
from api_server.harness import Cluster
from api_server.server import Server
from waiting import until

SPACE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {"name": "demo", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
}
IMAGE = "registry.example.com/trainer@sha256:" + "1" * 64
WANTED: dict[str, Any] = {
    "trainlab_namespace": "demo",
    "trainlab_release": "survival",
    "trainlab_values": ["values/survival.yaml"],
    "trainlab_site": {"images": {"trainer": IMAGE, "pullSecret": "hub"}},
    "image_prepull": True,
    "image_prepull_timeout": 40,
}
GONE: dict[str, Any] = {
    "ACTION": "remove",
    "ocp4_workload_trainlab_namespace": "demo",
    "ocp4_workload_trainlab_steps": ["image"],
}


def node(name: str, gpu: bool) -> dict[str, Any]:
    labels = {"nvidia.com/gpu.present": "true"} if gpu else {}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}


@pytest.fixture
def prepared(server: Server, cluster: Cluster, tmp_path: Path) -> Iterator[Cluster]:
    """Two nodes with GPUs, one without, and the namespace of the release; all gone afterwards."""
    things = [SPACE, node("a", True), node("b", True), node("c", False)]
    bare = cluster.objects()
    for thing in things:
        cluster.client.apply(thing)
    yield cluster
    for thing in things:
        cluster.client.delete(thing)
    until(lambda: cluster.objects() == bare)


def test_images_are_on_the_nodes_before_anything_else(prepared: Cluster) -> None:
    """Waits for each node with a GPU, changes nothing on a second run, follows a new image, and leaves nothing."""
    before, daemons = prepared.objects(), Daemons(prepared.server.kubeconfig)
    gone = GONE | {"ocp4_workload_trainlab_kubeconfig": str(prepared.server.kubeconfig)}
    planned = prepared.playbook("image", "--check", **WANTED)
    assert planned.code == 0 and planned.changed > 0, planned.text
    assert prepared.objects() == before
    with daemons.run():
        first = prepared.playbook("image", **WANTED)
        assert first.code == 0, first.text
        assert "images: on 2 of 2 nodes" in first.text
        pods = prepared.client.items("v1", "Pod", "demo")
        assert {each["spec"]["nodeName"] for each in pods} == {"a", "b"}, "restricted Pod Security took them"
        for pod in pods:
            assert {each["image"] for each in pod["spec"]["containers"]} > {IMAGE}, "the server's image too"
            assert pod["spec"]["imagePullSecrets"] == [{"name": "hub"}]
            assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in pod["spec"]["tolerations"]
        second = prepared.playbook("image", "-v", **WANTED)
        assert (second.code, second.changed) == (0, 0), second.text

        other = IMAGE.replace("1", "2")
        daemons.broken = {other}
        error = prepared.playbook("image", **WANTED | {"trainlab_site": {"images": {"trainer": other}}}).error
        assert "images are not on the nodes: pod trainlab-prepull-" in error
        assert "ImagePullBackOff" in error and "set a pull secret" in error
        daemons.broken = set()
        moved = prepared.playbook("image", **WANTED | {"trainlab_site": {"images": {"trainer": other}}})
        assert moved.code == 0, moved.text
        undone = prepared.playbook("ocp4_workload", **gone)
        assert undone.code == 0, undone.text
        until(lambda: prepared.objects() == before)
    again = prepared.playbook("ocp4_workload", **gone)
    assert (again.code, again.changed) == (0, 0), again.text


def test_no_node_and_no_end(prepared: Cluster) -> None:
    """Nodes that do not exist yet are no reason to wait; nodes that never get the image are, until the limit."""
    daemons = Daemons(prepared.server.kubeconfig)
    gone = GONE | {"ocp4_workload_trainlab_kubeconfig": str(prepared.server.kubeconfig)}
    site = WANTED["trainlab_site"]
    with daemons.run():
        none = prepared.playbook("image", **WANTED | {"trainlab_site": site | {"nodeSelector": {"a": "b"}}})
        assert none.code == 0, none.text
        assert "no node takes pods with" in none.text
        daemons.rounds = 1_000
        late = prepared.playbook("image", **WANTED | {"image_prepull_timeout": 4})
        assert "is not done after 4 s" in late.error
        assert "image_prepull_timeout" in late.error
        assert prepared.playbook("ocp4_workload", **gone).code == 0
        until(lambda: prepared.client.items("v1", "Pod", "demo") == [])
