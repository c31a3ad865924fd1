"""What the chart looks up in a cluster, and refuses before an object is made; the rest of it is in tests/api."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from api_server.scopes import CLASS, COUNTED, by_class, told

from charts.lookups import Lookups
from charts.rendering import REAL_CLUSTER, VALUES, documents

FULL = (str(VALUES / "survival.yaml"),)
LOCAL = (*FULL, str(VALUES / "local" / "survival.yaml"))
OWN = "site.serviceAccount=own"
PREFLIGHT = (OWN, "site.preflight=true")
EXISTING = ("site.storage.models.existing=team", "site.storage.runs.existing=team")
MONITORS = "monitoring.coreos.com/v1/PodMonitor"
ROUTES = "route.openshift.io/v1"
AUTOSCALERS = "autoscaling.openshift.io/v1beta1/MachineAutoscaler"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Lookups]:
    """A cluster with nothing in it."""
    made = Lookups(tmp_path)
    yield made
    made.close()


def thing(kind: str, name: str, **parts: Any) -> dict[str, Any]:
    """An object as lookup returns it."""
    return {"kind": kind, "metadata": {"name": name, **parts.pop("metadata", {})}, **parts}


def limits(kind: str, **bounds: dict[str, str]) -> dict[str, Any]:
    """A LimitRange of one type."""
    return thing("LimitRange", "team", spec={"limits": [{"type": kind, **bounds}]})


def quota(hard: dict[str, str], scopes: dict[str, Any] | None = None, **used: str) -> dict[str, Any]:
    """A ResourceQuota."""
    return thing("ResourceQuota", "team", spec={"hard": hard, **(scopes or {})}, status={"used": used})


def claim(name: str, mode: str = "ReadWriteMany") -> dict[str, Any]:
    """A claim."""
    return thing("PersistentVolumeClaim", name, spec={"accessModes": [mode]})


def node(**allocatable: str) -> dict[str, Any]:
    """A node."""
    return thing("Node", "n", status={"allocatable": allocatable})


STORAGE = "LimitRange team: a PersistentVolumeClaim"
BIG, SMALL = {"storage": "1Ti"}, {"storage": "1Gi"}
PODS = {
    limits_of: f"ResourceQuota team counts {limits_of}, and no LimitRange sets one; the API server refuses pods without it; "
    f"remove {limits_of} from it, or give namespace lab a LimitRange with a {given}"
    for limits_of, given in (
        ("limits.ephemeral-storage", "default"),
        ("requests.ephemeral-storage", "defaultRequest"),
        ("ephemeral-storage", "defaultRequest"),
    )
}
ROOM = [
    *((quota({entry: "64Gi"}), words) for entry, words in PODS.items()),
    (
        quota({"pods": "4"}),
        "ResourceQuota team: pods is 4, 0 in use, the release makes 5 at once: 4 of the job, 1 of the promotion; pods of "
        "the job could not be created; raise it, free what is in use, or lower phase.resources.nodes",
    ),
    (
        quota({"count/pods": "6"}, **{"count/pods": "1"}),
        "count/pods is 6, 1 in use, the release makes 6 that stay: 4 of the job, 1 of the promotion, 1 of the server; pods",
    ),
    (
        limits("PersistentVolumeClaim", max=SMALL),
        f"{STORAGE} may have 1Gi of storage at most, demo-models requests 20Gi; the API server refuses the claim; raise it, or "
        "set site.storage.models.size",
    ),
    (
        limits("PersistentVolumeClaim", min=BIG),
        f"{STORAGE} has to have 1Ti of storage at least, demo-models requests 20Gi; the API server refuses the claim; lower it, "
        "or set site.storage.models.size",
    ),
    (
        limits("Pod", max={"cpu": "64"}),
        "LimitRange team: a Pod may have 64 of cpu at most, and no LimitRange sets a limit; the API server refuses pods without "
        "a CPU limit, and a limit slows all ranks of a job; remove max.cpu from it, or give namespace lab a LimitRange with a "
        "default",
    ),
]


@pytest.mark.parametrize(("found", "words"), ROOM, ids=[words[-60:] for _, words in ROOM])
def test_what_quotas_and_limits_refuse_is_told_before(cluster: Lookups, found: dict[str, Any], words: str) -> None:
    cluster.objects = [found]
    done = cluster.template(LOCAL, OWN, "phase.resources.nodes=4")
    assert done.returncode != 0 and words in done.stderr


def test_what_quotas_and_limits_let_pass(cluster: Lookups) -> None:
    storage = {"ephemeral-storage": "1Gi"}
    cluster.objects = [
        limits("Container", default={"cpu": "4", **storage}, defaultRequest=storage),
        limits("Pod", max={"cpu": "64"}),
        limits("PersistentVolumeClaim", min=SMALL, max=BIG),
        quota(dict.fromkeys(PODS, "64Gi") | {"pods": "5", "count/pods": "6"}),
    ]
    documents(cluster.template(LOCAL, OWN, "phase.resources.nodes=4"))
    cluster.objects = [quota({"pods": "4", "count/pods": "4"})]
    documents(cluster.template(LOCAL, "site.serving=false", "phase.resources.nodes=4"))
    cluster.objects = [quota({"count/pods": "6"}, **{"count/pods": "6"})]
    documents(cluster.template(LOCAL, OWN, "phase.resources.nodes=4", upgrade=True))  # what is in use is its own
    cluster.objects = [limits("PersistentVolumeClaim", max=SMALL), claim("team")]
    documents(cluster.template(LOCAL, OWN, *EXISTING))  # it makes none


@pytest.mark.parametrize(("scopes", "priority", "counted"), COUNTED)
def test_a_quota_with_scopes_is_told_for_the_pods_that_it_counts(
    cluster: Lookups, scopes: dict[str, Any], priority: str, counted: list[str]
) -> None:
    cluster.objects = [quota({"requests.cpu": "1m"}, scopes)]
    done = cluster.template(LOCAL, OWN, f"site.priorityClass={priority}")
    if words := told(counted):
        assert f"ResourceQuota team: requests.cpu is 1m, 0 in use, {words}" in done.stderr
    else:
        documents(done)


def test_pods_are_counted_by_scopes_too(cluster: Lookups) -> None:
    sets = (OWN, "phase.resources.nodes=4", f"site.priorityClass={CLASS}")
    for scopes, enough, words in (
        (by_class("In", CLASS), 4, "4 at once: 4 of the job; pods"),
        ({"scopes": ["NotTerminating"]}, 2, "2 at once: 1 of the promotion, 1 of the server; the server could not"),
        (
            {"scopes": ["NotTerminating"]},
            3,
            "3 at once: 1 of the promotion, 1 of TensorBoard, 1 of the server; the server",
        ),
    ):
        board = f"site.tensorboard.enabled={str('TensorBoard' in words).lower()}"
        cluster.objects = [quota({"pods": str(enough)}, scopes)]
        documents(cluster.template(LOCAL, *sets, board))
        cluster.objects = [quota({"pods": str(enough - 1)}, scopes)]
        said = cluster.template(LOCAL, *sets, board).stderr
        assert f"pods is {enough - 1}, 0 in use, the release makes {words}" in said


def test_an_existing_claim_that_is_not_there_is_refused(cluster: Lookups) -> None:
    done = cluster.template(LOCAL, OWN, *EXISTING)
    assert done.returncode != 0
    assert (
        "site.storage.models.existing: namespace lab has no claim team; the pods would wait for it; create it, or set existing "
        "to '' so that the release creates one"
    ) in done.stderr
    cluster.objects = [claim("team")]
    documents(cluster.template(LOCAL, OWN, *EXISTING))


def made(name: str, size: str, phase: str) -> dict[str, Any]:
    """A claim of the release, of a size, Bound or Pending."""
    return thing(
        "PersistentVolumeClaim",
        name,
        metadata={"annotations": {"trainlab.dev/storage-class": ""}},
        spec={"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": size}}},
        status={"phase": phase},
    )


def test_a_claim_without_an_asked_size_keeps_the_larger_one_that_it_has(cluster: Lookups) -> None:
    cluster.objects = [made("demo-runs", "1Ti", "Bound")]
    claims = [each for each in documents(cluster.template(LOCAL, OWN)) if each["kind"] == "PersistentVolumeClaim"]
    (size,) = [each["spec"]["resources"]["requests"] for each in claims if each["metadata"]["name"] == "demo-runs"]
    assert size == {"storage": "1Ti"}


def test_only_a_bound_claim_grows(cluster: Lookups) -> None:
    cluster.objects = [made("demo-runs", "1Ti", "Bound")]
    documents(cluster.template(LOCAL, OWN, "site.storage.runs.size=2Ti"))
    cluster.objects = [made("demo-runs", "1Ti", "Pending")]
    said = cluster.template(LOCAL, OWN, "site.storage.runs.size=2Ti").stderr
    assert (
        "site.storage.runs.size: 2Ti, but the claim demo-runs has 1Ti and is not bound, and only a bound one can"
        in said
    )
    said = cluster.template(LOCAL, OWN, "site.storage.runs.size=1Gi").stderr
    assert "site.storage.runs.size: 1Gi, but the claim demo-runs has 1Ti and no claim can shrink; set 1Ti" in said


PARTS = [
    {"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.product": "NVIDIA-L40S-SHARED"},
    {"nvidia.com/gpu.replicas": "1", "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb"},
    {"nvidia.com/gpu.replicas": "2"},
]


@pytest.mark.parametrize("labels", PARTS)
def test_ranks_are_refused_where_every_gpu_of_the_cluster_is_a_part_of_one(
    cluster: Lookups, labels: dict[str, str]
) -> None:
    part, whole = node(**{"nvidia.com/gpu": "4"}), node(**{"nvidia.com/gpu": "4"})
    part["metadata"]["labels"] = labels
    cluster.objects = [part, claim("team")]
    words = (
        "phase.resources.gpus_per_node: the job has 4 ranks, and every nvidia.com/gpu of the cluster is a part of a GPU"
    )
    assert words in cluster.template(FULL, *PREFLIGHT, *EXISTING).stderr
    documents(cluster.template(FULL, *PREFLIGHT, *EXISTING, "phase.resources.nodes=1"))
    documents(cluster.template(FULL, *PREFLIGHT, *EXISTING, "site.spread=required"))
    cluster.objects.append(whole)
    documents(cluster.template(FULL, *PREFLIGHT, *EXISTING))


def test_gpus_that_an_autoscaler_may_add_are_no_error(cluster: Lookups) -> None:
    """As in the playbooks' check: only where no node has any yet; one that is too small stays too small."""
    cluster.objects = [node(cpu="8"), claim("team")]
    scaled = (*REAL_CLUSTER, AUTOSCALERS)
    done = cluster.template(FULL, *PREFLIGHT, *EXISTING)
    words = "phase.resources.gpus_per_node: 1 asked, but no node of the cluster offers more than 0 nvidia.com/gpu; set it to"
    assert words in done.stderr and "site.preflight to false where an autoscaler adds such nodes" in done.stderr
    documents(cluster.template(FULL, *PREFLIGHT, *EXISTING, served=scaled))
    cluster.objects = [node(**{"nvidia.com/gpu": "4"}), claim("team")]
    five = ("phase.resources.gpus_per_node=5", "phase.resources.processes_per_node=5")
    assert "offers more than 4 nvidia" in cluster.template(FULL, *PREFLIGHT, *EXISTING, *five, served=scaled).stderr


