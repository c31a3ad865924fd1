"""playbooks/platform.yml and its undo against a real API server with test-only operators; see server.py."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from api_server import catalog, crds, printed
from api_server.harness import REPO, TIMEOUTS, Cluster, node
from waiting import until

ALL: dict[str, Any] = {"platform_operators": ["gpu", "rhoai"], "trainlab_platform_release": "3.4"}
QUEUE: dict[str, Any] = {
    "platform_queue": "trainlab-pool",
    "platform_queue_quota": {"cpu": "8", "memory": "32Gi"},
    # without a kubelet no node becomes ready
    "trainlab_site": {"tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]},
}
SUBSCRIPTION = {"apiVersion": "operators.coreos.com/v1alpha1", "kind": "Subscription"}
KUEUE = "kueue.x-k8s.io/v1beta2"
DSC, DSCI = "datasciencecluster.opendatahub.io", "dscinitialization.opendatahub.io"


def test_from_bare_to_ready_and_back(cluster: Cluster, tmp_path: Path) -> None:
    """Check mode touches nothing, converge is complete, teardown leaves nothing; molecule runs the same twice.

    Complete means that each node with a GPU offers it, and that our own queue is there, for which Kueue has to come up first; teardown
    asks before it takes people's workbenches with it, and does not take OpenShift AI's own queue for somebody's.
    """
    wanted = ALL | QUEUE
    nodes = [node("gpu-1", "10de"), node("cpu-1", "1d0f")]
    for each in nodes:
        cluster.client.apply(each, manager="somebody")
    bare = cluster.objects()
    planned = cluster.playbook("platform", "--check", **wanted)
    assert planned.code == 0, planned.text
    assert planned.changed > 0
    assert cluster.objects() == bare

    first = cluster.playbook("platform", **wanted)
    assert first.code == 0, first.text
    assert "phase Failed (InstallCheckFailed: install timeout)" in first.text, "which OLM repeats"
    assert "nodes with an NVIDIA GPU offer none: gpu-1" in first.text, "ready, and no GPU yet"
    assert "Reconciled; 1 GPUs on 1 nodes" in first.text and "NO GPU" not in first.text
    found = cluster.client.look(f"{DSC}/v2", "DataScienceCluster", "default-dsc")
    assert found and found["status"]["phase"] == "Ready"
    assert found["spec"]["components"]["trainer"] == {"managementState": "Managed"}
    policy = cluster.client.look("nvidia.com/v1", "ClusterPolicy", "gpu-cluster-policy")
    assert policy and policy["spec"]["driver"]["enabled"] is True, "the spec of alm-examples"
    board = cluster.client.look("v1", "ConfigMap", "nvidia-dcgm-exporter-dashboard", "openshift-config-managed")
    assert board and board["metadata"]["labels"]["console.openshift.io/dashboard"] == "true"
    assert json.loads(board["data"]["gpu-dashboard.json"])["title"] == "GPUs in training and serving"
    monitoring = cluster.client.look("v1", "ConfigMap", "cluster-monitoring-config", "openshift-monitoring")
    assert monitoring and yaml.safe_load(monitoring["data"]["config.yaml"]) == {"enableUserWorkload": True}

    queues = {one["metadata"]["name"]: one["metadata"] for one in cluster.client.items(KUEUE, "ClusterQueue")}
    assert set(queues) == {"trainlab", "trainlab-pool"}, "of OpenShift AI 3.4, and ours"
    assert "trainlab.dev/owner" not in queues["trainlab"].get("labels", {})
    assert "patched" in printed.run(documented("patch kueue"), tmp_path, cluster.server.kubeconfig)

    planned = cluster.playbook("platform", "--check", **wanted)
    assert (planned.code, planned.changed) == (0, 0), planned.text

    workbench(cluster)
    before = cluster.objects()
    told = cluster.playbook("platform_teardown", "--check")
    assert told.code == 0 and "would be refused without platform_remove_data=true" in told.text, told.text
    error = cluster.playbook("platform_teardown").error
    assert "nothing was removed, because people would lose what they made" in error
    assert "1 Notebook (rhods-notebooks/jupyter-nb-ann)" in error
    assert "1 PersistentVolumeClaim (rhods-notebooks/jupyterhub-nb-ann-pvc)" in error
    assert "Auth" not in error and "GatewayConfig" not in error, "OpenShift AI's own"
    assert cluster.objects() == before
    workbench(cluster, there=False)

    undone = cluster.playbook("platform_teardown")
    assert undone.code == 0, undone.text
    assert cluster.objects() == bare
    again = cluster.playbook("platform_teardown")
    assert (again.code, again.changed) == (0, 0)
    for each in nodes:
        cluster.client.delete(each)


def documented(words: str) -> str:
    """The one command of docs/operate that says this."""
    pages = "\n".join(path.read_text("utf-8") for path in sorted((REPO / "docs/operate").glob("*.md")))
    (match,) = re.findall(rf"^(oc .*{words}.*)$", pages, re.MULTILINE)
    return str(match)


def workbench(cluster: Cluster, there: bool = True) -> None:
    """Let a person start a workbench, as the dashboard makes it, or remove it."""
    metadata = {"namespace": "rhods-notebooks"}
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "20Gi"}}}
    things: list[dict[str, Any]] = [
        {"apiVersion": "kubeflow.org/v1", "kind": "Notebook", "metadata": metadata | {"name": "jupyter-nb-ann"}},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
        | {"metadata": metadata | {"name": "jupyterhub-nb-ann-pvc"}, "spec": claim},
    ]
    if there:
        apply_when_served(cluster, things)
        cluster.client.merge(things[-1], {"metadata": {"finalizers": []}})  # whose controller does not run here
        return
    for thing in reversed(things):
        cluster.client.delete(thing)
        place = thing["apiVersion"], thing["kind"], thing["metadata"]["name"], metadata["namespace"]
        until(lambda place=place: not cluster.client.look(*place))  # type: ignore[misc]


def apply_when_served(cluster: Cluster, things: list[dict[str, Any]]) -> None:
    """Apply a kind and its objects as somebody else: a new kind is served a moment later."""
    end = time.monotonic() + 30
    while things:
        try:
            cluster.client.apply(things[0], manager="somebody")
            things = things[1:]
        except LookupError:
            assert time.monotonic() < end
            time.sleep(0.2)


def test_failures_that_last_and_versions_that_are_expected(cluster: Cluster) -> None:
    """A hopeless reason ends the wait at once, another one after its grace; without its pin an operator is upgraded."""
    bare, old = cluster.objects(), "nfd.4.20.0-202509150000"
    wanted: dict[str, Any] = {"platform_operators": ["nfd"], "platform_approval": "Manual"}
    pinned = wanted | {"platform_versions": {"nfd": old}}
    # of runs that fail: a run that is to pass may see the last failure for longer
    brief = pinned | {"platform_grace": 3}
    (left,) = crds.stored("openshift/nodefeaturediscoveries.yaml")
    cluster.client.apply(left, manager="somebody")
    run = cluster.playbook("platform", "--check", **wanted)
    assert run.code == 0 and "exists without a Subscription of nfd" in " ".join(run.text.split()), run.text
    # what OLM leaves of an operator that somebody has uninstalled
    cluster.client.merge(left, {"metadata": {"labels": {"operators.coreos.com/nfd.openshift-nfd": ""}}})
    for fault, timeout, words in (
        ("stuck", 5, "not ready after 5 s: Node Feature Discovery: Subscription no state yet"),
        ("resolution-failed", 120, "ResolutionFailed=True (ConstraintsNotSatisfiable: constraints not satisfiable"),
        ("plan-failed", 120, "Node Feature Discovery has failed: InstallPlanFailed=True (InstallComponentFailed"),
    ):
        cluster.server.fault({"nfd": fault})
        error = cluster.playbook("platform", **brief, platform_timeouts=TIMEOUTS | {"operators": timeout}).error
        assert words in error
    cluster.client.delete(
        _subscription(cluster, "nfd", "openshift-nfd") | SUBSCRIPTION
    )  # a failed InstallPlan stays so
    cluster.server.fault({"nfd": "csv-hopeless"})
    error = cluster.playbook("platform", **brief).error
    assert f"Node Feature Discovery has failed: {old} phase Failed (InstallComponentFailedNoRetry" in error
    cluster.server.fault({"nfd": "no-worker"})
    error = cluster.playbook("platform", **brief).error
    assert (
        "nfd-instance has failed: Degraded=True (NFDWorkerDaemonSetDegraded: 0 nodes have pods scheduled), for "
        in error
    )
    cluster.server.fault({})
    done = cluster.playbook("platform", **pinned)
    assert done.code == 0, done.text
    assert _subscription(cluster, "nfd", "openshift-nfd")["status"]["installedCSV"] == old

    upgraded = cluster.playbook("platform", **wanted)
    assert upgraded.code == 0, upgraded.text
    new = catalog.PACKAGES["nfd"].channels["stable"]
    assert f"approved for {new}" in upgraded.text and f"{new} phase Succeeded" in upgraded.text
    error = cluster.playbook("platform", **pinned).error
    assert f"{new} is installed, newer than platform_versions.nfd, and OLM installs no older version" in error
    undone = cluster.playbook("platform_teardown")
    assert undone.code == 0, undone.text
    assert cluster.objects() == bare


def test_release_2_25_with_manual_approval_and_overrides(cluster: Cluster) -> None:
    """v1 of the API, no trainer, Service Mesh off; approved by us; the overrides arrive; what was there before stays."""
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "openshift-nfd"}}
    group = {
        "apiVersion": "operators.coreos.com/v1",
        "kind": "OperatorGroup",
        "metadata": {"name": "somebody", "namespace": "openshift-nfd"},
        "spec": {"targetNamespaces": ["openshift-nfd"]},
    }
    for thing in (space, group):
        cluster.client.apply(thing, manager="somebody")
    run = cluster.playbook(
        "platform",
        platform_operators=["gpu", "rhoai"],
        trainlab_platform_release="2.25",
        platform_approval="Manual",
        platform_gpu_shares=4,
        platform_gpu_policy={"driver": {"version": "580.95.05"}},
        platform_components={"ray": {"managementState": "Managed"}},
    )
    assert run.code == 0, run.text
    assert "approved for rhods-operator.2.25.10" in run.text
    found = cluster.client.look(f"{DSC}/v1", "DataScienceCluster", "default-dsc")
    assert found and "trainer" not in found["spec"]["components"]
    assert found["spec"]["components"]["ray"] == {"managementState": "Managed"}
    made = cluster.client.look(f"{DSCI}/v1", "DSCInitialization", "default-dsci")
    assert made and made["spec"]["serviceMesh"]["managementState"] == "Removed"
    assert cluster.client.path("jobset.x-k8s.io/v1alpha2", "JobSet") is None, "2.25 needs no JobSet"
    policy = cluster.client.look("nvidia.com/v1", "ClusterPolicy", "gpu-cluster-policy")
    assert policy and policy["spec"]["driver"]["version"] == "580.95.05"
    assert policy["spec"]["devicePlugin"]["config"] == {"name": "trainlab-gpu-shares-4", "default": "shared"}

    # a DataScienceCluster of somebody else, which the role uses as it is
    mark = {"metadata": {"labels": {"trainlab.dev/owner": None}}}
    cluster.client.merge(found | {"apiVersion": f"{DSC}/v1", "kind": "DataScienceCluster"}, mark)
    workbench(cluster)
    job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "mine", "namespace": "default"}}
    cluster.client.apply(job, manager="somebody")
    error = cluster.playbook("platform_teardown").error
    assert "1 PyTorchJob (default/mine)" in error, "of a component's API, which would have no operator any more"
    assert "1 DataScienceCluster (default-dsc)" in error and "1 Notebook (rhods-notebooks/jupyter-nb-ann)" in error
    assert "1 PersistentVolumeClaim (rhods-notebooks/jupyterhub-nb-ann-pvc)" in error
    undone = cluster.playbook("platform_teardown", platform_remove_data=True)
    assert undone.code == 0, undone.text
    assert not cluster.client.look("apiextensions.k8s.io/v1", "CustomResourceDefinition", "pytorchjobs.kubeflow.org")
    assert cluster.client.look("operators.coreos.com/v1", "OperatorGroup", "somebody", "openshift-nfd")
    cluster.client.delete(space)
    until(lambda: not cluster.client.look("v1", "Namespace", "openshift-nfd"))


def test_an_operator_of_somebody_else_is_used_and_told_and_left(cluster: Cluster) -> None:
    """A GPU operator of an older channel in another namespace: drift is reported, nothing is changed or removed."""
    olm, name = "operators.coreos.com", "graphics"
    bare = cluster.objects()
    spec = {"channel": "v25.10", "name": "gpu-operator-certified", "source": "certified-operators"}
    theirs = {
        "apiVersion": f"{olm}/v1alpha1",
        "kind": "Subscription",
        "metadata": {"name": "cards", "namespace": name},
        "spec": {**spec, "sourceNamespace": "openshift-marketplace"},
    }
    group = {"apiVersion": f"{olm}/v1", "kind": "OperatorGroup", "metadata": {"name": name, "namespace": name}}
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    for thing in (space, {**group, "spec": {"targetNamespaces": [name]}}, theirs):
        cluster.client.apply(thing, manager="somebody")
    until(lambda: _subscription(cluster, "cards", name).get("status", {}).get("installedCSV"), 60)
    before = _subscription(cluster, "cards", name)

    run = cluster.playbook("platform", platform_operators=["gpu"])
    assert run.code == 0, run.text
    said = " ".join(run.text.split())
    assert (
        "NVIDIA GPU operator: Subscription graphics/cards is not ours and has channel 'v25.10', wanted 'v26.7': left as "
        "it is; set platform_channels.gpu to what you want" in said
    ), run.text
    assert cluster.client.look("nvidia.com/v1", "ClusterPolicy", "gpu-cluster-policy")
    assert not cluster.client.look("v1", "Namespace", "nvidia-gpu-operator")
    second = cluster.playbook("platform", platform_operators=["gpu"], platform_channels={"gpu": "v25.10"})
    assert (second.code, second.changed) == (0, 0) and "is not ours and has" not in second.text, second.text

    undone = cluster.playbook("platform_teardown")
    assert undone.code == 0, undone.text
    assert _subscription(cluster, "cards", name) == before
    assert cluster.client.look("nvidia.com/v1", "ClusterPolicy", "gpu-cluster-policy") is None
    cluster.client.delete(
        {
            "kind": "CustomResourceDefinition",
            "apiVersion": "apiextensions.k8s.io/v1",
            "metadata": {"name": "clusterpolicies.nvidia.com"},
        }
    )
    cluster.client.delete(space)
    until(lambda: not cluster.client.look("v1", "Namespace", name))
    assert cluster.objects() == bare


def _subscription(cluster: Cluster, name: str, namespace: str) -> dict[str, Any]:
    result = cluster.client.look("operators.coreos.com/v1alpha1", "Subscription", name, namespace)
    assert result
    return result


MONITORING: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "cluster-monitoring-config", "namespace": "openshift-monitoring"},
}


ROLE = "arn:aws:iam::123456789012:role/efs"


@pytest.mark.parametrize(
    ("storage", "words", "more"),
    [
        ({"kind": "efs", "fileSystemId": "fs-1"}, "ClusterCSIDriver efs.csi.aws.com", {}),
        ({"kind": "odf", "deviceSize": "1Ti"}, "StorageCluster ocs-storagecluster", {}),
        (
            {"kind": "nfs", "server": "nfs.example.com", "share": "/models"},
            "Kueue cluster: Available=True",
            QUEUE | {"platform_operators": ["kueue"]},
        ),
    ],
    ids=["efs", "odf", "nfs and a queue"],
)
def test_shared_storage(cluster: Cluster, storage: dict[str, Any], words: str, more: dict[str, Any]) -> None:
    """Operator, its resource and the class, alone or with requested operators; a second time; and removed.

    The one that is requested is Kueue's without OpenShift AI, which would bring Kueue up: that is for us to do, too.
    """
    kind, before = storage["kind"], cluster.objects()
    others = {
        "apiVersion": "operator.openshift.io/v1",
        "kind": "ClusterCSIDriver",
        "metadata": {"name": "ebs.csi.aws.com"},
        "spec": {"managementState": "Managed"},
    }
    driver = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": {"name": "nfs.csi.k8s.io"},
        "spec": {},
    }
    cluster.client.apply(others, manager="somebody")
    bare = cluster.objects()
    if kind == "efs":
        issuer = {"serviceAccountIssuer": "https://issuer.example.com"}
        authentication = {
            "apiVersion": "config.openshift.io/v1",
            "kind": "Authentication",
            "metadata": {"name": "cluster"},
        }
        crd = crds.reduced("config.openshift.io", "Authentication", ["v1"], False)
        apply_when_served(cluster, [crd, authentication | {"spec": issuer}])
        refused = cluster.playbook("platform", platform_storage=storage).error
        assert "platform_storage.roleArn is empty" in refused and "https://issuer.example.com" in refused
        storage = storage | {"roleArn": ROLE}
    if kind == "nfs":
        error = cluster.playbook("platform", platform_storage=storage).error
        assert "has no CSIDriver nfs.csi.k8s.io" in error and "nothing was applied" in error
        assert cluster.objects() == bare
        cluster.client.apply(driver, manager="somebody")
    run = cluster.playbook("platform", platform_storage=storage, **more)
    assert run.code == 0, run.text
    assert words in " ".join(run.text.split())
    made = {each["metadata"]["name"]: each for each in cluster.client.items("storage.k8s.io/v1", "StorageClass")}
    if kind == "efs":
        assert made["trainlab-efs"]["parameters"]["fileSystemId"] == "fs-1"
        found = cluster.client.look("operator.openshift.io/v1", "ClusterCSIDriver", "efs.csi.aws.com")
        assert found and found["status"]["conditions"][0]["type"] == "AWSEFSDriverNodeServiceControllerAvailable"
        (subscription,) = cluster.client.items("operators.coreos.com/v1alpha1", "Subscription")
        assert subscription["spec"]["config"] == {"env": [{"name": "ROLEARN", "value": ROLE}]}
    elif kind == "odf":
        found = cluster.client.look("ocs.openshift.io/v1", "StorageCluster", "ocs-storagecluster", "openshift-storage")
        assert found and found["status"]["phase"] == "Ready"
        (devices,) = found["spec"]["storageDeviceSets"]
        assert devices["dataPVCTemplate"]["spec"]["resources"]["requests"]["storage"] == "1Ti"
        (subscription,) = cluster.client.items("operators.coreos.com/v1alpha1", "Subscription")
        assert subscription["spec"]["channel"] == "stable-4.20", "the package's default"
    else:
        assert made["trainlab-nfs"]["parameters"] == {"server": "nfs.example.com", "share": "/models"}
        assert [one["metadata"]["name"] for one in cluster.client.items(KUEUE, "ClusterQueue")] == ["trainlab-pool"]
    second = cluster.playbook("platform", "-v", platform_storage=storage, **more)
    assert (second.code, second.changed) == (0, 0), second.text
    undone = cluster.playbook("platform_teardown")
    assert undone.code == 0, undone.text
    cluster.client.delete(driver)
    if kind == "efs":
        cluster.client.delete(crd)
        until(lambda: not cluster.client.look(crd["apiVersion"], crd["kind"], crd["metadata"]["name"]))
    assert cluster.objects() == bare, "the driver of somebody else is still there"
    cluster.client.delete(others)
    assert cluster.objects() == before


def test_from_a_release_and_a_channel_to_the_next(cluster: Cluster, tmp_path: Path) -> None:
    """The inventory alone upgrades; ready is what the new operator says. Monitoring of somebody else stays as it is.

    The last one stops at a gate until somebody has run what the message says.
    """
    bare = cluster.objects()
    old: dict[str, Any] = {"trainlab_platform_release": "3.3", "platform_channels": {"gpu": "v26.3"}}
    both: dict[str, Any] = {"platform_operators": ["gpu", "rhoai"], "platform_approval": "Manual"}
    drift = "ConfigMap openshift-monitoring/cluster-monitoring-config is not ours and left as it is"
    theirs = "prometheusK8s: {retention: 3d}\n"
    thing = MONITORING | {"data": {"config.yaml": "enableUserWorkload: true\n" + theirs}}
    cluster.client.apply(thing, manager="somebody")
    first = cluster.playbook("platform", **both, **old)
    assert first.code == 0, first.text
    assert drift not in " ".join(first.text.split()), "users' own projects are monitored"
    assert release(cluster) == ("Ready", "3.3.6")

    thing["data"] = {"config.yaml": theirs}
    cluster.client.apply(thing, manager="somebody")
    upgraded = cluster.playbook("platform", **both, trainlab_platform_release="3.4")
    assert upgraded.code == 0, upgraded.text
    assert "approved for rhods-operator.3.4.4" in upgraded.text
    assert "approved for gpu-operator-certified.v26.7.0" in upgraded.text
    assert release(cluster) == ("Ready", "3.4.4")
    assert drift in " ".join(upgraded.text.split())
    found = cluster.client.look("v1", "ConfigMap", "cluster-monitoring-config", "openshift-monitoring")
    assert found and found["data"]["config.yaml"] == theirs

    error = cluster.playbook("platform", **both, **old).error
    assert "rhods-operator.3.4.4 is installed" in error and "installs no older version" in error

    gates = {"namespace": "redhat-ods-operator", "labels": {"platform.opendatahub.io/upgrade-gate": "true"}}
    gate = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "gates-of-somebody"} | gates}
    cluster.client.apply(gate | {"data": {"ack-3.5.1-storage": "models move"}}, manager="somebody")
    newest = both | {"trainlab_platform_release": "3.5"}
    error = cluster.playbook("platform", **newest, platform_grace=3).error
    assert "has failed" in error and "Upgrade gates not acknowledged: ack-3.5.1-storage" in error
    assert release(cluster)[0] == "Not Ready"
    (told,) = re.findall(r"`(oc [^`]* edit configmap odh-upgrade-acks)`", error)
    assert told.endswith(documented("edit configmap").removeprefix("oc "))
    printed.run(
        told, tmp_path, cluster.server.kubeconfig, environment={"EDITOR": "sed -i 's/: models move/: \"true\"/'"}
    )
    assert cluster.playbook("platform", **newest).code == 0
    assert release(cluster) == ("Ready", "3.5.1")
    cluster.client.delete(gate)
    undone = cluster.playbook("platform_teardown")
    assert undone.code == 0, undone.text
    assert cluster.client.look("v1", "ConfigMap", "cluster-monitoring-config", "openshift-monitoring")
    cluster.client.delete(thing)
    assert cluster.objects() == bare


def test_what_an_administrator_changes_in_what_is_theirs_stays(cluster: Cluster) -> None:
    """The ClusterPolicy and the monitoring's ConfigMap: created, then only our own fields follow the inventory; edits survive all of it.

    Ours are what the inventory names, until somebody sets them to something else; that is told with what to do.
    """
    bare = cluster.objects()
    shared = ALL | {"platform_gpu_shares": 4, "platform_gpu_policy": {"driver": {"version": "580.95.05"}}}
    run = cluster.playbook("platform", **shared)
    assert run.code == 0, run.text

    def policy() -> dict[str, Any]:
        result = cluster.client.look("nvidia.com/v1", "ClusterPolicy", "gpu-cluster-policy")
        assert result
        return result | {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy"}

    def monitored() -> dict[str, Any]:
        result = cluster.client.look("v1", "ConfigMap", "cluster-monitoring-config", "openshift-monitoring")
        assert result
        return dict(yaml.safe_load(result["data"]["config.yaml"]))

    theirs = {"enableUserWorkload": True, "prometheusK8s": {"retention": "15d"}}
    cluster.client.merge(MONITORING, {"data": {"config.yaml": yaml.safe_dump(theirs)}})
    cluster.client.merge(policy(), {"spec": {"mig": {"strategy": "mixed"}, "driver": {"version": "590.1"}}})
    again = cluster.playbook("platform", **shared)
    assert (again.code, again.changed) == (0, 0), again.text
    assert monitored() == theirs
    assert (policy()["spec"]["mig"]["strategy"], policy()["spec"]["driver"]["version"]) == ("mixed", "590.1")
    told = " ".join(again.text.split())
    assert (
        "spec.driver.version is '590.1', wanted '580.95.05'" in told and "edit clusterpolicy gpu-cluster-policy" in told
    )
    assert "cluster-monitoring-config" not in told, "which has what we want, and more"

    # the inventory's own fields go on to follow it, and end with it
    more = cluster.playbook("platform", **ALL | {"platform_gpu_shares": 2})
    assert more.code == 0, more.text
    assert policy()["spec"]["devicePlugin"]["config"]["name"] == "trainlab-gpu-shares-2"
    assert policy()["spec"]["driver"]["version"] == "590.1"
    none = cluster.playbook("platform", **ALL)
    assert none.code == 0, none.text
    assert not policy()["spec"]["devicePlugin"].get("config", {}).get("name")
    assert policy()["spec"]["mig"] == {"strategy": "mixed"}

    off = theirs | {"enableUserWorkload": False}
    cluster.client.merge(MONITORING, {"data": {"config.yaml": yaml.safe_dump(off)}})
    again = cluster.playbook("platform", **ALL)
    assert (again.code, again.changed) == (0, 0), again.text
    told = " ".join(again.text.split())
    assert "data.config.yaml.enableUserWorkload is False, wanted True" in told
    assert "-n openshift-monitoring edit configmap cluster-monitoring-config" in told
    assert monitored() == off

    error = cluster.playbook("platform_teardown").error
    assert "people would lose what they made: 1 ClusterPolicy (gpu-cluster-policy)" in error
    undone = cluster.playbook("platform_teardown", platform_remove_data=True)
    assert undone.code == 0, undone.text
    assert "ConfigMap openshift-monitoring/cluster-monitoring-config stays" in " ".join(undone.text.split())
    assert monitored() == off
    cluster.client.delete(MONITORING)
    assert cluster.objects() == bare


def release(cluster: Cluster) -> tuple[str, str]:
    """Phase of the DataScienceCluster, and the version of the operator that reported it."""
    result = cluster.client.look(f"{DSC}/v2", "DataScienceCluster", "default-dsc")
    assert result
    return result["status"]["phase"], result["status"]["release"]["version"]


WRONG: list[tuple[str, dict[str, Any], list[str]]] = [
    (
        "channel",
        ALL | {"platform_channels": {"gpu": "v99"}},
        ["platform_channels.gpu", "'v99'", "v25.10 (gpu-operator-", "v26.7"],
    ),
    (
        "release of channel",
        ALL | {"platform_channels": {"rhoai": "stable-3.3"}},
        ["trainlab_platform_release", "3.3.6", "stable-3.3"],
    ),
    (
        "unknown release",
        ALL | {"trainlab_platform_release": "3.1"},
        ["trainlab_platform_release", "'3.1'", ", ".join(catalog.RELEASES)],
    ),
    ("operator", ALL | {"platform_operators": ["gpus"]}, ["platform_operators", "'gpus'", "cert_manager, efs, gpu"]),
    (
        "catalog",
        ALL | {"platform_sources": {"nfd": "mirror"}},
        ["platform_sources.nfd", "'mirror'", "packagemanifests"],
    ),
    ("version", ALL | {"platform_versions": {"rhoai": "rhods-operator.3.4.9"}}, ["platform_versions.rhoai", "3.4.3"]),
    ("sharing", ALL | {"platform_operators": ["rhoai"], "platform_gpu_shares": 4}, ["platform_gpu_shares", "add gpu"]),
    (
        "component",
        ALL | {"trainlab_platform_release": "2.25", "platform_components": {"trainer": {"managementState": "Managed"}}},
        ["platform_components.trainer", "2.25", "set trainlab_platform_release to one of"],
    ),
    (
        "training API",
        ALL | {"trainlab_platform_release": "2.25", "trainlab_site": {"trainingApi": "trainjob"}},
        ["trainlab_site.trainingApi", "2.25", "pytorchjob or auto"],
    ),
    ("storage", ALL | {"platform_storage": {"kind": "efs"}}, ["platform_storage.fileSystemId is empty", "set it"]),
    (
        "cluster",
        ALL | {"trainlab_cluster_id": "elsewhere"},
        ["trainlab_cluster_id", "elsewhere", "trainlab_kubeconfig"],
    ),
]


def test_wrong_input_applies_nothing(cluster: Cluster) -> None:
    """Each error names the variable and the remedy."""
    bare = cluster.objects()
    nobody = ALL | {"trainlab_kubeconfig": str(cluster.server.nobody)}
    errors = cluster.refusals("platform", {what: given for what, given, _ in WRONG} | {"rights": nobody})
    for what, _, words in WRONG:
        assert "nothing was applied" in errors[what], what
        for word in words:
            assert word in errors[what], f"{what}: {errors[what]}"
    assert "trainlab_kubeconfig" in errors["rights"] or "cluster-admin" in errors["rights"], errors["rights"]
    assert cluster.objects() == bare
