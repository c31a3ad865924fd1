"""Our own ClusterQueue: what the nodes offer, and the part of it that an attendee may borrow; pure functions.

Everything is one cohort: the pool owns the quota and lends it, each attendee has a ClusterQueue that owns nothing and borrows up to
what one of them may use at a time. Every version of Kueue does that as it is configured by default, in the order in which jobs came;
with `fairSharing` in its configuration whoever borrows least goes first (kueue v0.15.2, pkg/scheduler/scheduler.go, makeIterator),
which the Red Hat build of Kueue writes for preemptionPolicy FairSharing (openshift/kueue-operator 0217a1887de8,
pkg/configmap/configmap.go, buildFairSharing). AdmissionFairSharing, by which LocalQueues of one ClusterQueue share, that build never
writes (kueue v0.15.2, pkg/util/admissionfairsharing/admission_fair_sharing.go, needs `admissionFairSharing`).
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Any

from ansible.errors import AnsibleActionFail

from .checks.cluster_state import open_to, quantity
from .kube import Json
from .platform_api import ours, title

KUEUE = "kueue.x-k8s.io/v1beta1"
GPU = "nvidia.com/gpu"
"""As training/src/trainlab/config/site.py, gpuResource."""
KI = 1024
SHOWN = 3
SUFFIXES = ("Mi", "Gi", "Ti", "Pi", "Ei")


def pool(name: str, nodes: list[Json], site: Json, given: Json) -> list[Json]:
    """Return ResourceFlavor and ClusterQueue; `site` is block site as the inventory has it, `given` wins over what nodes offer.

    AnsibleActionFail where an amount is not a Kubernetes quantity, or no node offers cpu and memory and they are not given.
    """
    asked = {resource: _amount(resource, value) for resource, value in given.items()}
    quota = _offered(nodes, site, asked) | asked
    # whoever else is in the cohort owns nothing
    resources = [{"name": key, "nominalQuota": amount, "borrowingLimit": "0"} for key, amount in quota.items()]
    groups = [{"coveredResources": list(quota), "flavors": [{"name": name, "resources": resources}]}]
    selector = site.get("nodeSelector") or {}
    return [
        _document("ResourceFlavor", name, {"nodeLabels": selector} if selector else {}),
        _document("ClusterQueue", name, {"cohort": name, "namespaceSelector": {}, "resourceGroups": groups}),
    ]


def share(groups: list[Json], quota: Json) -> list[Json]:
    """Return the resourceGroups of a ClusterQueue that borrows from one with `groups`, up to a ResourceQuota's hard limits."""

    def part(resource: str) -> Json:
        most = quota.get(f"requests.{resource}", quota.get(resource))
        limit = {} if most is None else {"borrowingLimit": str(most)}
        return {"name": resource, "nominalQuota": "0", **limit}

    return [
        {
            "coveredResources": group["coveredResources"],
            "flavors": [
                {"name": flavor["name"], "resources": [part(each["name"]) for each in flavor["resources"]]}
                for flavor in group["flavors"]
            ],
        }
        for group in groups
    ]


def in_use(flavors: list[Json], queues: list[Json], workloads: list[Json]) -> str:
    """Name what still uses a ClusterQueue or ResourceFlavor of ours: other ClusterQueues, and jobs that have its quota."""
    mine = {one["metadata"]["name"] for one in flavors if ours(one)}
    names = {one["metadata"]["name"] for one in queues if ours(one)}
    users = [title(one) for one in queues if not ours(one) and mine & _flavors(one)]
    for one in workloads:
        status = one.get("status") or {}
        ended = any(each["type"] == "Finished" and each["status"] == "True" for each in status.get("conditions") or [])
        if (status.get("admission") or {}).get("clusterQueue") in names and not ended:
            users.append(title(one))
    return ", ".join(users[:SHOWN]) + (f" and {len(users) - SHOWN} more" if len(users) > SHOWN else "")


def _flavors(queue: Json) -> set[str]:
    groups = queue["spec"].get("resourceGroups") or []
    return {flavor["name"] for group in groups for flavor in group["flavors"]}


def _offered(nodes: list[Json], site: Json, given: Json) -> dict[str, str]:
    """What the site's pods may allocate on all nodes that take them, by resource."""
    gpu, selector = site.get("gpuResource") or GPU, site.get("nodeSelector") or {}
    # the chart tolerates the resource's own taint
    tolerations = [*(site.get("tolerations") or []), {"key": gpu, "operator": "Exists", "effect": "NoSchedule"}]
    usable = [each["status"].get("allocatable") or {} for each in nodes if open_to(each, selector, tolerations)]
    for resource in ("cpu", "memory"):
        if not usable and resource not in given:
            chosen = ", ".join(f"{key}: {value}" for key, value in selector.items()) or "empty"
            raise AnsibleActionFail(
                f"no schedulable node of {len(nodes)} matches trainlab_site.nodeSelector ({chosen}) and tolerations, so the queue "
                f"would have no quota; correct them, or set platform_queue_quota.{resource}; nothing was applied"
            )
    total = {name: sum((quantity(each.get(name)) for each in usable), Decimal(0)) for name in ("cpu", "memory", gpu)}
    return {"cpu": _cores(total["cpu"]), "memory": _bytes(total["memory"]), gpu: str(int(total[gpu]))}


def _cores(number: Decimal) -> str:
    return str(int(number)) if number == int(number) else f"{int(number * 1000)}m"


def _bytes(number: Decimal) -> str:
    """Whole mebibytes with the largest suffix that needs no fraction, as Kubernetes writes them."""
    left, power = int(number) // KI**2, 0
    while left and left % KI == 0 and power < len(SUFFIXES) - 1:
        left, power = left // KI, power + 1
    return f"{left}{SUFFIXES[power]}"


def _amount(resource: str, value: Any) -> str:
    try:
        good = quantity(value) >= 0
    except (InvalidOperation, KeyError):
        good = False
    if not good:
        raise AnsibleActionFail(
            f"platform_queue_quota.{resource} is {value!r}; write it as 64, 500m or 512Gi; nothing was applied"
        )
    return str(value)


def _document(kind: str, name: str, spec: Json) -> Json:
    return {"apiVersion": KUEUE, "kind": kind, "metadata": {"name": name}, "spec": spec}