def test_no_gpu_is_asked_for_a_server_that_is_not_made(cluster: Lookups) -> None:
    cluster.objects = [node(cpu="8"), claim("team")]
    none = ("phase.serve.gpus=1", "site.images.vllm=a/b:1", "phase.serve.runtime=vllm", "phase.serve.dtype=bfloat16")
    said = cluster.template(LOCAL, *PREFLIGHT, *EXISTING, *none).stderr
    assert "phase.serve.gpus: 1 asked, but no node" in said
    documents(cluster.template(LOCAL, *PREFLIGHT, *EXISTING, *none, "site.serving=false"))


@pytest.mark.parametrize("nodes", [1, 4])
def test_block_storage_is_told_with_what_the_job_needs(cluster: Lookups, nodes: int) -> None:
    default = {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}
    cluster.objects = [thing("StorageClass", "gp3", metadata=default, provisioner="ebs.csi.aws.com")]
    done = cluster.template(LOCAL, *PREFLIGHT, f"phase.resources.nodes={nodes}")
    several = (
        "the 4 pods of the job run on several nodes and share the volume; set site.storage.models.storageClass to a class of "
        "shared storage, or phase.resources.nodes to 1 and site.storage.models.accessMode to ReadWriteOnce"
    )
    one = (
        "which site.storage.models.accessMode asks for; set that to ReadWriteOnce, which keeps all pods of the release on one "
        "node, or site.storage.models.storageClass to a class of shared storage"
    )
    words = f"site.storage.models: StorageClass gp3 (ebs.csi.aws.com) does not offer ReadWriteMany; {one if nodes == 1 else several}"
    assert words in done.stderr


