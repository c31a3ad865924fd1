"""Step train of the role ocp4_workload_trainlab, and playbooks/teardown.yml, against a real API server; see training_api.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from api_server import training_api
from api_server.attendee import build, until
from api_server.harness import Cluster
from api_server.server import Server

ROLE = "ocp4_workload_trainlab_"
SPACE = "trainlab-demo"


@pytest.fixture(scope="module")
def server(training: Server) -> Server:
    """Not the bare OpenShift."""
    return training


def test_trained_as_a_workload_and_torn_down(cluster: Cluster, tmp_path: Path) -> None:
    """The workload trains, a second run changes nothing, one that is asked to trains anew, teardown.yml leaves nothing but what was there before."""
    bare = cluster.objects()
    wanted: dict[str, Any] = {
        f"{ROLE}kubeconfig": str(cluster.server.kubeconfig),
        f"{ROLE}steps": ["workspace", "train"],
        "output_dir": str(tmp_path),
        "trainlab_helm": str(build.binary("helm")),
        f"{ROLE}site": {"storage": {"data": {"size": "1Gi"}}},
    }
    with training_api.trainer(cluster.server.kubeconfig):
        first = cluster.playbook("ocp4_workload", ACTION="create", **wanted)
        assert first.code == 0, first.text
        (job,) = cluster.client.items(training_api.KUBEFLOW, "PyTorchJob", SPACE)
        assert job["metadata"]["labels"]["app.kubernetes.io/instance"] == "survival"
        second = cluster.playbook("ocp4_workload", "-v", ACTION="create", **wanted)
        assert (second.code, second.changed) == (0, 0), second.text
        # as the message of a failed run says it, on the command line, where every value is a string
        anew = cluster.playbook("ocp4_workload", "-e", "train_again=true", ACTION="create", **wanted)
        assert anew.code == 0 and anew.changed, anew.text
        (other,) = cluster.client.items(training_api.KUBEFLOW, "PyTorchJob", SPACE)
        assert other["metadata"]["uid"] != job["metadata"]["uid"]

        gone = {"trainlab_namespace": SPACE, "trainlab_release": "survival", "trainlab_helm": wanted["trainlab_helm"]}
        kept = cluster.playbook("teardown", **gone)
        assert kept.code == 0, kept.text
        assert "-e teardown_volumes=true removes volumes" in kept.text
        assert cluster.client.items(training_api.KUBEFLOW, "PyTorchJob", SPACE) == []
        claims = {each["metadata"]["name"] for each in cluster.client.items("v1", "PersistentVolumeClaim", SPACE)}
        assert claims == {f"survival-{name}" for name in ("models", "runs", "data")}, "they stay unless asked for"
        undone = cluster.playbook("teardown", teardown_volumes=True, **gone)
        assert undone.code == 0, undone.text
        until(lambda: cluster.objects() == bare)
        again = cluster.playbook("teardown", teardown_volumes=True, **gone)
        assert (again.code, again.changed) == (0, 0), again.text


def test_a_queue_without_a_name_applies_nothing(cluster: Cluster) -> None:
    """A LocalQueue that is asked for but has no name is told, not left out."""
    bare = cluster.objects()
    error = cluster.playbook(
        "workspace",
        trainlab_namespace=SPACE,
        trainlab_release="survival",
        trainlab_values=["values/survival.yaml"],
        trainlab_cluster_queue="nvidia-pool",
    ).error
    assert "trainlab_cluster_queue is nvidia-pool, but site.queue is empty" in error
    assert "trainlab_site" in error
    assert cluster.objects() == bare


@pytest.mark.parametrize("playbook", ["teardown", "platform_teardown", "attendees"])
def test_another_cluster_than_the_one_that_is_meant_is_left_alone(cluster: Cluster, playbook: str) -> None:
    """Playbooks without a phase's values look at the cluster's id, too, before they touch anything."""
    bare = cluster.objects()
    wanted = {"trainlab_cluster_id": "elsewhere", "trainlab_namespace": SPACE, "trainlab_release": "survival"}
    refused = cluster.playbook(playbook, "-e", "attendees_count=1", **wanted)
    assert refused.code != 0 and "Traceback" not in refused.text, refused.text
    assert "trainlab_cluster_id: elsewhere is expected" in " ".join(refused.text.split()), refused.text
    assert cluster.objects() == bare
