"""Each check of OpenShift's operators, of queues, quotas and clocks: once passing, and with each fault it knows."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from xml.etree import ElementTree

import pytest
from ansible_collections.trainlab.rhoai.plugins.action.checks import junit
from ansible_collections.trainlab.rhoai.plugins.plugin_utils.checks import run_all
from ansible_collections.trainlab.rhoai.plugins.plugin_utils.checks.resources import gpus
from api_server import recorded

from plugins.checking import NS, OPENSHIFT, Case, both, break_, node, want

DSC = "/apis/datasciencecluster.opendatahub.io/v2"
DSCS = f"{DSC}/datascienceclusters"
CSVS = "/apis/operators.coreos.com/v1alpha1/namespaces/{}/clusterserviceversions"
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
POOL, LOCAL = f"{KUEUE}/clusterqueues/pool", f"{KUEUE}/namespaces/demo/localqueues/team"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
REGISTRY = "/apis/imageregistry.operator.openshift.io/v1/configs/cluster"
POLICIES = "/apis/nvidia.com/v1/clusterpolicies"
KSERVE = "/api/v1/namespaces/redhat-ods-applications/configmaps/inferenceservice-config"
VERSION = "/apis/config.openshift.io/v1/clusterversions/version"
RANGES = f"{NS}/limitranges"
MONITORING = "/api/v1/namespaces/openshift-monitoring/configmaps/cluster-monitoring-config"
GANG = "/apis/kueue.openshift.io/v1/kueues/cluster"
GPU = "nvidia.com/gpu"


def served(*names: str) -> dict[str, Any]:
    return {"resources": [{"name": name} for name in names]}


def policy(sequence: str, step: int = -1) -> dict[str, Any]:
    """The ClusterPolicy as the GPU operator reports it."""
    status = recorded.read("gpu-operator-26.3")["sequences"][sequence][step]["status"]
    return {"items": [{"metadata": {"name": "gpu-cluster-policy"}, "status": status}]}


def gpu_node(name: str, *taints: dict[str, str], gpus: str = "1") -> dict[str, Any]:
    made = node(name, **{GPU: gpus})
    made["metadata"]["labels"]["feature.node.kubernetes.io/pci-10de.present"] = "true"
    made["spec"] = {"taints": list(taints)}
    return made


def csv(name: str, phase: str = "Succeeded") -> dict[str, Any]:
    return {"items": [{"metadata": {"name": name}, "status": {"phase": phase}}]}


def leases(**seconds: float) -> dict[str, Any]:
    """Leases of nodes, renewed the given number of seconds ago."""
    now = datetime.now(UTC)
    return {
        "items": [
            {
                "metadata": {"name": name},
                "spec": {"renewTime": (now - timedelta(seconds=ago)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")},
            }
            for name, ago in seconds.items()
        ]
    }


def limit_range(kind: str = "Container", **bounds: dict[str, str]) -> dict[str, Any]:
    return {"items": [{"metadata": {"name": "team"}, "spec": {"limits": [{"type": kind, **bounds}]}}]}


def queue(**nominal: str) -> dict[str, Any]:
    resources = [{"name": name, "nominalQuota": amount} for name, amount in nominal.items()]
    return {"spec": {"resourceGroups": [{"flavors": [{"name": "gpu", "resources": resources}]}]}}


def borrower(limits: dict[str, str] | None = None, **nominal: str) -> dict[str, Any]:
    """A ClusterQueue in a cohort, from which it borrows as much as there is, or up to these limits."""
    made = queue(**nominal)
    for each in made["spec"]["resourceGroups"][0]["flavors"][0]["resources"]:
        each |= {"borrowingLimit": limits[each["name"]]} if limits else {}
    return {"spec": {"cohort": "all", **made["spec"]}}


ENOUGH = {"cpu": "8", "memory": "64Gi", GPU: "4"}
NODES = "/api/v1/nodes"
FOUR = [gpu_node(f"n{number}") for number in range(1, 5)]
COLD = [{**each, "status": each["status"] | {"images": []}} for each in FOUR]
TAINT = {"key": "dedicated", "effect": "NoSchedule"}
PROFILES = "/apis/infrastructure.opendatahub.io/v1"
SMALL = f"{PROFILES}/namespaces/redhat-ods-applications/hardwareprofiles"
JOBSET = "/apis/jobset.x-k8s.io/v1alpha2"


def not_ready(*conditions: dict[str, str]) -> dict[str, Any]:
    spec = {"components": {"trainer": {"managementState": "Managed"}, "kueue": {"managementState": "Unmanaged"}}}
    status = {"phase": "Not Ready", "conditions": list(conditions)}
    return {"items": [{"metadata": {"name": "default-dsc"}, "spec": spec, "status": status}]}


NO_TRAINER = {"type": "TrainerReady", "status": "False", "reason": "Error", "message": "JobSet CRD not found"}
REMOVED = {
    "type": "RayReady",
    "status": "False",
    "reason": "Removed",
    "message": "Component ManagementState is Removed",
}


def config(text: str) -> dict[str, Any]:
    """The administrator's configuration of the monitoring."""
    return {"data": {"config.yaml": text}}


