"""What a cluster holds survives: its machine stopped, another node count asked, each of its daemons killed.

Two minutes on two cores with programs and images in the cache; with the daemons (`-m e2e`) four.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from typing import Any

import pytest
from embedded_cluster.base import system
from waiting import until

from e2e import machine

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("no_cluster", "two_nodes")]
VOLUME = machine.FOLDER / "share/rwx/pvc-1_default_runs"
SECONDS = 180.0
"""A hang guard; alone on two cores a daemon is back after about 20."""
SERVER = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: served}
spec:
  replicas: 2
  selector: {matchLabels: {app: served}}
  template:
    metadata: {labels: {app: served}}
    spec:
      terminationGracePeriodSeconds: 0
      topologySpreadConstraints:
        - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: served}}}
      containers:
        - name: main
          image: localhost/trainlab-resolves:1
          imagePullPolicy: Never
          command: [sh, -c, "echo served > /tmp/index.html && exec httpd -f -p 8080 -h /tmp"]
          readinessProbe: {httpGet: {path: /index.html, port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: served}
spec: {selector: {app: served}, ports: [{port: 80, targetPort: 8080}]}
"""


@pytest.fixture(scope="module")
def two_nodes(no_cluster: None) -> None:
    """Two nodes with a server on each, a ConfigMap, and a file in a volume."""
    machine.cluster("up", "--nodes", "2")
    machine.kubectl("create", "configmap", "mine", "--from-literal=words=years of work")
    machine.kubectl("apply", "-f", "-", stdin=SERVER)
    machine.kubectl("rollout", "status", "deployment/served", "--timeout=120s")
    (VOLUME / "run-1").mkdir(parents=True)
    (VOLUME / "run-1" / "manifest.json").write_text("{}")


