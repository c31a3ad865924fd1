"""Checks of nodes: are they healthy, and is there room for the pods of training and serving."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from ..gpu_inventory import MIN_DRIVER, driver_of, gpus_of
from ..kube import Json
from .cluster_state import ClusterState, Finding, quantity

AUTOSCALERS = "/apis/autoscaling.openshift.io/v1beta1/machineautoscalers"
DEFAULT = "/apis/autoscaling.openshift.io/v1/clusterautoscalers/default"
MACHINE_SETS = "/apis/machine.openshift.io/v1beta1/namespaces/{}/machinesets/{}"
GPUS, CORES, MEBIBYTES = (f"machine.openshift.io/{name}" for name in ("GPU", "vCPU", "memoryMb"))
VARIABLE = "verify_gpu_autoscaling"
GIB = Decimal(2**30)


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


def coming(facts: ClusterState) -> list[Coming]:
    """Return the nodes with GPUs that may still be added; empty without an autoscaler."""
    result = (
        [Coming(f"{VARIABLE} says that an autoscaler adds nodes with GPUs")] if facts.options.gpu_autoscaling else []
    )
    if not facts.api.serves("autoscaling.openshift.io/v1beta1", "machineautoscalers"):
        return result
    if facts.api.get(DEFAULT) is None:  # without it the others do nothing
        return result
    for autoscaler in facts.api.items(AUTOSCALERS):
        target = autoscaler["spec"]["scaleTargetRef"]
        machines = facts.api.get(MACHINE_SETS.format(autoscaler["metadata"]["namespace"], target["name"]))
        result += [_coming(autoscaler, machines)] if machines else []
    return [each for each in result if each.count is None or (each.count and each.gpus)]


def _coming(autoscaler: Json, machines: Json) -> Coming:
    has = machines["metadata"].get("annotations") or {}
    most = int(autoscaler["spec"]["maxReplicas"])
    count = max(0, most - int((machines.get("status") or {}).get("replicas") or 0))
    gpus = int(has.get(GPUS) or 0)
    words = f"MachineAutoscaler {autoscaler['metadata']['name']} adds up to {count} nodes with {gpus} GPUs each"
    return Coming(words, count, gpus, Decimal(has.get(CORES) or 0), Decimal(has.get(MEBIBYTES) or 0) * 2**20)


def awaited(what: str, nodes: list[Coming]) -> Finding:
    """Return the warning that pods will wait for nodes."""
    return Finding(
        "warning",
        f"{what}; {'; '.join(each.words for each in nodes)}",
        "pods are Pending until a machine has started and its GPU driver is installed",
        "train_unschedulable_timeout and serve_unschedulable_timeout end that wait: 60 s by default, 1200 s in inventory/openshift",
    )


def nodes_ready(facts: ClusterState) -> Finding:
    """There is a node that takes pods, and none has too little disk or memory left."""
    for node in facts.nodes:
        for kind, what in (("DiskPressure", "disk"), ("MemoryPressure", "memory")):
            for each in node["status"].get("conditions", []):
                if each["type"] == kind and each["status"] == "True":
                    return Finding(
                        "error",
                        f"node {node['metadata']['name']} has too little {what} left: {each.get('message', kind)}",
                        "it evicts pods",
                        f"free {what} on it, or take it out of service: {facts.api.kubectl} cordon {node['metadata']['name']}",
                    )
    if facts.usable_nodes:
        return Finding.ok(f"{len(facts.usable_nodes)} of {len(facts.nodes)} take pods of this site")
    return Finding(
        "error",
        f"none of the {len(facts.nodes)} nodes takes pods of this site",
        "they are not ready, cordoned, tainted, or lack a label of site.nodeSelector",
        f"{facts.api.kubectl} describe nodes; adjust site.tolerations and site.nodeSelector",
    )


def gpus(facts: ClusterState) -> Finding:
    """As many GPUs as training and serving request can be allocated."""
    resources, serve, name = (
        facts.phase["resources"],
        facts.phase["serve"],
        facts.site["gpuResource"],
    )
    per_pod = resources["gpus_per_node"]
    if per_pod and (result := _shared(facts, resources, name)):
        return result
    serving = serve["gpus"] if facts.site["serving"] else 0
    if not per_pod and not serving:
        return Finding.skipped("the phase requests none")
    have = [quantity(node["status"].get("allocatable", {}).get(name)) for node in facts.usable_nodes]
    pods = sum(int(count // per_pod) for count in have) if per_pod else 0
    enough = (not per_pod or pods >= resources["nodes"]) and (not serving or max(have, default=0) >= serving)
    more = [] if enough else coming(facts)
    if more and _will_do(more, resources["nodes"] - pods, per_pod) and _will_do(more, 1, serving):
        return awaited(f"the nodes that take pods of this site offer {sum(have)} {name}", more)
    if not sum(have) and not more:
        return Finding(
            "error",
            f"phase.resources.gpus_per_node is {per_pod} and phase.serve.gpus is {serve['gpus']}, but no node that "
            f"takes pods of this site offers {name}",
            "the pods would stay Pending",
            f"use a cluster with GPUs (operator installed, site.tolerations right; {VARIABLE}: true where an autoscaler that "
            "cannot be seen in the cluster adds them), or train on the CPU with "
            f"gpus_per_node 0 and serve.runtime trainlab, as values/local/{facts.phase['name']}.yaml does",
        )
    if per_pod and pods < resources["nodes"]:
        return Finding(
            "error",
            f"phase.resources requests {resources['nodes']} pods with {per_pod} {name} each, the nodes have room for {pods}"
            + "".join(f"; {each.words}" for each in more),
            "the job would wait forever",
            "lower phase.resources.nodes or gpus_per_node, or add GPU nodes",
        )
    if serving and max(have, default=0) < serving:
        return Finding(
            "error",
            f"phase.serve.gpus is {serving}, the biggest node offers {max(have, default=0)}"
            + "".join(f"; {each.words}" for each in more),
            "the server would wait forever",
            "lower it",
        )
    if result := _old_driver(facts, name) or _too_small(facts, name) or (_of_all(facts, name) if serving else None):
        return result
    words = {gpus_of(node, name).words for node in facts.usable_nodes if not gpus_of(node, name).own}
    shares = f" ({', '.join(sorted(words))})" if sum(have) and words else ""
    return Finding.ok(f"{sum(have)} {name}{shares}")


def _shared(facts: ClusterState, resources: Json, name: str) -> Finding | None:
    """Each rank of a job has a physical GPU of its own: NCCL refuses two ranks on one, and shares and slices may be of one.

    A pod with one share that no other pod of the job is beside has one; nothing else is certain.
    """
    per_pod, pods = resources["gpus_per_node"], resources["nodes"]
    if per_pod * pods == 1:
        return None
    have = {node["metadata"]["name"]: gpus_of(node, name) for node in facts.usable_nodes}
    have = {node: gpus for node, gpus in have.items() if gpus.allocatable}
    shared = {node: gpus for node, gpus in have.items() if not gpus.own}
    if not shared:
        return None
    alone = facts.site.get("spread") == "required" and per_pod == 1
    if alone and len(have) >= pods:
        return None
    node, gpus = next(iter(shared.items()))
    spread = (
        ", or set site.spread to required, which puts each pod on a node of its own"
        if per_pod == 1 and len(have) >= pods
        else ""
    )
    return Finding(
        "error",
        f"the job has {per_pod * pods} ranks, and each needs a physical GPU of its own; node {node} offers {gpus.allocatable} {name} "
        f"of {gpus.words}",
        "two ranks on one GPU end in NCCL (Duplicate GPU detected), and its memory is theirs together",
        f"set platform_gpu_shares to 1 (and MIG off) on the nodes that train, choose others with site.nodeSelector, or set "
        f"phase.resources.nodes and gpus_per_node to 1{spread}",
    )


def _old_driver(facts: ClusterState, name: str) -> Finding | None:
    """The driver of each node that a training pod may be sent to is new enough for the CUDA of the trainer image."""
    if not facts.phase["resources"]["gpus_per_node"]:
        return None
    drivers = {
        node["metadata"]["name"]: driver_of(node) for node in facts.usable_nodes if gpus_of(node, name).allocatable
    }
    old = {node: version for node, version in drivers.items() if version is not None and version < MIN_DRIVER}
    if not old:
        return None
    node, version = next(iter(old.items()))
    return Finding(
        "error" if len(old) == len(drivers) else "warning",
        f"node {node} has driver {version} of NVIDIA (label nvidia.com/cuda.driver-version.major)",
        f"CUDA of the trainer image needs {MIN_DRIVER} or newer: a rank there ends the job before it loads anything",
        "update it (spec.driver.version of the ClusterPolicy), or choose other nodes with site.nodeSelector",
    )


def _too_small(facts: ClusterState, name: str) -> Finding | None:
    """What `trainlab plan` counts for a rank fits the memory of a GPU, or of its part, on each node that a pod may be sent to."""
    memory, device = facts.plan.get("memory"), facts.plan.get("device")
    if not memory or not device or not facts.phase["resources"]["gpus_per_node"]:
        return None
    need, usable = Decimal(memory["total"]), Decimal(device["usable_gib"]) / Decimal(device["reported_gib"])
    have = {node["metadata"]["name"]: gpus_of(node, name) for node in facts.usable_nodes}
    known = {node: gpus for node, gpus in have.items() if gpus.allocatable and gpus.memory}
    small = {node: gpus for node, gpus in known.items() if Decimal(gpus.share) * usable < need}
    if not small:
        return None
    node, gpus = next(iter(small.items()))
    shares = int(Decimal(gpus.memory) * usable / need)
    fix = "choose larger GPUs with site.nodeSelector, or lower phase.train.batch_size or phase.model.max_length"
    if gpus.replicas > 1:
        fix = (
            f"set platform_gpu_shares to {shares} at most" if shares else "a whole one would not be enough either"
        ) + f"; {fix}"
    return Finding(
        "error" if len(small) == sum(each.allocatable > 0 for each in have.values()) else "warning",
        f"a rank needs {need / GIB:.1f} GiB by `trainlab plan`; node {node} offers {gpus.words}, which leaves {Decimal(gpus.share) * usable / GIB:.1f} "
        f"usable GiB of {Decimal(gpus.share) / GIB:.1f} for each pod",
        "the rank runs out of memory, or those who share its GPU do",
        fix,
    )


def _of_all(facts: ClusterState, name: str) -> Finding | None:
    """A server of vLLM takes its part of the whole GPU, in however many shares that is."""
    shared = [gpus for node in facts.usable_nodes if (gpus := gpus_of(node, name)).allocatable and gpus.replicas > 1]
    if not shared or facts.phase["serve"]["runtime"] != "vllm":
        return None
    return Finding(
        "warning",
        f"phase.serve.gpus is {facts.phase['serve']['gpus']}, and the nodes offer {shared[0].words}",
        "vLLM takes 90 % of a GPU's memory, also for a share of it, so that nothing else fits beside one server",
        "set platform_gpu_shares to 1, or phase.serve.runtime to trainlab",
    )


def _will_do(more: list[Coming], pods: int, gpus: int) -> bool:
    """Tell whether so many pods with so many GPUs each will find room on nodes that are to come."""
    if pods <= 0 or not gpus or any(each.count is None for each in more):
        return True
    return sum(each.places(gpus=gpus) for each in more) >= pods


def training_fits(facts: ClusterState) -> Finding:
    """All pods of the job find CPU and memory at the same time."""
    wanted = facts.phase["resources"]
    gpus = wanted["gpus_per_node"]
    return _fits(facts, wanted["nodes"], wanted["cpu"], wanted["memory"], "phase.resources", gpus)


def serving_fits(facts: ClusterState) -> Finding:
    """The server finds CPU and memory once training has ended."""
    if not facts.site["serving"]:
        return Finding.skipped("site.serving is false")
    wanted = facts.phase["serve"]
    return _fits(facts, 1, wanted["cpu"], wanted["memory"], "phase.serve", wanted["gpus"])


def _fits(facts: ClusterState, pods: int, cpu: str, memory: str, block: str, gpus: int) -> Finding:
    """Count how many such pods fit into the nodes' free room; pods of this release do not count.

    Nodes with GPUs that are to come count for pods with GPUs only.
    """
    places, rooms, name = 0, [], facts.site["gpuResource"]
    for node in facts.nodes_for(gpus):
        cores, size = facts.free(node, "cpu"), facts.free(node, "memory")
        room = [cores // quantity(cpu), size // quantity(memory)]
        words = f"{node['metadata']['name']} {cores.normalize():f} cores {size / GIB:.1f} GiB"
        if gpus:  # all that it offers: those that others have come back to a queue
            offered = int(quantity(node["status"].get("allocatable", {}).get(name)))
            room.append(Decimal(offered // gpus))
            words += f" {offered} {name}"
        places += max(0, int(min(room)))
        rooms.append(words)
    if places >= pods:
        return Finding.ok(f"{pods} pods of {cpu} cores, {memory}; room for {places}")
    more = coming(facts) if gpus else []
    if any(each.count is None for each in more) or (
        more and places + sum(each.places(gpus, cpu, memory) for each in more) >= pods
    ):
        return awaited(f"{pods} pods of {cpu} cores, {memory}; room for {places} now", more)
    return Finding(
        "error",
        f"{block}: {pods} pods of {cpu} cores and {memory}{f', with {gpus} {name},' if gpus else ''} do not fit, there is room for {places} "
        f"(free: {', '.join(rooms) or 'no node'})",
        "pods would stay Pending",
        f"lower {block}.cpu, {block}.memory{' or phase.resources.nodes' if pods > 1 else ''}, or free resources in the cluster",
    )