def platform(**states: str) -> dict[str, Any]:
    """A DataScienceCluster whose components have these states."""
    spec = {"components": {name: {"managementState": state} for name, state in states.items()}}
    return {"items": [{"metadata": {"name": "default-dsc"}, "spec": spec, "status": {"phase": "Ready"}}]}


TEAM = {"metadata": {"name": "team"}, "spec": {"clusterQueue": "pool"}}
INACTIVE = {
    "type": "Active",
    "status": "False",
    "reason": "FlavorNotFound",
    "message": "Can't admit new workloads: references missing ResourceFlavor(s): big.",
}


def changed(thing: dict[str, Any], block: str, **fields: Any) -> dict[str, Any]:
    """The same object with some fields of a block."""
    return thing | {block: {**thing.get(block, {}), **fields}}


@pytest.fixture
def case(cluster: Any) -> Case:
    """OpenShift AI 3.4 on OpenShift 4.20 with four GPU nodes and a queue; the image is built there."""
    made = Case(cluster)
    objects = cluster.objects
    made.phase["resources"]["gpus_per_node"] = 1
    made.site["queue"] = "team"
    made.options.image_source = "checkout"
    made.site["images"] = {"trainer": "", "pullSecret": "", "pullPolicy": "IfNotPresent"}
    objects[NODES] = {"items": FOUR}
    objects[VERSION] = {"status": {"desired": {"version": "4.20.3"}}}
    objects[CSVS.format("openshift-nfd")] = csv("nfd.4.20.0-202510211040")
    objects[CSVS.format("redhat-ods-operator")] = csv("rhods-operator.3.4.3")
    objects[CSVS.format("openshift-kueue-operator")] = csv("kueue-operator.v1.3.1")
    objects["/apis/nvidia.com/v1"] = served("clusterpolicies")
    objects[POLICIES] = policy("ClusterPolicy")
    objects[DSC] = served("datascienceclusters")
    objects[DSCS] = platform(trainingoperator="Managed")
    objects[PROFILES] = served("hardwareprofiles")
    objects[f"{SMALL}/small"] = {"metadata": {"name": "small"}}
    objects[SMALL] = {"items": [objects[f"{SMALL}/small"]]}
    made.site["hardwareProfile"] = {"name": "small", "namespace": "redhat-ods-applications"}
    objects[JOBSET] = served("jobsets")
    objects["/apis/cert-manager.io/v1"] = served("certificates")
    objects["/apis/kueue.openshift.io/v1"] = served("kueues")
    objects[GANG] = {"spec": {"config": {"gangScheduling": {"policy": "None"}}}}
    objects[REGISTRY] = {"spec": {"managementState": "Managed"}}
    objects[KSERVE] = {"data": {"deploy": json.dumps({"defaultDeploymentMode": "RawDeployment"})}}
    objects[KUEUE] = served("localqueues")
    local = TEAM
    objects[f"{KUEUE}/namespaces/demo/localqueues"] = {"items": [local]}
    objects[LOCAL] = local
    objects[POOL] = queue(**ENOUGH)
    objects[RANGES] = limit_range(max={"cpu": "4"})
    made.site["monitoring"]["enabled"] = True
    objects[MONITORING] = config("prometheusK8s: {retention: 15d}\nenableUserWorkload: true")
    objects[LEASES] = leases(n1=1, n2=9, n3=5, n4=2)
    return made


