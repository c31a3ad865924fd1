"""playbooks/operators.yml on a real API server without nodes: upstream's manifests apply, once, and go without a trace."""

from __future__ import annotations

import base64
import contextlib
import threading
from collections.abc import Iterator

import pytest
import requests
from api_server import crds
from api_server.client import Client, Json, condition
from api_server.harness import Cluster
from waiting import until

NAMES = ["jobset", "trainer", "kserve", "kueue"]
IMAGE = "registry.example.com/kueue@sha256:" + "0" * 64
RULES = "admissionregistration.k8s.io/v1"
WEBHOOKS = ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")


@contextlib.contextmanager
def nodes(client: Client) -> Iterator[None]:
    """Act as the controllers and nodes that are not there: every Deployment becomes available."""
    ended = threading.Event()

    def act() -> None:
        while not ended.wait(0.5):
            with contextlib.suppress(requests.HTTPError):
                for one in client.items("apps/v1", "Deployment"):
                    if not one.get("status"):
                        counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), 1)
                        status = {"observedGeneration": one["metadata"]["generation"], **counts}
                        client.status(one, status | {"conditions": [condition("Available", True)]})

    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    yield
    ended.set()
    thread.join()


@pytest.fixture
def others(cluster: Cluster) -> Iterator[list[Json]]:
    """Somebody's own JobSet, and a namespace that is there before."""
    made = crds.jobset()
    made.append({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kserve"}})
    for one in made:
        cluster.client.apply(one)
    yield made
    for one in made:
        cluster.client.delete(one)
    until(lambda: not any(cluster.client.look(*key(one)) for one in made))


def key(one: Json) -> tuple[str, str, str]:
    """API version, kind and name of an object of no namespace."""
    return one["apiVersion"], one["kind"], one["metadata"]["name"]


def test_installed_once_and_removed_without_a_trace(cluster: Cluster, others: list[Json]) -> None:
    client, before = cluster.client, cluster.objects()
    given = {"operators_names": NAMES, "operators_images": {"kueue": IMAGE}}
    with nodes(client):
        first = cluster.playbook("operators", **given)
    assert first.code == 0, first.text
    assert (
        first.changed == 1
        and "jobset is there and not ours, and stays as it is: CustomResourceDefinition" in first.text
    )
    images = {
        one["metadata"]["namespace"]: [each["image"] for each in one["spec"]["template"]["spec"]["containers"]]
        for one in client.items("apps/v1", "Deployment")
    }
    assert images.keys() == {"kubeflow-system", "kserve", "kueue-system"}
    assert images["kueue-system"] == [IMAGE] and images["kserve"][0].startswith("docker.io/kserve/kserve-controller:v")
    secret = client.look("v1", "Secret", "kserve-webhook-server-cert", "kserve")
    config = client.look(RULES, WEBHOOKS[0], "inferenceservice.serving.kserve.io")
    assert secret and config
    assert config["webhooks"][0]["clientConfig"]["caBundle"] == secret["data"]["ca.crt"]
    assert b"BEGIN CERTIFICATE" in base64.b64decode(secret["data"]["tls.crt"])

    second = cluster.playbook("operators", **given)
    assert (second.code, second.changed) == (0, 0), second.text

    removed = cluster.playbook("operators", operators_state="absent", **given)
    assert removed.code == 0, removed.text
    assert cluster.objects() == before


def test_what_others_use_stays(cluster: Cluster) -> None:
    """Their job keeps its operator; check mode removes nothing; an operator that is gone is removed by no change."""
    client, before = cluster.client, cluster.objects()
    given = {"operators_names": ["training-operator"]}
    with nodes(client):
        first = cluster.playbook("operators", **given)
    assert first.code == 0, first.text
    theirs = unanswered(client)
    refused = cluster.playbook("operators", operators_state="absent", **given)
    assert "others use it: PyTorchJob default/theirs" in refused.error and "operators_remove_data=true" in refused.error
    assert client.look("apps/v1", "Deployment", "training-operator", "kubeflow")
    client.delete(theirs)
    planned = cluster.playbook("operators", "--check", operators_state="absent", **given)
    assert planned.code == 0 and cluster.objects() != before
    removed = cluster.playbook("operators", operators_state="absent", **given)
    assert removed.code == 0, removed.text
    assert cluster.objects() == before
    again = cluster.playbook("operators", operators_state="absent", **given)
    assert (again.code, again.changed) == (0, 0), again.text


def unanswered(client: Client) -> Json:
    """Somebody's PyTorchJob, made while the webhooks of the operators, which do not run here, are away."""
    for kind in WEBHOOKS:
        for one in client.items(RULES, kind):
            client.delete(one)
    replica = {"template": {"spec": {"containers": [{"name": "pytorch", "image": "any"}]}}}
    spec = {"pytorchReplicaSpecs": {"Master": replica}}
    named = {"name": "theirs", "namespace": "default"}
    return client.apply({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": named, "spec": spec})


def test_names_that_cannot_be_installed(cluster: Cluster) -> None:
    """One that does not exist, and one that is the embedded cluster's."""
    for name, words in (("kubeflow", "no such operator: kubeflow"), ("kwok", "is for the embedded cluster only")):
        assert words in cluster.playbook("operators", operators_names=[name]).error
