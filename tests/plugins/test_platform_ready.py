"""When the platform's waits end: what operators recover from by themselves, what they do not, and what ready really means."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.trainlab.rhoai.plugins.plugin_utils import gpu_inventory as gpu_ready
from ansible_collections.trainlab.rhoai.plugins.plugin_utils import platform_ready as ready
from api_server import recorded

Json = dict[str, Any]
PCI = gpu_ready.NVIDIA_LABELS[0]
NFD: Json = {"condition": "Available", "failed": "Degraded"}


def steps(file: str, sequence: str) -> list[Json]:
    """What a real operator reports, in its order."""
    return [
        {"metadata": {"generation": 1}, "status": one["status"]} for one in recorded.read(file)["sequences"][sequence]
    ]


def condition(kind: str, reason: str, status: str = "True") -> Json:
    """An object with one condition."""
    return {"status": {"conditions": [{"type": kind, "status": status, "reason": reason}]}}


def test_nothing_that_operators_report_on_their_way_ends_a_wait() -> None:
    """Degraded, Failed and Error are followed by ready; a wait only ends when they last."""
    for file, sequence, judge in (
        ("nfd-4.20", "NodeFeatureDiscovery", lambda one: ready.judge(one, NFD)),
        ("jobset-1.0", "JobSetOperator", lambda one: ready.judge(one, NFD)),
        ("kueue-1.3", "Kueue", lambda one: ready.judge(one, NFD)),
        ("olm", "ClusterServiceVersion, reinstalled", ready.judge_csv),
        ("odf-4.20", "StorageCluster", lambda one: ready.judge(one, {"path": "status.phase", "equals": "Ready"})),
    ):
        verdicts = [judge(step) for step in steps(file, sequence)]
        assert [verdict.state for verdict in verdicts] == [ready.WAITING] * (len(verdicts) - 1) + [ready.READY], (
            sequence
        )
        assert {verdict.turns for verdict in verdicts} <= {"", ready.FAILED}


def test_hopeless_reasons_end_it_at_once() -> None:
    """OLM does not try these again; one of a table's own is named there."""
    assert ready.judge_csv(steps("olm", "ClusterServiceVersion, no retry")[-1]).state == ready.FAILED
    late = ready.judge_csv(steps("olm", "ClusterServiceVersion, deadline exceeded")[-1])
    assert (late.state, late.turns, late.brief) == (ready.WAITING, ready.FAILED, False)
    group = ready.judge_csv(steps("olm", "ClusterServiceVersion, no OperatorGroup")[-1])
    assert (group.turns, group.brief) == (ready.FAILED, True)
    stuck = steps("nfd-4.20", "NodeFeatureDiscovery, no worker")[-1]
    assert ready.judge(stuck, NFD | {"hopeless": ["NFDWorkerDaemonSetDegraded"]}).state == ready.FAILED


@pytest.mark.parametrize(
    ("found", "state", "turns", "brief"),
    [
        (steps("olm", "Subscription, nothing satisfies")[-1], ready.WAITING, ready.FAILED, True),
        (steps("olm", "Subscription, resolution is retried")[-1], ready.WAITING, ready.FAILED, False),
        (condition("BundleUnpackFailed", "BundleUnpackFailed"), ready.FAILED, "", False),
        (condition("InstallPlanFailed", "InstallComponentFailed"), ready.FAILED, "", False),
        (steps("olm", "Subscription")[0], ready.WAITING, "", False),
    ],
)
def test_what_olm_says_before_there_is_a_version(found: Json, state: str, turns: str, brief: bool) -> None:
    """A bundle that cannot be unpacked and a failed plan end it; what nothing satisfies a minute later, a retried one at the end of the grace."""
    verdict = ready.judge_subscription(found)
    assert (verdict.state, verdict.turns, verdict.brief) == (state, turns, brief)


def test_a_plan_that_failed_says_why() -> None:
    failed = condition("Installed", "InstallComponentFailed", "False")
    failed["status"]["phase"] = "Failed"
    verdict = ready.judge_plan(failed)
    assert (verdict.state, verdict.text) == (
        ready.FAILED,
        "InstallPlan Failed: Installed=False (InstallComponentFailed)",
    )
    assert ready.judge_plan({"status": {"phase": "RequiresApproval"}}).state == ready.WAITING