MADE = [
    (
        "PodMonitor",
        ("site.monitoring.enabled=true",),
        "makes a PodMonitor; where you may not, set site.monitoring.enabled to false",
    ),
    (
        "Route",
        ("site.expose.enabled=true", "site.platform=openshift"),
        "makes a Route or an Ingress; where you may not, set site.expose.enabled to false",
    ),
    (
        "Ingress",
        ("site.expose.enabled=true", "site.expose.host=a.example.com"),
        "makes a Route or an Ingress; where you may not, set site.expose.enabled to false",
    ),
]


@pytest.mark.parametrize(("kind", "sets", "words"), MADE, ids=[each[0] for each in MADE])
def test_who_may_not_make_one_is_told_before_the_job_is_made(
    cluster: Lookups, kind: str, sets: tuple[str, ...], words: str
) -> None:
    served = (*REAL_CLUSTER, MONITORS, *([ROUTES] if kind == "Route" else []))
    documents(cluster.template(LOCAL, OWN, *sets, served=served))
    cluster.forbidden = {kind}
    done = cluster.template(LOCAL, OWN, *sets, served=served)
    assert done.returncode != 0 and words in done.stderr and "forbidden" in done.stderr


TRAINJOB, JOBSET = "trainer.kubeflow.org/v1alpha1/TrainJob", "jobset.x-k8s.io/v1alpha2"
BOTH = (*REAL_CLUSTER, TRAINJOB, JOBSET)
SECOND = ("v1/Pod", TRAINJOB, "serving.kserve.io/v1beta1")


