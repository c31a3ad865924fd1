"""Which machines an autoscaler will add when pods ask for them; used by the checks of nodes and of GPUs.

OpenShift's machine controllers write what a machine of a MachineSet has into its annotations, so that the autoscaler can start
with none (openshift/machine-api-provider-aws, pkg/actuators/machineset/controller.go). Of hosted control planes (NodePools) and
of other providers' autoscalers nothing can be seen inside the cluster: there the inventory says it.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from ..kube import Json
from .cluster_state import ClusterState, Finding, quantity

AUTOSCALERS = "/apis/autoscaling.openshift.io/v1beta1/machineautoscalers"
DEFAULT = "/apis/autoscaling.openshift.io/v1/clusterautoscalers/default"
MACHINE_SETS = "/apis/machine.openshift.io/v1beta1/namespaces/{}/machinesets/{}"
GPUS, CORES, MEBIBYTES = (f"machine.openshift.io/{name}" for name in ("GPU", "vCPU", "memoryMb"))
VARIABLE = "verify_gpu_autoscaling"


@dataclass(frozen=True)
class Coming:
    """So many more nodes of one kind; `count` is None if nothing is known about them but that they come."""

    words: str
    count: int | None = None
    gpus: int = 0
    cpu: Decimal = Decimal(0)
    memory: Decimal = Decimal(0)

    def places(self, gpus: int = 0, cpu: str = "0", memory: str = "0") -> int:
        """Return how many pods that request this find room; the system's own share of a node is not known."""
        wanted = ((self.gpus, Decimal(gpus)), (self.cpu, quantity(cpu)), (self.memory, quantity(memory)))
        return (self.count or 0) * min((int(have // want) for have, want in wanted if want), default=0)


def coming(cluster_state: ClusterState) -> list[Coming]:
    """Return the nodes with GPUs that may still be added; empty without an autoscaler."""
    found = (
        [Coming(f"{VARIABLE} says that an autoscaler adds nodes with GPUs")]
        if cluster_state.options.gpu_autoscaling
        else []
    )
    if not cluster_state.api.serves("autoscaling.openshift.io/v1beta1", "machineautoscalers"):
        return found
    if cluster_state.api.get(DEFAULT) is None:  # without it the others do nothing
        return found
    for one in cluster_state.api.items(AUTOSCALERS):
        target = one["spec"]["scaleTargetRef"]
        machines = cluster_state.api.get(MACHINE_SETS.format(one["metadata"]["namespace"], target["name"]))
        found += [_coming(one, machines)] if machines else []
    return [each for each in found if each.count is None or (each.count and each.gpus)]


def _coming(autoscaler: Json, machines: Json) -> Coming:
    has = machines["metadata"].get("annotations") or {}
    most = int(autoscaler["spec"]["maxReplicas"])
    count = max(0, most - int((machines.get("status") or {}).get("replicas") or 0))
    gpus = int(has.get(GPUS) or 0)
    words = f"MachineAutoscaler {autoscaler['metadata']['name']} adds up to {count} nodes with {gpus} GPUs each"
    return Coming(words, count, gpus, Decimal(has.get(CORES) or 0), Decimal(has.get(MEBIBYTES) or 0) * 2**20)


def awaited(what: str, found: list[Coming]) -> Finding:
    """Return the warning that pods will wait for nodes."""
    return Finding(
        "warning",
        f"{what}; {'; '.join(each.words for each in found)}",
        "pods are Pending until a machine has started and its GPU driver is installed",
        "train_unschedulable_timeout and serve_unschedulable_timeout end that wait: 60 s by default, 1200 s in inventory/openshift",
    )