def subscription(installed: str, current: str, approval: str = "Automatic", state: str = "AtLatestKnown") -> Json:
    """A Subscription with this status."""
    status = {"installedCSV": installed, "currentCSV": current, "state": state}
    return {"spec": {"installPlanApproval": approval}, "status": status}


OLD, NEW, NEXT = (f"rhods-operator.3.4.{number}" for number in (2, 3, 10))


@pytest.mark.parametrize(
    ("one", "found", "state"),
    [
        ({"csv": NEW}, subscription(NEW, NEW), ready.READY),
        ({"csv": NEW}, subscription(OLD, NEW, state="UpgradePending"), ready.WAITING),
        ({"csv": NEW}, subscription(OLD, OLD), ready.WAITING),
        ({"csv": NEW}, subscription(NEW, NEXT, state="UpgradePending"), ready.WAITING),
        ({"csv": NEW}, subscription(NEXT, NEXT), ready.READY),
        ({"csv": OLD, "starting": OLD}, subscription(OLD, NEW, "Manual", "UpgradePending"), ready.READY),
        ({"csv": OLD, "starting": OLD}, subscription(NEW, NEW, "Manual"), ready.FAILED),
        ({"csv": NEW}, subscription(OLD, NEW, "Manual", "UpgradePending"), ready.WAITING),
        ({"csv": NEW, "state": "found"}, subscription(OLD, NEW, "Manual", "UpgradePending"), ready.READY),
        ({"csv": NEW, "state": "found"}, subscription(OLD, NEW, state="UpgradePending"), ready.WAITING),
    ],
)
def test_the_expected_version_is_the_one_that_is_installed(one: Json, found: Json, state: str) -> None:
    """Not an older one that is being replaced, nor one that waits for an approval that nobody here gives."""
    assert ready.judge_version({"name": "rhoai", "state": "ours"} | one, found).state == state


def test_an_operator_is_installed_once_its_api_is_served() -> None:
    done, crd = {"status": {"phase": "Succeeded"}}, "storageclusters.ocs.openshift.io"
    assert ready.judge_installed(done, crd, condition("Established", "")).state == ready.READY
    missing = ready.judge_installed(done, crd, None)
    assert missing == ready.Verdict(ready.WAITING, f"phase Succeeded, but its API {crd} does not exist yet")


def node(name: str, gpus: int = 0, **labels: str) -> Json:
    """A node that Node Feature Discovery has labeled."""
    own = {"feature.node.kubernetes.io/system-os_release.ID": "rhel"} | labels
    return {
        "metadata": {"name": name, "labels": own},
        "status": {"allocatable": {"cpu": "4", "nvidia.com/gpu": str(gpus)}},
    }


def test_a_cluster_policy_is_ready_when_pods_can_get_gpus() -> None:
    """`ready` comes without GPU nodes, before their pods start, and before the kubelet offers a GPU."""
    start, *_, done = steps("gpu-operator-26.3", "ClusterPolicy")
    (none,) = steps("gpu-operator-26.3", "ClusterPolicy, no GPU nodes")
    (unlabeled,) = steps("gpu-operator-26.3", "ClusterPolicy, no NFD labels")
    with_gpu, without = node("gpu-1", 1, **{PCI: "true"}), node("gpu-2", 0, **{PCI: "true"})
    assert start["status"]["state"] == none["status"]["state"] == unlabeled["status"]["state"] == "ready"

    waits = gpu_ready.judge_gpus(done, [with_gpu, without, node("cpu")])
    assert waits.state == ready.WAITING and "1 of 2 nodes with an NVIDIA GPU offer none: gpu-2" in waits.text
    good = gpu_ready.judge_gpus(done, [with_gpu, node("cpu")])
    assert (good.state, good.note) == (ready.READY, "")
    assert gpu_ready.judge_gpus(none, [with_gpu]).state == ready.WAITING
    left_out = node("gpu-3", 0, **{PCI: "true", gpu_ready.LEFT_OUT: "false"})
    assert gpu_ready.judge_gpus(done, [with_gpu, left_out]).state == ready.READY
    mig = node("gpu-4", 0, **{PCI: "true"})
    mig["status"]["allocatable"]["nvidia.com/mig-1g.10gb"] = "7"
    assert gpu_ready.judge_gpus(done, [mig]).state == ready.READY

    shared = node("gpu-5", 0, **{PCI.replace("pci-10de", "pci-0300_10de"): "true"})
    shared["status"]["allocatable"] = {"nvidia.com/hostdev": "8"}
    waits = gpu_ready.judge_gpus(done, [shared])
    assert waits.state == ready.WAITING and "offer none: gpu-5" in waits.text, "a network device is no GPU"
    shared["status"]["allocatable"] |= {"nvidia.com/gpu.shared": "4"}
    assert gpu_ready.judge_gpus(done, [shared]).state == ready.READY

    nobody = gpu_ready.judge_gpus(none, [node("cpu")])
    assert (nobody.state, nobody.turns, nobody.brief) == (ready.WAITING, ready.READY, True)
    assert "NO GPU" in nobody.note
    bare = {"metadata": {"name": "cpu"}}
    assert gpu_ready.judge_gpus(unlabeled, [bare]).turns == ready.FAILED
    assert gpu_ready.judge_gpus(unlabeled, []).note == gpu_ready.NO_GPU


