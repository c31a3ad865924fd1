"""What checks read and what they return; every list is read once."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import Any, Literal

from ..kube import Api, Json

GPU = "nvidia.com/gpu"
State = Literal["ok", "warning", "error", "skipped"]
# powers of 1024 and 1000 of Kubernetes quantities
SUFFIXES = {"m": Decimal("0.001"), "": Decimal(1)}
SUFFIXES |= {name: Decimal(1000) ** (power + 1) for power, name in enumerate("kMGTPE")}
SUFFIXES |= {f"{name}i": Decimal(1024) ** (power + 1) for power, name in enumerate("KMGTPE")}


def quantity(text: Any) -> Decimal:
    """Return a Kubernetes quantity as a number: cores, bytes or pieces."""
    value = str(text or "0")
    number = value.rstrip("kmKMGTPEi")
    return Decimal(number) * SUFFIXES[value[len(number) :]]


@dataclass(frozen=True)
class Finding:
    """Outcome of a check: what was found, why it matters, the command or value that fixes it."""

    state: State
    what: str
    why: str = ""
    fix: str = ""

    @classmethod
    def ok(cls, what: str) -> Finding:
        """All is well."""
        return cls("ok", what)

    @classmethod
    def skipped(cls, what: str) -> Finding:
        """Could not, or need not, be checked."""
        return cls("skipped", what)

    @property
    def sentence(self) -> str:
        """The finding as an error message."""
        return "; ".join(filter(None, (self.what, self.why, self.fix)))


@dataclass
class Options:
    """What the inventory says about the controller."""

    helm: str = "helm"
    pypi_models: list[str] = field(default_factory=list)
    models_from_here: bool = False
    image_build: bool = False
    cluster_queue: str = ""
    image_source: str = "none"
    gpu_autoscaling: bool = False
    helm_refused: str = ""
    upgrade_to: str = ""


@dataclass
class ClusterState:
    """The cluster, and what is wanted of it: `phase` and `site` with all defaults, `claims` by the name of their volume.

    `plan` is what `trainlab plan --json` says of them.
    """

    api: Api
    namespace: str
    release: str
    phase: Json
    site: Json
    claims: dict[str, str]
    options: Options = field(default_factory=Options)
    plan: Json = field(default_factory=dict)

    @cached_property
    def nodes(self) -> list[Json]:
        """All nodes."""
        return self.api.items("/api/v1/nodes")

    @cached_property
    def usable_nodes(self) -> list[Json]:
        """Ready nodes that would take a pod of this phase: one with GPUs if it has such pods, on nodes with and without GPUs."""
        return self.nodes_for(self.phase["resources"]["gpus_per_node"] or self.phase["serve"]["gpus"])

    def nodes_for(self, gpus: int) -> list[Json]:
        """Ready nodes that would take a pod of this site with so many GPUs."""
        known = tolerations(self.site, self.phase, gpus)
        return [node for node in self.nodes if self._takes(node, known)]

    @cached_property
    def pods(self) -> list[Json]:
        """Pods that still take up room in the cluster, except those of this release."""
        pods = self.api.items("/api/v1/pods", fieldSelector="status.phase!=Succeeded,status.phase!=Failed")
        return [pod for pod in pods if not self._own(pod)]

    @cached_property
    def namespace_object(self) -> Json | None:
        """The namespace, None when it does not exist."""
        return self.api.get(f"/api/v1/namespaces/{self.namespace}")

    def claim(self, volume: str) -> Json | None:
        """The claim of a volume."""
        name = self.claims[volume]
        return self.api.get(f"/api/v1/namespaces/{self.namespace}/persistentvolumeclaims/{name}")

    def free(self, node: Json, resource: str) -> Decimal:
        """What a node has left of a resource: cores, bytes or pieces."""
        used = Decimal(0)
        for pod in self.pods:
            if pod["spec"].get("nodeName") == node["metadata"]["name"]:
                for container in pod["spec"]["containers"]:
                    used += quantity(container.get("resources", {}).get("requests", {}).get(resource))
        return quantity(node["status"].get("allocatable", {}).get(resource)) - used

    def _own(self, pod: Json) -> bool:
        labels = pod["metadata"].get("labels", {})
        ours = (labels.get("app.kubernetes.io/instance"), labels.get("serving.kserve.io/inferenceservice"))
        return bool(pod["metadata"].get("namespace") == self.namespace and self.release in ours)

    def _takes(self, node: Json, known: list[Json]) -> bool:
        conditions = node.get("status", {}).get("conditions", [])
        ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
        return ready and open_to(node, self.site["nodeSelector"], known)


def tolerations(site: Json, phase: Json, gpus: int) -> list[Json]:
    """Return what the chart lets a pod with so many GPUs tolerate (charts/trainjob/templates/_pods.tpl, trainjob.placement).

    Besides the site's, for pods with GPUs, the taint of the resource and, for a slice (MIG), that of whole GPUs; so do the others
    of a phase with GPUs if a node selector or a volume for one node may send them there.
    """
    known = list(site.get("tolerations") or [])
    if not gpus:
        volumes = site.get("storage", {}).items()
        once = any(
            volume.get("accessMode") == "ReadWriteOnce"
            for name, volume in volumes
            if name != "data" or volume.get("size") or volume.get("existing")
        )
        sent = site.get("nodeSelector") or once
        if not sent or not (phase["resources"]["gpus_per_node"] or phase["serve"]["gpus"]):
            return known
    resource = site.get("gpuResource") or GPU
    keys = [resource, *([GPU] if resource.startswith("nvidia.com/") else [])]
    return known + [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in dict.fromkeys(keys)]


def open_to(node: Json, selector: Json, tolerations: list[Json]) -> bool:
    """Tell whether the scheduler may send a pod with this node selector and these tolerations to the node."""
    labels, spec = node["metadata"].get("labels", {}), node.get("spec", {})
    chosen = all(labels.get(key) == value for key, value in selector.items())
    taints = [taint for taint in spec.get("taints", []) if taint["effect"] in ("NoSchedule", "NoExecute")]
    tolerated = all(any(tolerates(each, taint) for each in tolerations) for taint in taints)
    return chosen and tolerated and not spec.get("unschedulable")


def tolerates(toleration: Json, taint: Json) -> bool:
    """Tell whether a pod with this toleration may run on a node with this taint."""
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", taint["key"])
    return bool(toleration.get("key") == taint["key"] and toleration.get("value", "") == taint.get("value", ""))
