"""The quota that nodes give to our ClusterQueue, and the part of it that an attendee may borrow."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.trainlab.rhoai.plugins.action.platform_remove import in_use
from ansible_collections.trainlab.rhoai.plugins.filter.queue_pool import queue_pool as pool
from ansible_collections.trainlab.rhoai.plugins.filter.queue_pool import queue_share as share
from ansible_collections.trainlab.rhoai.plugins.plugin_utils.checks.cluster_state import open_to

Json = dict[str, Any]
GPU = "nvidia.com/gpu"


def node(cpu: str = "7910m", memory: str = "32594924Ki", gpus: str = "", **more: Any) -> Json:
    """A node; `labels` are its metadata's, all else its spec's."""
    offered = {"cpu": cpu, "memory": memory} | ({GPU: gpus} if gpus else {})
    return {
        "metadata": {"name": "n", "labels": more.pop("labels", {})},
        "spec": more,
        "status": {"allocatable": offered},
    }


def quotas(*nodes: Json, site: Json | None = None, **given: Any) -> Json:
    _flavor, queue = pool("pool", list(nodes), site or {}, given)
    (group,) = queue["spec"]["resourceGroups"]
    (flavor,) = group["flavors"]
    assert flavor["name"] == "pool"
    assert group["coveredResources"] == [each["name"] for each in flavor["resources"]]
    return {each["name"]: each["nominalQuota"] for each in flavor["resources"]}


def taint(key: str) -> list[Json]:
    return [{"key": key, "effect": "NoSchedule"}]


CORES = {"cpu": "64", "memory": "256Gi"}


@pytest.mark.parametrize(
    ("nodes", "site", "given", "wanted"),
    [
        ([node(), node()], {}, {}, {"cpu": "15820m", "memory": "63661Mi", GPU: "0"}),
        ([node(**CORES, gpus="8"), node(**CORES)], {}, {}, {"cpu": "128", "memory": "512Gi", GPU: "8"}),
        # the chart tolerates the taint that GPU nodes carry, the site another one, nobody the control plane's
        (
            [node(**CORES, gpus="8", taints=taint(GPU)), node(**CORES, taints=taint("team")), node(taints=taint("cp"))],
            {"tolerations": [{"key": "team", "operator": "Exists"}]},
            {},
            {"cpu": "128", "memory": "512Gi", GPU: "8"},
        ),
        ([node(**CORES), node(unschedulable=True)], {}, {}, {"cpu": "64", "memory": "256Gi", GPU: "0"}),
        (
            [node(**CORES, labels={"pool": "ml"}), node()],
            {"nodeSelector": {"pool": "ml"}, "gpuResource": "amd.com/gpu"},
            {},
            {"cpu": "64", "memory": "256Gi", "amd.com/gpu": "0"},
        ),
        # what the inventory says wins, and may name more; alone it needs no node
        ([node(**CORES)], {}, {GPU: 4, "rdma/ib": "1"}, {"cpu": "64", "memory": "256Gi", GPU: "4", "rdma/ib": "1"}),
        ([], {}, {"cpu": "8", "memory": "64Gi"}, {"cpu": "8", "memory": "64Gi", GPU: "0"}),
    ],
)
def test_the_quota_is_what_usable_nodes_offer(nodes: list[Json], site: Json, given: Json, wanted: Json) -> None:
    assert quotas(*nodes, site=site, **given) == wanted


def test_the_pool_is_one_flavor_and_a_queue_that_lends() -> None:
    flavor, queue = pool("pool", [node(labels={"a": "b"})], {"nodeSelector": {"a": "b"}}, {})
    assert (flavor["kind"], flavor["spec"]) == ("ResourceFlavor", {"nodeLabels": {"a": "b"}})
    assert queue["spec"]["cohortName"] == "pool" and queue["spec"]["namespaceSelector"] == {}
    assert pool("pool", [node()], {}, {})[0]["spec"] == {}


@pytest.mark.parametrize(
    ("nodes", "given", "words"),
    [
        ([node()], {"cpu": "lots"}, "platform_queue_quota.cpu is 'lots'; write it as 64, 500m or 512Gi"),
        ([node()], {"cpu": -1}, "platform_queue_quota.cpu is -1;"),
        ([node(unschedulable=True)], {}, "no schedulable node of 1 matches trainlab_site.nodeSelector (a: b)"),
        ([], {"cpu": "8"}, "set platform_queue_quota.memory"),
    ],
)
def test_a_quota_that_cannot_be_is_a_sentence(nodes: list[Json], given: Json, words: str) -> None:
    with pytest.raises(AnsibleActionFail) as failed:
        pool("pool", nodes, {"nodeSelector": {"a": "b"}}, given)
    assert words in str(failed.value)


def test_an_attendee_owns_nothing_and_borrows_up_to_their_quota() -> None:
    groups = pool("pool", [node(gpus="8")], {}, {"rdma/ib": 1})[1]["spec"]["resourceGroups"]
    (group,) = share(groups, {f"requests.{GPU}": "1", "memory": "16Gi", "pods": "30"})
    assert group["coveredResources"] == groups[0]["coveredResources"], "only what both list can be borrowed"
    assert group["flavors"][0] == {
        "name": "pool",
        "resources": [
            {"name": "cpu", "nominalQuota": "0"},
            {"name": "memory", "nominalQuota": "0", "borrowingLimit": "16Gi"},
            {"name": GPU, "nominalQuota": "0", "borrowingLimit": "1"},
            {"name": "rdma/ib", "nominalQuota": "0"},
        ],
    }


def admitted(name: str, queue: str, *ended: str) -> Json:
    conditions = [{"type": each, "status": "True"} for each in ended]
    status = {"admission": {"clusterQueue": queue}, "conditions": conditions}
    return {"kind": "Workload", "metadata": {"name": name, "namespace": "team"}, "status": status}


def test_what_uses_our_queue_is_named() -> None:
    """Queues that borrow its flavor and jobs that have its quota; no queue of others, and no job that waits or has ended."""
    flavor, queue = pool("pool", [node()], {}, {})
    theirs = pool("theirs", [node()], {}, {})
    borrower = queue | {"metadata": {"name": "ada"}}
    for each in (flavor, queue):
        each["metadata"]["labels"] = {"trainlab.dev/owner": "platform"}
    flavors, queues = [flavor, theirs[0]], [queue, theirs[1]]
    idle = [admitted("ended", "pool", "Finished"), admitted("other", "theirs"), {"metadata": {"name": "waits"}}]
    assert in_use(flavors, queues, idle) == ""
    assert in_use(flavors, [*queues, borrower], [admitted("job", "pool", "Admitted")]) == (
        "ClusterQueue ada, Workload team/job"
    )
    jobs = [admitted(f"job-{number}", "pool") for number in range(5)]
    assert in_use([], queues, jobs).endswith("Workload team/job-2 and 2 more")


@pytest.mark.parametrize(("effect", "open_"), [("NoSchedule", False), ("NoExecute", False), ("PreferNoSchedule", True)])
def test_a_node_that_refuses_or_evicts_is_no_place(effect: str, open_: bool) -> None:
    node: dict[str, Any] = {"metadata": {}, "spec": {"taints": [{"key": "dedicated", "effect": effect}]}}
    assert open_to(node, {}, []) is open_
    assert open_to(node, {}, [{"key": "dedicated", "operator": "Exists"}])