def test_a_status_of_before_an_edit_is_not_believed() -> None:
    """OpenShift AI's operator writes observedGeneration only when all components are ready."""
    wanted = {"path": "status.phase", "equals": "Ready", "observed": True}
    thing: Json = {"metadata": {"generation": 2}, "status": {"phase": "Ready", "observedGeneration": 1}}
    assert ready.judge(thing, wanted).state == ready.WAITING
    thing["status"]["observedGeneration"] = 2
    assert ready.judge(thing, wanted).state == ready.READY
    del thing["status"]["observedGeneration"]
    assert ready.judge(thing, wanted).state == ready.READY


def test_a_status_of_before_an_upgrade_is_not_believed() -> None:
    """The new operator writes its version when it has looked for the first time in status.release."""
    wanted = {"path": "status.phase", "equals": "Ready", "said_by": "rhods-operator.3.4.3"}
    thing: Json = {"metadata": {"generation": 1}, "status": {"phase": "Ready", "release": {"version": "3.3.6"}}}
    old = ready.judge(thing, wanted)
    assert old.state == ready.WAITING and "was said by 3.3.6, rhods-operator.3.4.3 is installed" in old.text
    for version in ("3.4.3", "3.4.10", "3.4.3-1.p1"):
        thing["status"]["release"]["version"] = version
        assert ready.judge(thing, wanted).state == ready.READY
    assert ready.judge(thing, wanted | {"said_by": ""}).state == ready.READY


SHARES = "nvidia.com/gpu.replicas"


@pytest.mark.parametrize(
    ("config", "offered", "labels", "waits"),
    [
        (
            "trainlab-gpu-shares-8",
            4,
            {SHARES: "4", "nvidia.com/gpu.count": "1"},
            "offers 4 shares of each GPU where 8 are asked",
        ),
        ("trainlab-gpu-shares-8", 8, {SHARES: "8", "nvidia.com/gpu.count": "1"}, ""),
        (
            "trainlab-gpu-shares-8",
            4,
            {SHARES: "8", "nvidia.com/gpu.count": "1"},
            "4 nvidia.com/gpu, and 1 in 8 shares each",
        ),
        ("trainlab-gpu-shares-2", 2, {}, "offers 1 shares of each GPU where 2 are asked"),
        ("", 4, {SHARES: "4"}, "offers 4 shares of each GPU where 1 are asked"),
        ("", 2, {SHARES: "1"}, ""),
        ("mine", 4, {SHARES: "4"}, ""),
    ],
)
def test_a_changed_share_is_waited_for(config: str, offered: int, labels: Json, waits: str) -> None:
    *_, done = steps("gpu-operator-26.3", "ClusterPolicy")
    done["spec"] = {"devicePlugin": {"config": {"name": config, "default": "shared"}}} if config else {}
    verdict = gpu_ready.judge_gpus(done, [node("gpu-1", offered, **{PCI: "true"} | labels)])
    assert (verdict.state == ready.WAITING) == bool(waits) and waits in verdict.text
