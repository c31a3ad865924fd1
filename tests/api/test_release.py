"""Step train of the role ocp4_workload_trainlab, and playbooks/teardown.yml, against a real API server; see training_api.py."""

from __future__ import annotations

import contextlib
import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from api_server import printed, training_api
from api_server.attendee import build
from api_server.client import Json, condition
from api_server.harness import REPO, Cluster
from charts.rendering import IMAGE, SITE
from waiting import until

pytestmark = pytest.mark.usefixtures("training")
ROLE = "ocp4_workload_trainlab_"
SPACE = "trainlab-demo"
HERE: dict[str, Any] = {
    "trainlab_namespace": SPACE,
    "trainlab_release": "survival",
    "trainlab_values": ["values/survival.yaml"],
    "trainlab_helm": str(build.binary("helm")),
}
WITH_IMAGE = {"images": {"trainer": IMAGE}}


@pytest.mark.parametrize("program", ["helm", "helm4"])
def test_trained_as_a_workload_and_torn_down(cluster: Cluster, tmp_path: Path, program: str) -> None:
    """With Helm 3 and 4: the workload trains, a second run changes nothing, one on request retrains, teardown.yml leaves only what was there."""
    bare = cluster.objects()
    wanted: dict[str, Any] = {
        f"{ROLE}kubeconfig": str(cluster.server.kubeconfig),
        f"{ROLE}steps": ["workspace", "train"],
        "output_dir": str(tmp_path),
        "trainlab_helm": str(build.binary(program)),
        f"{ROLE}site": {"storage": {"data": {"size": "1Gi"}}} | WITH_IMAGE,
        f"{ROLE}image_source": "none",
    }
    with training_api.trainer(cluster.server.kubeconfig):
        first = cluster.playbook("ocp4_workload", ACTION="create", **wanted)
        assert first.code == 0, first.text
        (job,) = cluster.client.items(training_api.KUBEFLOW, "PyTorchJob", SPACE)
        assert job["metadata"]["labels"]["app.kubernetes.io/instance"] == "survival"
        second = cluster.playbook("ocp4_workload", "-v", ACTION="create", **wanted)
        assert (second.code, second.changed) == (0, 0), second.text
        # as a failed run's message says, on the command line, where every value is a string
        anew = cluster.playbook("ocp4_workload", "-e", "train_again=true", ACTION="create", **wanted)
        assert anew.code == 0 and anew.changed, anew.text
        (other,) = cluster.client.items(training_api.KUBEFLOW, "PyTorchJob", SPACE)
        assert other["metadata"]["uid"] != job["metadata"]["uid"]

        gone = {"trainlab_namespace": SPACE, "trainlab_release": "survival", "trainlab_helm": wanted["trainlab_helm"]}
        kept = cluster.playbook("teardown", **gone)
        assert kept.code == 0, kept.text
        assert "-e teardown_volumes=true removes the volumes of the release" in " ".join(kept.text.split())
        assert cluster.client.items(training_api.KUBEFLOW, "PyTorchJob", SPACE) == []
        kept_claims = {each["metadata"]["name"] for each in claims(cluster)}
        assert kept_claims == {f"survival-{name}" for name in ("models", "runs", "data")}, "they stay unless asked for"
        undone = cluster.playbook("teardown", teardown_volumes=True, **gone)
        assert undone.code == 0, undone.text
        until(lambda: cluster.objects() == bare)
        again = cluster.playbook("teardown", teardown_volumes=True, **gone)
        assert (again.code, again.changed) == (0, 0), again.text


@pytest.mark.parametrize(
    ("api", "group", "kind"),
    [("pytorchjob", training_api.KUBEFLOW, "PyTorchJob"), ("trainjob", training_api.TRAINER, "TrainJob")],
)
def test_what_began_badly_is_repaired_by_another_run(
    cluster: Cluster, tmp_path: Path, api: str, group: str, kind: str
) -> None:
    """A killed Helm, or a webhook of Trainer that lags behind; then a job that fails: no variable is needed, nothing is lost."""
    bare, kubeconfig = cluster.objects(), cluster.server.kubeconfig
    here = HERE | {"trainlab_site": {"trainingApi": api} | WITH_IMAGE}
    made = cluster.playbook("workspace", **here)
    assert made.code == 0, made.text
    if kind == "PyTorchJob":
        killed_helm(cluster, tmp_path)
    first = {claim["metadata"]["uid"] for claim in claims(cluster)}

    def jobs() -> set[str]:
        found = cluster.client.items(group, kind, SPACE) + cluster.client.items("batch/v1", "Job", SPACE)
        return {one["metadata"]["uid"] for one in found}

    lags = training_api.lagging_webhook(kubeconfig, SPACE) if kind == "TrainJob" else contextlib.nullcontext()
    with training_api.trainer(kubeconfig, ends=False), lags:
        assert "failed: " in cluster.playbook("train", **here).error
        failed = jobs()
        assert len(failed) == 2, "the training and its promotion"
    with training_api.trainer(kubeconfig):
        repaired = cluster.playbook("train", **here)
        assert repaired.code == 0 and repaired.changed, repaired.text
        assert len(jobs()) == 2 and not jobs() & failed
        assert first <= {claim["metadata"]["uid"] for claim in claims(cluster)}
        again = cluster.playbook("train", **here)
        assert (again.code, again.changed) == (0, 0), again.text
        other = here | {"trainlab_phase_overrides": {"seed": 7}}
        asked = cluster.playbook("train", "--check", "--diff", **other)
        assert asked.code == 0 and "phase.seed: 42 -> 7" in asked.text, asked.text
        undone = cluster.playbook("teardown", teardown_volumes=True, **here)
        assert undone.code == 0, undone.text
        until(lambda: cluster.objects() == bare)