def _items(*argv: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = json.loads(machine.kubectl("get", *argv, "-o", "json"))["items"]
    return items


def _identities() -> dict[str, str]:
    """What a new cluster would have made anew: the nodes, the ConfigMap, the file in the volume."""
    objects = [*_items("nodes"), *_items("configmaps", "--field-selector=metadata.name=mine")]
    result = {each["metadata"]["name"]: each["metadata"]["uid"] for each in objects}
    return result | {"volume": (VOLUME / "run-1" / "manifest.json").read_text()}


def _answers() -> bool:
    """Whether the server answers by the address of its Service, through kube-proxy, from this machine."""
    address = machine.kubectl("get", "service", "served", "-o", "jsonpath={.spec.clusterIP}")
    command = ["curl", "-sf", "--noproxy", "*", "--max-time", "2", f"http://{address}/index.html"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout == "served\n"


@pytest.mark.rest
def test_nodes_share_the_memory() -> None:
    """Together they offer pods no more than the machine has, and the parts that Kubernetes takes are small."""
    offered = [int(node["status"]["allocatable"]["memory"].removesuffix("Ki")) * 1024 for node in _items("nodes")]
    assert system.memory_total() - 2**30 < sum(offered) < system.memory_total()


@pytest.mark.rest
def test_another_node_count_is_refused() -> None:
    """With what differs, what would be lost, and the word; all stays as it is."""
    before = _identities()
    said = machine.cluster("up", "--nodes", "1", code=2)
    assert f"the cluster in {machine.FOLDER} cannot be kept: it was made with NODES=2, asked is NODES=1" in said
    assert "default/runs (1 MiB, 1 run)" in said and "RECREATE=1 with make demo" in said
    assert _identities() == before and _answers()
    assert machine.cluster("up", "--nodes", "2").endswith("changed=false\n")


@pytest.mark.rest
def test_a_reboot_brings_it_back() -> None:
    """The same nodes, objects and volumes; the servers serve again, and a second `up` changes nothing."""
    before = _identities()
    machine.power_off()
    assert not json.loads(machine.cluster("status"))["running"]
    said = machine.cluster("up", "--nodes", "2")
    assert said.endswith("changed=true\n") and "prepare" not in said
    until(_answers, SECONDS, lambda: machine.kubectl("get", "pods", "-o", "wide"), 0.5)
    assert _identities() == before
    assert list(machine.ready_nodes()) == ["n1", "n2"]
    assert machine.cluster("up", "--nodes", "2").endswith("changed=false\n")
    assert "cannot be kept" in machine.cluster("up", "--nodes", "1", code=2)


@pytest.mark.rest
def test_a_stopped_one_is_kept_as_well() -> None:
    """`stop` ends it; refused and started as one that runs."""
    before = _identities()
    assert machine.cluster("stop").endswith("changed=true\n") and not machine.ours()
    assert machine.cluster("stop").endswith("changed=false\n")
    assert "1 MiB, 1 run" in machine.cluster("up", "--nodes", "1", code=2)
    assert machine.cluster("up", "--nodes", "2").endswith("changed=true\n")
    assert _identities() == before


@pytest.mark.rest
def test_a_node_whose_first_process_is_killed_comes_back() -> None:
    """All its processes and mounts go with it."""
    before = _identities()
    line = re.compile(rf"bash \S+/node\.sh {machine.FOLDER} n2 ")
    (first,) = [pid for pid, words in machine.ours().items() if line.fullmatch(words)]
    os.kill(first, signal.SIGKILL)
    assert machine.cluster("up", "--nodes", "2").endswith("changed=true\n")
    assert _identities() == before and list(machine.ready_nodes()) == ["n1", "n2"]


def _program(node: str, name: str) -> int:
    """The process of a program that runs once in the node; 0 if it does not."""
    group = machine.group(node)
    running = {pid: words for pid, words in machine.ours().items() if pid in group}
    return next((pid for pid, words in running.items() if words.split(" ")[0].rpartition("/")[2] == name), 0)


def _tried(*argv: str) -> str:
    """What kubectl printed; empty where the API server does not answer."""
    with contextlib.suppress(AssertionError):
        return machine.kubectl(*argv)
    return ""


def _serves_anew(node: str, older: set[str]) -> bool:
    """Whether a pod that is not one of the older ones runs on the node, and reaches the Service by that node's kube-proxy."""
    columns = "custom-columns=:.metadata.name,:.status.containerStatuses[0].ready"
    said = _tried(
        "get", "pods", "-l", "app=served", f"--field-selector=spec.nodeName={node}", "--no-headers", "-o", columns
    )
    new = [name for name, ready in map(str.split, said.splitlines()) if ready == "true" and name not in older]
    address = _tried("get", "service", "served", "-o", "jsonpath={.spec.clusterIP}")
    return bool(new and _tried("exec", new[0], "--", "wget", "-qO-", f"http://{address}/index.html"))


@pytest.mark.tier
@pytest.mark.parametrize(
    ("node", "name"),
    [
        *(("n1", name) for name in ("containerd", "kubelet", "kube-proxy", "etcd", "kube-apiserver")),
        *(("n2", name) for name in ("containerd", "kubelet", "kube-proxy")),
    ],
)
def test_a_killed_daemon_comes_back(node: str, name: str) -> None:
    """By itself: nobody runs a command. Then all pods are made anew, and that node's one reaches the Service."""
    before, older = _identities(), {pod["metadata"]["name"] for pod in _items("pods")}
    killed, began = _program(node, name), time.monotonic()
    assert killed
    os.kill(killed, signal.SIGKILL)
    until(lambda: _program(node, name) not in (0, killed), SECONDS, machine.ours, 0.5)
    until(lambda: _tried("delete", "pods", "-l", "app=served", "--wait=false"), SECONDS)
    until(lambda: _serves_anew(node, older), SECONDS, lambda: _tried("get", "pods", "-o", "wide"), 0.5)
    print(f"{node}: {name} is back and used after {time.monotonic() - began:.1f} s")
    assert _identities() == before and _answers()
    assert machine.cluster("up", "--nodes", "2").endswith("changed=false\n")


@pytest.mark.rest
def test_with_the_word_a_new_one_takes_its_place() -> None:
    """The last test of this cluster: nothing of it is left."""
    machine.cluster("up", "--nodes", "1", "--recreate")
    assert list(machine.ready_nodes()) == ["n1"] and not VOLUME.exists()
    assert [each["metadata"]["name"] for each in _items("configmaps")] == ["kube-root-ca.crt"]