def test_a_job_that_waits_in_the_queue_is_told_with_kueues_reason(case: Case) -> None:
    job = {
        "metadata": {"name": "survival-1", "labels": {}},
        "spec": {"runPolicy": {"suspend": True}},
        "status": {"conditions": [{"type": "Suspended", "status": "True"}]},
    }
    said = "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor big, 4 more needed"
    reserved = {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": said}
    owned = {"name": "w", "ownerReferences": [{"kind": "PyTorchJob", "name": "survival-1"}]}
    case.cluster.objects["/apis/kubeflow.org/v1/namespaces/demo/pytorchjobs"] = {"items": [job]}
    case.cluster.objects[f"{KUEUE}/namespaces/demo/workloads"] = {
        "items": [{"metadata": owned, "status": {"conditions": [reserved]}}]
    }
    assert f"PyTorchJob survival-1 waits: {said}" in case.states()["queue quota"].what


def test_each_is_content(case: Case) -> None:
    found = case.states()
    assert {title: found[title].sentence for title in OPENSHIFT if found[title].state != "ok"} == {}


def test_each_is_skipped_on_a_cluster_that_has_none_of_it(cluster: Any) -> None:
    found = Case(cluster).states()
    assert {title for title in OPENSHIFT if found[title].state != "skipped"} == set()


TRAINJOBS = break_("/apis/trainer.kubeflow.org/v1alpha1", served("trainjobs"))
NFD, OPERATOR, TAINTS, AI = "Node Feature Discovery", "GPU operator", "GPU taints", "OpenShift AI"
QUOTA, TRAINING = "queue quota", "training operator"
FAULTS: list[tuple[str, Callable[[Case], None], str, str]] = [
    (NFD, break_(NODES, {"items": [node("n1")]}), "error", "pci-10de"),
    (NFD, break_(CSVS.format("openshift-nfd"), csv("nfd.4.18.0-1")), "warning", "older than OpenShift 4.20"),
    (OPERATOR, break_(POLICIES, {"items": []}), "error", "no ClusterPolicy"),
    (OPERATOR, break_(POLICIES, policy("ClusterPolicy", 1)), "error", "OperandNotReady"),
    (OPERATOR, break_(POLICIES, policy("ClusterPolicy, no GPU nodes")), "error", "nodes have an NVIDIA GPU"),
    (
        OPERATOR,
        break_(NODES, {"items": [gpu_node("n1", gpus="0")]}),
        "error",
        "nodes with an NVIDIA GPU offer none: n1",
    ),
    (TAINTS, break_(NODES, {"items": [gpu_node("n1", TAINT)]}), "error", "{key: dedicated, operator: Exists"),
    (TAINTS, break_(NODES, {"items": [gpu_node("n1", TAINT), gpu_node("n2")]}), "warning", "1 of 2 GPU nodes"),
    (AI, break_(DSCS, {"items": []}), "error", "no DataScienceCluster"),
    (
        AI,
        both(break_(DSCS, not_ready(NO_TRAINER, REMOVED)), break_(JOBSET, 404)),
        "error",
        "TrainerReady: JobSet CRD not found; missing: jobset; a component that is not ready serves no API; "
        'playbooks/platform.yml -e \'{"platform_operators": ["jobset"]}\'',
    ),
    (
        AI,
        both(
            break_(DSCS, not_ready(NO_TRAINER)),
            break_("/apis/cert-manager.io/v1", 404),
            break_("/apis/kueue.openshift.io/v1", 404),
        ),
        "error",
        "missing: cert_manager, kueue",
    ),
    (
        TRAINING,
        break_(DSCS, platform(trainingoperator="Removed", trainer="Managed")),
        "error",
        "site.trainingApi: auto makes a PyTorchJob, and trainingoperator of the DataScienceCluster is Removed",
    ),
    (
        TRAINING,
        both(TRAINJOBS, break_(DSCS, platform(trainingoperator="Managed", trainer="Removed"))),
        "error",
        "makes a TrainJob, and trainer of the DataScienceCluster is Removed; its API is still there, but nobody runs the job: it "
        "would wait forever; set site.trainingApi to pytorchjob",
    ),
    (
        TRAINING,
        both(TRAINJOBS, break_(DSCS, platform())),
        "error",
        "set platform_components.trainer.managementState to Managed",
    ),
    (
        "hardware profile",
        want(site__hardwareProfile__namespace=""),
        "error",
        "names demo/small, which is not there (in demo: none); OpenShift AI refuses the InferenceService",
    ),
    (
        "hardware profile",
        want(site__hardwareProfile__name="large"),
        "error",
        "names redhat-ods-applications/large, which is not there (in redhat-ods-applications: small)",
    ),
    ("versions", break_(VERSION, {"status": {"desired": {"version": "4.16.1"}}}), "warning", "4.19 to 4.22"),
    ("versions", break_(CSVS.format("redhat-ods-operator"), csv("rhods-operator.3.0.0")), "warning", "not one of 2.25"),
    (
        "versions",
        both(
            break_(CSVS.format("openshift-kueue-operator"), csv("kueue-operator.v1.4.0")),
            want(site__trainingApi="trainjob"),
        ),
        "error",
        "never admitted",
    ),
    # what Red Hat's chart leaves: the product's default components, and the newest Kueue
    *(
        (
            "versions",
            both(break_(CSVS.format("openshift-kueue-operator"), csv("kueue-operator.v1.4.2")), *jobs),
            "error",
            "never admitted",
        )
        for jobs in ((TRAINJOBS,), (TRAINJOBS, break_("/apis/kubeflow.org/v1", served())))
    ),
    ("image registry", break_(REGISTRY, {"spec": {"managementState": "Removed"}}), "error", "is Removed"),
    (
        "serving mode",
        break_(KSERVE, {"data": {"deploy": json.dumps({"defaultDeploymentMode": "Serverless"})}}),
        "warning",
        "no Knative",
    ),
    (QUOTA, break_(POOL, queue(cpu="8", memory="64Gi")), "error", "does not cover nvidia"),
    (QUOTA, break_(POOL, queue(**ENOUGH | {GPU: "2"})), "error", "the job requests 4"),
    (QUOTA, break_(POOL, borrower(cpu="8")), "error", "does not cover memory"),
    (
        QUOTA,
        break_(POOL, borrower(ENOUGH | {GPU: "1"}, **ENOUGH | {GPU: "2"})),
        "error",
        "has 2 of nvidia.com/gpu and may borrow 1, the job requests 4",
    ),
    (
        QUOTA,
        break_(RANGES, limit_range(default={"ephemeral-storage": "1Gi"}, defaultRequest={"ephemeral-storage": "1Gi"})),
        "error",
        "does not cover ephemeral-storage, which the pods request (added by LimitRange",
    ),
    (QUOTA, break_(RANGES, limit_range(default={"ephemeral-storage": "1Gi"})), "error", "cover ephemeral-storage"),
    (
        QUOTA,
        both(
            break_(RANGES, limit_range(defaultRequest={"example.com/disk": "3"})),
            break_(POOL, queue(**ENOUGH | {"example.com/disk": "11"})),
        ),
        "error",
        "has 11 of example.com/disk, the job requests 12",
    ),
    (QUOTA, break_(POOL, changed(queue(**ENOUGH), "spec", stopPolicy="Hold")), "error", "ClusterQueue pool is on hold"),
    (QUOTA, break_(LOCAL, changed(TEAM, "spec", stopPolicy="HoldAndDrain")), "error", "LocalQueue team is on hold"),
    (
        QUOTA,
        break_(POOL, changed(queue(**ENOUGH), "status", conditions=[INACTIVE])),
        "error",
        "ClusterQueue pool is inactive: Can't admit new workloads: references missing ResourceFlavor(s): big",
    ),
    (
        "queue named default",
        break_(f"{KUEUE}/namespaces/demo/localqueues", {"items": [{"metadata": {"name": "default"}}]}),
        "warning",
        "delete localqueue default",
    ),
    (
        "pull window",
        both(
            break_(GANG, {"spec": {"config": {"gangScheduling": {"policy": "ByWorkload"}}}}),
            break_(NODES, {"items": COLD}),
        ),
        "warning",
        "5 minutes",
    ),
    ("user monitoring", break_(MONITORING, 404), "warning", "edit configmap cluster-monitoring-config"),
    (
        "user monitoring",
        break_(MONITORING, config("prometheusK8s: {retention: 15d}")),
        "warning",
        "is None, wanted True",
    ),
    ("user monitoring", break_(MONITORING, config("not: [yaml")), "warning", "is None, wanted True"),
    ("clocks", break_(LEASES, leases(n1=1, n2=200, n3=5)), "warning", "the clocks of n1 and n2"),
    ("clocks", break_(LEASES, leases(n1=-9000, n2=-9002)), "warning", "this machine and that of the cluster"),
]


@pytest.mark.parametrize(
    ("title", "fault", "state", "words"), FAULTS, ids=[f"{each[0]}-{number}" for number, each in enumerate(FAULTS)]
)
def test_a_fault_is_found_with_its_remedy(
    case: Case, title: str, fault: Callable[[Case], None], state: str, words: str
) -> None:
    fault(case)
    found = case.states()[title]
    assert found.state == state, found
    assert words in found.sentence
    assert found.fix


def test_every_check_of_this_file_has_a_fault() -> None:
    assert {each[0] for each in FAULTS} == OPENSHIFT


def test_what_would_be_no_fault(case: Case) -> None:
    objects = case.cluster.objects
    objects[POOL] = borrower(**ENOUGH | {GPU: "1"})
    objects[RANGES] = limit_range(default={"cpu": "4"})
    objects[NODES] = {"items": [gpu_node("n1", {"key": GPU, "effect": "NoSchedule"})]}
    mode = '{"defaultDeploymentMode": "RawDeployment"}'
    objects[KSERVE] = {"data": {"deploy": mode, "service": '{"serviceClusterIPNone": true}'}}
    found = case.states()
    assert found["serving mode"].state == "ok", "headless Services"
    assert found["queue quota"].state == "skipped", "what others in the cohort do not use is not known"
    objects[POOL] = borrower(**ENOUGH)
    assert case.states()["queue quota"].state == "ok", "nothing needs to be borrowed"
    assert found[TAINTS].state == "ok", "the chart tolerates the resource's own taint"


def test_a_slice_tolerates_the_taint_of_whole_gpus(case: Case) -> None:
    case.site["gpuResource"] = slice_ = "nvidia.com/mig-1g.10gb"
    sliced = gpu_node("n1", {"key": GPU, "effect": "NoSchedule"})
    sliced["status"]["allocatable"][slice_] = "4"
    case.cluster.objects[NODES] = {"items": [sliced]}
    assert case.states()[TAINTS].state == "ok"


def test_gpu_nodes_with_their_own_taint_are_counted_and_no_row_contradicts_another(case: Case) -> None:
    """As GKE sets it by itself and the chart tolerates it; a CPU node is no room for pods with GPUs."""
    tainted = [
        gpu_node(f"n{number}", {"key": GPU, "value": "present", "effect": "NoSchedule"}) for number in range(1, 5)
    ]
    case.cluster.objects[NODES] = {"items": [*tainted, node("cpu")]}
    found = case.states()
    assert (found["GPUs"].state, found["GPUs"].what) == ("ok", "4 nvidia.com/gpu")
    assert found["nodes"].what == "5 of 5 take pods of this site"
    assert found[TAINTS].what == "4 nodes"
    assert found["room for training"].what == "4 pods of 300m cores, 3Gi; room for 4"
    case.cluster.objects[NODES] = {"items": [*tainted[:2], node("cpu"), node("cpu-2")]}
    found = case.states()
    assert (found["GPUs"].state, found["room for training"].state) == ("error", "error")
    assert "with 1 nvidia.com/gpu, do not fit, there is room for 2" in found["room for training"].what
    case.phase["resources"]["gpus_per_node"] = 0
    found = case.states()
    assert found["nodes"].what == "2 of 4 take pods of this site", "pods without a GPU do not tolerate the taint"


def test_junit_says_the_same(case: Case) -> None:
    case.cluster.objects[REGISTRY] = {"spec": {"managementState": "Removed"}}
    case.cluster.objects[LEASES] = {"items": []}
    found = run_all(case.cluster_state(), "before")
    suite = ElementTree.fromstring(junit(found))
    cases = {each.get("name"): each for each in suite}
    assert suite.get("tests") == str(len(found)) == str(len(cases))
    failure = cases["image registry"].find("failure")
    assert failure is not None and "is Removed" in (failure.text or "")
    assert cases["clocks"].find("skipped") is not None
    assert list(cases["versions"]) == []
    assert suite.get("failures") == str(sum(finding.state == "error" for _, finding in found))


def autoscaled(case: Case, gpus: str = "1", most: int = 4, cpu: str = "8") -> None:
    """A MachineSet with no machine yet, and what adds some; only nodes without a GPU are there."""
    objects, machines = case.cluster.objects, "/apis/machine.openshift.io/v1beta1/namespaces/machines/machinesets"
    bare = node("cpu-1")
    bare["metadata"]["labels"] = {"feature.node.kubernetes.io/system-os_release.ID": "rhel"}
    objects[NODES] = {"items": [bare]}
    objects[POLICIES] = policy("ClusterPolicy, no GPU nodes")
    objects["/apis/autoscaling.openshift.io/v1beta1"] = served("machineautoscalers")
    objects["/apis/autoscaling.openshift.io/v1/clusterautoscalers/default"] = {"spec": {}}
    target = {"apiVersion": "machine.openshift.io/v1beta1", "kind": "MachineSet", "name": "g5"}
    scaler = {
        "metadata": {"name": "g5", "namespace": "machines"},
        "spec": {"maxReplicas": most, "scaleTargetRef": target},
    }
    objects["/apis/autoscaling.openshift.io/v1beta1/machineautoscalers"] = {"items": [scaler]}
    names = {"GPU": gpus, "vCPU": cpu, "memoryMb": "32768"}
    annotations = {f"machine.openshift.io/{name}": value for name, value in names.items()}
    objects[f"{machines}/g5"] = {"metadata": {"annotations": annotations}, "status": {"replicas": 0}}


WAITED = ("GPUs", NFD, OPERATOR, "room for training")


def test_gpu_nodes_that_an_autoscaler_adds_are_worth_a_warning(case: Case) -> None:
    """It names them and the timeout that has to be long enough; without the autoscaler they are errors."""
    autoscaled(case)
    found = case.states()
    assert {title: found[title].state for title in WAITED} == dict.fromkeys(WAITED, "warning")
    for title in WAITED:
        assert "MachineAutoscaler g5 adds up to 4 nodes with 1 GPUs each" in found[title].what
        assert "train_unschedulable_timeout" in found[title].fix
    del case.cluster.objects["/apis/autoscaling.openshift.io/v1/clusterautoscalers/default"]
    found = case.states()
    assert {title: found[title].state for title in WAITED} == dict.fromkeys(WAITED, "error")
    assert "verify_gpu_autoscaling" in found["GPUs"].fix
    case.options.gpu_autoscaling = True
    found = case.states()
    assert {title: found[title].state for title in WAITED} == dict.fromkeys(WAITED, "warning")


@pytest.mark.parametrize(
    ("given", "title"),
    [({"most": 2}, "GPUs"), ({"gpus": "0"}, "GPUs"), ({"cpu": "0"}, "room for training")],
    ids=["too few", "without GPUs", "too small"],
)
def test_an_autoscaler_that_cannot_add_enough_is_an_error(case: Case, given: dict[str, Any], title: str) -> None:
    autoscaled(case, **given)
    assert case.states()[title].state == "error"


def test_an_image_that_will_be_built_here_may_be_empty(case: Case) -> None:
    """inventory/openshift builds it in the next step."""
    assert case.states()["image reference"].state == "ok"
    case.options.image_source = "none"
    assert case.states()["image reference"].state == "error"


def shared(name: str, offered: str, resource: str = GPU, **labels: str) -> dict[str, Any]:
    """A node with GPUs in shares or slices."""
    made = gpu_node(name, gpus=offered if resource == GPU else "0")
    made["status"]["allocatable"][resource] = offered
    made["metadata"]["labels"] |= {f"nvidia.com/{key}": value for key, value in labels.items()}
    return made


SHARE = {"gpu.replicas": "4", "gpu.count": "1", "gpu.product": "NVIDIA-L40S-SHARED"}
SLICE = {"gpu.replicas": "1", "gpu.count": "7", "gpu.product": "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb"}


@pytest.mark.parametrize(
    ("nodes", "resource", "asked", "spread", "says"),
    [
        (
            [shared("n1", "4", **SHARE)],
            GPU,
            (4, 1),
            "preferred",
            "4 nvidia.com/gpu of 1 NVIDIA-L40S-SHARED in 4 shares each",
        ),
        ([shared("n1", "4", **SHARE)], GPU, (1, 2), "preferred", "the job has 2 ranks"),
        ([shared("n1", "7", **SLICE)], GPU, (4, 1), "preferred", "MIG-1g.10gb"),
        (
            [shared("n1", "4", "nvidia.com/gpu.shared", **SHARE)],
            "nvidia.com/gpu.shared",
            (2, 1),
            "none",
            "4 shares each",
        ),
        ([shared("n1", "7", "nvidia.com/mig-1g.10gb")], "nvidia.com/mig-1g.10gb", (2, 1), "none", "GPU (slices)"),
        (
            [shared("n1", "4", **SHARE), shared("n2", "4", **SHARE)],
            GPU,
            (2, 1),
            "preferred",
            "set site.spread to required",
        ),
        ([shared("n1", "4", **SHARE), shared("n2", "4", **SHARE)], GPU, (2, 1), "required", ""),
        ([shared("n1", "4", **SHARE)], GPU, (1, 1), "preferred", ""),
        ([gpu_node("n1", gpus="4")], GPU, (4, 1), "preferred", ""),
    ],
)
def test_ranks_of_a_job_do_not_share_a_physical_gpu(
    case: Case, nodes: list[Any], resource: str, asked: tuple[int, int], spread: str, says: str
) -> None:
    case.cluster.objects[NODES] = {"items": nodes}
    case.site |= {"gpuResource": resource, "spread": spread}
    case.phase["resources"] |= {"nodes": asked[0], "gpus_per_node": asked[1]}
    found = case.states()["GPUs"]
    assert (found.state == "error") == bool(says) and says in found.sentence


def needs(gib: float) -> dict[str, Any]:
    """What `trainlab plan --json` says of a phase that needs so much memory on each GPU."""
    return {"memory": {"total": gib * 2**30}, "device": {"reported_gib": 44.99, "usable_gib": 41.84}}


BIG, SMALL_SLICE = {"gpu.memory": "46068"}, {"mig-1g.10gb.memory": "9728", "mig-1g.10gb.count": "7"}


@pytest.mark.parametrize(
    ("nodes", "resource", "gib", "state", "says"),
    [
        ([shared("n1", "4", **SHARE, **BIG)], GPU, 10.4, "ok", "4 nvidia.com/gpu"),
        ([shared("n1", "4", **SHARE, **BIG)], GPU, 10.5, "error", "leaves 10.5 usable GiB of 11.2"),
        ([shared("n1", "4", **SHARE, **BIG)], GPU, 20, "error", "platform_gpu_shares to 2 at most"),
        ([shared("n1", "4", **SHARE, **BIG)], GPU, 60, "error", "a whole one would not be enough"),
        (
            [shared("n1", "7", "nvidia.com/mig-1g.10gb", **SMALL_SLICE)],
            "nvidia.com/mig-1g.10gb",
            16,
            "error",
            "7 GPU (slices), which leaves 8.8 usable GiB of 9.5",
        ),
        ([shared("n1", "7", **SLICE, **{"gpu.memory": "9728"})], GPU, 16, "error", "MIG-1g.10gb"),
        ([shared("n1", "1", **{"gpu.memory": "15360", "gpu.product": "Tesla-T4"})], GPU, 16, "error", "1 Tesla-T4"),
        ([gpu_node("n1")], GPU, 500, "ok", "1 nvidia.com/gpu"),
        (
            [shared("n1", "1", **BIG), shared("n2", "1", **{"gpu.memory": "15360"})],
            GPU,
            16,
            "warning",
            "node n2 offers",
        ),
    ],
)
def test_a_rank_fits_the_memory_of_its_gpu_or_of_its_part(
    case: Case, nodes: list[Any], resource: str, gib: float, state: str, says: str
) -> None:
    case.cluster.objects[NODES] = {"items": nodes}
    case.site |= {"gpuResource": resource, "spread": "preferred"}
    case.phase["resources"] |= {"nodes": 1, "gpus_per_node": 1}
    case.plan = needs(gib)
    found = gpus(case.cluster_state())
    assert found.state == state and says in found.sentence, found.sentence


NEW, OLD = {"cuda.driver-version.major": "580"}, {"cuda.driver-version.major": "570"}


@pytest.mark.parametrize(
    ("labels", "state"),
    [
        ([OLD], "error"),
        ([{"cuda.driver.major": "550"}], "error"),
        ([NEW | {"cuda.driver.major": "550"}], "ok"),
        ([NEW, OLD], "warning"),
        ([{}], "ok"),
    ],
)
def test_a_driver_that_is_too_old_for_cuda_is_found_by_its_label(
    case: Case, labels: list[dict[str, str]], state: str
) -> None:
    case.cluster.objects[NODES] = {"items": [shared(f"n{i}", "1", **each) for i, each in enumerate(labels)]}
    case.site |= {"gpuResource": GPU, "spread": "preferred"}
    case.phase["resources"] |= {"nodes": 1, "gpus_per_node": 1}
    found = gpus(case.cluster_state())
    assert found.state == state and (state == "ok" or "needs 580 or newer" in found.sentence), found.sentence
    case.phase["resources"]["gpus_per_node"] = 0
    assert gpus(case.cluster_state()).state != "error", "no rank, no CUDA"


def test_vllm_on_a_share_takes_the_memory_of_the_others(case: Case) -> None:
    case.cluster.objects[NODES] = {"items": [shared("n1", "4", **SHARE, **BIG)]}
    case.phase["serve"] |= {"runtime": "vllm", "gpus": 1}
    case.phase["resources"]["gpus_per_node"] = 0
    found = gpus(case.cluster_state())
    assert found.state == "warning" and "vLLM takes 90 %" in found.sentence, found.sentence
    case.phase["resources"] |= {"nodes": 1, "gpus_per_node": 1}
    case.plan = needs(60)
    assert gpus(case.cluster_state()).state == "error", "the rank comes first"


JOBS_OF_ALL = "/apis/kubeflow.org/v1/pytorchjobs"


def upgrades(case: Case, to: str = "") -> list[tuple[str, str]]:
    """State and sentence of each finding about an upgrade."""
    case.options.upgrade_to = to
    return [
        (each.state, each.sentence) for title, each in run_all(case.cluster_state(), "before") if title == "upgrade"
    ]


def test_what_is_in_the_way_of_an_upgrade(case: Case) -> None:
    """A warning before the next release, an error for a release that somebody names; a release in between adds what it has."""
    objects = case.cluster.objects
    names = [{"metadata": {"name": f"j{number}", "namespace": "team"}} for number in range(5)]
    objects[JOBS_OF_ALL] = {"items": [*names, {"metadata": {"name": "old", "namespace": "team"}, "status": DONE}]}
    deprecated, running = upgrades(case)
    assert deprecated[0] == running[0] == "warning"
    assert (
        "before an upgrade to OpenShift AI 3.5: 5 pytorchjobs that have not ended (team/j0, team/j1, team/j2 and 2 more)"
        in running[1]
    )
    objects[DSCS] = platform(trainingoperator="Managed", llamastackoperator="Managed")
    found = upgrades(case, "3.6")
    assert [state for state, _sentence in found] == ["warning", "error", "error", "error"]
    assert "components.llamastackoperator.removal" in found[2][1]
    assert (
        " patch datasciencecluster default-dsc --type merge -p "
        '\'{"spec": {"components": {"trainingoperator": {"managementState": "Removed"}}}}\'' in found[3][1]
    )
    objects[DSCS] = platform(trainer="Managed")
    assert upgrades(case, "3.6") == [("ok", "nothing is known to be in the way of OpenShift AI 3.6")]


DONE = {"conditions": [{"type": "Succeeded", "status": "True"}]}


def test_a_release_to_which_no_upgrade_leads(case: Case) -> None:
    for wanted in ("3.4", "2.25", "9.9"):
        ((state, sentence),) = upgrades(case, wanted)
        assert state == "error" and f"verify_upgrade_to is {wanted}" in sentence and "3.5, 3.6" in sentence
    case.cluster.objects[CSVS.format("redhat-ods-operator")] = csv("rhods-operator.3.6.1")
    assert upgrades(case)[0][0] == "skipped"
    del case.cluster.objects[CSVS.format("redhat-ods-operator")]
    assert upgrades(case)[0][0] == "skipped"