def test_a_job_that_waits_for_ever_is_removed_on_request(cluster: Cluster) -> None:
    """Its image cannot be pulled: what the message names trains; a promotion that failed is repeated without it."""
    bare, kubeconfig = cluster.objects(), cluster.server.kubeconfig
    here = HERE | {"trainlab_site": WITH_IMAGE}
    assert cluster.playbook("workspace", **here).code == 0
    with no_pull(cluster):
        stuck = cluster.playbook("train", **here).error
    assert "ImagePullBackOff" in stuck
    (job,) = cluster.client.items(training_api.KUBEFLOW, "PyTorchJob", SPACE)
    (variable,) = re.findall(r"run the playbook again with -e (\w+=\w+)", stuck)
    with training_api.trainer(kubeconfig):
        anew = cluster.playbook("train", "-e", variable, **here)
        assert anew.code == 0, anew.text
        (other,) = cluster.client.items(training_api.KUBEFLOW, "PyTorchJob", SPACE)
        assert other["metadata"]["uid"] != job["metadata"]["uid"]
        (promotion,) = cluster.client.items("batch/v1", "Job", SPACE)
        failed = [condition("FailureTarget", True), condition("Failed", True)]
        stamped = [each | {"lastTransitionTime": "2026-01-01T00:00:00Z"} for each in failed]
        cluster.client.status(promotion, {"startTime": "2026-01-01T00:00:00Z", "conditions": stamped})
        error = cluster.playbook("serve", **here).error
        (playbook,) = re.findall(r"run playbooks/(\w+)\.yml, which repeats the promotion", error)
        again = cluster.playbook(playbook, **here)
        assert again.code == 0 and again.changed, again.text
        (repeated,) = cluster.client.items("batch/v1", "Job", SPACE)
        assert repeated["metadata"]["uid"] != promotion["metadata"]["uid"]
        (same,) = cluster.client.items(training_api.KUBEFLOW, "PyTorchJob", SPACE)
        assert same["metadata"]["uid"] == other["metadata"]["uid"]
        assert cluster.playbook("teardown", teardown_volumes=True, **here).code == 0
        until(lambda: cluster.objects() == bare)


@contextlib.contextmanager
def no_pull(cluster: Cluster) -> Iterator[None]:
    """Act as the training operator and a kubelet that cannot pull: one pod of the job, waiting for its image."""
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}
    container = {"name": "pytorch", "image": IMAGE, "imageID": "", "ready": False, "restartCount": 0, "state": waiting}
    ended = threading.Event()

    def act() -> None:
        while not ended.wait(training_api.POLL_SECONDS):
            for job in cluster.client.items(training_api.KUBEFLOW, "PyTorchJob", SPACE):
                name, uid = job["metadata"]["name"], job["metadata"]["uid"]
                owner = {"apiVersion": training_api.KUBEFLOW, "kind": "PyTorchJob", "name": name, "uid": uid}
                labels = {"training.kubeflow.org/job-name": name, "app.kubernetes.io/instance": "survival"}
                metadata = {"name": name, "namespace": SPACE, "labels": labels, "ownerReferences": [owner]}
                spec = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
                pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
                with contextlib.suppress(requests.HTTPError):  # it is there
                    cluster.client.apply(pod)
                    cluster.client.status(pod, {"phase": "Pending", "containerStatuses": [container]})
                    ended.set()

    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    yield
    ended.set()
    thread.join()


def killed_helm(cluster: Cluster, tmp_path: Path) -> None:
    """kill -9 while Helm installs: the playbook names the unfinished revision; run what it says."""
    call = [HERE["trainlab_helm"], "--kubeconfig", str(cluster.server.kubeconfig), "-n", SPACE, "install", "survival"]
    call += ["-f", str(SITE)]
    # waits for claims that nothing binds
    with subprocess.Popen([*call, "charts/trainjob", "-f", "values/survival.yaml", "--wait"], cwd=REPO) as waiting:
        until(lambda: claims(cluster))
        waiting.kill()
    error = cluster.playbook("train", **HERE).error
    assert "release survival in namespace trainlab-demo has been pending-install since" in error
    (remedy,) = re.findall(r"`(.+?)`", error)
    assert "sh.helm.release.v1.survival.v1" in printed.run(remedy, tmp_path, cluster.server.kubeconfig)


def claims(cluster: Cluster) -> list[Json]:
    """The claims in the namespace of the release."""
    return cluster.client.items("v1", "PersistentVolumeClaim", SPACE)


def test_a_queue_without_a_name_applies_nothing(cluster: Cluster) -> None:
    """A LocalQueue that is requested without a name is reported, not ignored."""
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
    """Playbooks without a phase's values check the cluster's id, too, before they touch anything."""
    bare = cluster.objects()
    wanted = {"trainlab_cluster_id": "elsewhere", "trainlab_namespace": SPACE, "trainlab_release": "survival"}
    refused = cluster.playbook(playbook, "-e", "attendees_count=1", **wanted)
    assert refused.code != 0 and "Traceback" not in refused.text, refused.text
    assert "trainlab_cluster_id: elsewhere is expected" in " ".join(refused.text.split()), refused.text
    assert cluster.objects() == bare
