"""Our own ClusterQueue: what the nodes offer, and the part of it that an attendee may borrow; pure functions.

Everything is one cohort: the pool owns the quota and lends it, each attendee has a ClusterQueue that owns nothing and borrows up to
what one of them may use at a time. Every version of Kueue does that as it is configured by default, in the order in which jobs came;
with `fairSharing` in its configuration whoever borrows least goes first (kueue v0.15.2, pkg/scheduler/scheduler.go, makeIterator),
which the Red Hat build of Kueue writes for preemptionPolicy FairSharing (openshift/kueue-operator 0217a1887de8,
pkg/configmap/configmap.go, buildFairSharing). AdmissionFairSharing, by which LocalQueues of one ClusterQueue share, that build never
writes (kueue v0.15.2, pkg/util/admissionfairsharing/admission_fair_sharing.go, needs `admissionFairSharing`).
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any

from ansible.errors import AnsibleActionFail

from ..plugin_utils import kueue
from ..plugin_utils.checks.cluster_state import GPU, open_to, quantity, tolerations
from ..plugin_utils.kube import Json

DOCUMENTATION = r"""
name: queue_pool
short_description: ResourceFlavor and ClusterQueue with what the cluster's nodes offer as quota
description:
  - Counts the nodes that take pods of the site. The ClusterQueue is in a cohort of its own name, to which it lends.
  - The filter C(queue_share), of the resourceGroups of that ClusterQueue and of C(hard) of a ResourceQuota, returns those of one that
    borrows from it; each resource has a nominal quota of 0 and, if the ResourceQuota limits it, that as its borrowing limit.
version_added: 0.1.0
options:
  _input:
    description: The name of both.
    type: str
    required: true
  nodes:
    description: All Nodes of the cluster.
    type: list
    elements: dict
    required: true
  site:
    description: Block C(site); read are C(nodeSelector), C(tolerations) and C(gpuResource).
    type: dict
    default: {}
  quota:
    description: Amount by resource, instead of what the nodes offer of it.
    type: dict
    default: {}
author:
  - The trainlab authors
"""

EXAMPLES = r"""
- name: Show the queue
  ansible.builtin.debug:
    msg: "{{ 'trainlab-pool' | trainlab.rhoai.queue_pool(nodes.resources, {}, {'nvidia.com/gpu': 4}) }}"
"""

RETURN = r"""
_value:
  description: The two documents.
  type: list
  elements: dict
"""

"""As training/src/trainlab/config/site.py, gpuResource."""
KI = 1024
SUFFIXES = ("Mi", "Gi", "Ti", "Pi", "Ei")


def queue_pool(name: str, nodes: list[Json], site: Json | None = None, quota: Json | None = None) -> list[Json]:
    """Return ResourceFlavor and ClusterQueue; `site` is block site as the inventory has it, `quota` wins over what nodes offer.

    AnsibleActionFail where an amount is not a Kubernetes quantity, or no node offers cpu and memory and they are not given.
    """
    site = site or {}
    asked = {resource: _amount(resource, value) for resource, value in (quota or {}).items()}
    quota = _offered(nodes, site, asked) | asked
    # whoever else is in the cohort owns nothing
    resources = [{"name": key, "nominalQuota": amount, "borrowingLimit": "0"} for key, amount in quota.items()]
    groups = [{"coveredResources": list(quota), "flavors": [{"name": name, "resources": resources}]}]
    selector = site.get("nodeSelector") or {}
    return [
        _document("ResourceFlavor", name, {"nodeLabels": selector} if selector else {}),
        _document("ClusterQueue", name, {"cohortName": name, "namespaceSelector": {}, "resourceGroups": groups}),
    ]


def queue_share(groups: list[Json], quota: Json | None = None) -> list[Json]:
    """Return the resourceGroups of a ClusterQueue that borrows from one with `groups`, up to a ResourceQuota's hard limits."""

    hard = quota or {}

    def part(resource: str) -> Json:
        most = hard.get(f"requests.{resource}", hard.get(resource))
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


def _offered(nodes: list[Json], site: Json, quota: Json) -> dict[str, str]:
    """What the site's pods may allocate on all nodes that take them, by resource."""
    gpu, selector = site.get("gpuResource") or GPU, site.get("nodeSelector") or {}
    known = tolerations(site, {}, 1)
    usable = [each["status"].get("allocatable") or {} for each in nodes if open_to(each, selector, known)]
    for resource in ("cpu", "memory"):
        if not usable and resource not in quota:
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
    return {"apiVersion": kueue.NEWEST, "kind": kind, "metadata": {"name": name}, "spec": spec}


class FilterModule:
    """Found by Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"queue_pool": queue_pool, "queue_share": queue_share}