@pytest.mark.parametrize(
    ("served", "before", "asked", "kind"),
    [
        (REAL_CLUSTER, None, "auto", "PyTorchJob"),
        (SECOND, None, "auto", "TrainJob"),
        (BOTH, None, "auto", "TrainJob"),
        ((*REAL_CLUSTER, TRAINJOB), None, "auto", "PyTorchJob"),
        (BOTH, None, "pytorchjob", "PyTorchJob"),
        (BOTH, {"api": "pytorchjob"}, "auto", "PyTorchJob"),
        (BOTH, {}, "auto", "PyTorchJob"),
        (BOTH, {"api": "pytorchjob"}, "trainjob", "TrainJob"),
        (BOTH, {"api": "trainjob"}, "auto", "TrainJob"),
        ((*REAL_CLUSTER, TRAINJOB), {"api": "trainjob"}, "auto", "TrainJob"),
        (SECOND, {"api": "pytorchjob"}, "auto", "TrainJob"),
        (REAL_CLUSTER, {"api": "trainjob"}, "auto", "PyTorchJob"),
    ],
    ids=[
        *("only-pytorchjob", "only-trainjob", "new", "no-jobset", "asked", "upgrade", "upgrade-of-an-older-chart"),
        *("asked-to-move", "moved", "moved-no-jobset", "pytorchjob-gone", "trainjob-gone"),
    ],
)
def test_a_release_stays_the_kind_of_job_that_it_is_and_a_new_one_is_a_trainjob_where_one_can_run(
    cluster: Lookups, served: tuple[str, ...], before: dict[str, str] | None, asked: str, kind: str
) -> None:
    if before is not None:
        cluster.objects = [thing("ConfigMap", "demo", data={"run": "r", "job": "j", "trained.json": "{}"} | before)]
    found = documents(
        cluster.template(LOCAL, OWN, f"site.trainingApi={asked}", served=served, upgrade=before is not None)
    )
    made = [each for each in found if each["kind"] in ("PyTorchJob", "TrainJob")]
    (record,) = (each for each in found if each["kind"] == "ConfigMap" and each["metadata"]["name"] == "demo")
    assert [each["kind"] for each in made] == [kind] and record["data"]["api"] == kind.lower()


def test_a_lease_that_runs_is_ended_although_the_upgrade_has_no_hours(cluster: Lookups) -> None:
    """The model of the revision before is served until then: whoever takes it down must not go."""

    def kinds() -> set[str]:
        return {each["kind"] for each in documents(cluster.template(LOCAL, OWN, upgrade=True))}

    cluster.objects = [
        thing("InferenceService", "demo", metadata={"annotations": {"trainlab.dev/served-until": "2026"}})
    ]
    assert "CronJob" in kinds()
    cluster.objects = [thing("InferenceService", "demo")]
    assert "CronJob" not in kinds()
