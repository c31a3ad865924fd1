"""What GPUs a node really has, by NVIDIA's labels: one place for the platform's wait and the checks.

GPU feature discovery sets the labels (NVIDIA/k8s-device-plugin, docs/gpu-feature-discovery/README.md): `gpu.count` counts GPUs, or
slices with the MIG strategy `single`, `gpu.replicas` the shares of each, `gpu.memory` the MiB of each, and `mig-PROFILE.count`,
`.replicas` and `.memory` the same of the slices of a profile with the strategy `mixed`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .kube import Json

LABEL, MIB = "nvidia.com/", 2**20
SHARED = ".shared"
"""End of a resource whose shares the device plugin renames."""
CONFIG = "trainlab-gpu-shares-{}"
"""Name of the ConfigMap of platform_gpu_shares: another number is another name, which makes the operator restart its plugin."""


@dataclass(frozen=True)
class Gpus:
    """What a node offers of one resource: `allocatable` to pods, `replicas` of each device, `devices`, and whether they are slices.

    `memory` is that of one device in bytes, 0 if no label tells it.
    """

    allocatable: int
    replicas: int
    sliced: bool
    product: str
    memory: int = 0

    @property
    def share(self) -> float:
        """Bytes for each pod that gets one, if all who share a device take the same; 0 if unknown."""
        return self.memory / self.replicas

    @property
    def devices(self) -> int:
        """GPUs or slices, each counted once."""
        return self.allocatable // self.replicas

    @property
    def own(self) -> bool:
        """True where each that a pod gets is a physical GPU of its own."""
        return self.replicas == 1 and not self.sliced

    @property
    def words(self) -> str:
        """For people, as `1 NVIDIA-L40S-SHARED in 4 shares`."""
        what = self.product or "GPU"
        slices = " (slices)" if self.sliced and "MIG" not in what else ""
        return f"{self.devices} {what}{slices}" + (f" in {self.replicas} shares each" if self.replicas > 1 else "")


def gpus_of(node: Json, resource: str) -> Gpus:
    """Return what a node offers of a resource, by its allocatable amount and its labels; a node without labels shares nothing."""
    labels = node["metadata"].get("labels") or {}
    amount = int(((node.get("status") or {}).get("allocatable") or {}).get(resource) or 0)
    family = resource.removeprefix(LABEL).removesuffix(SHARED)
    replicas = _number(labels.get(f"{LABEL}{family}.replicas"))
    product = str(labels.get(f"{LABEL}{family}.product") or "")
    sliced = family.startswith("mig-") or "-MIG-" in product
    memory = _number(labels.get(f"{LABEL}{family}.memory"), 0) * MIB
    return Gpus(amount, max(1, replicas), sliced, product, memory)


def shares_of(policy: Json) -> int | None:
    """Return how many shares of each GPU a ClusterPolicy asks for; None where a configuration of somebody else says it."""
    plugin = (policy.get("spec") or {}).get("devicePlugin") or {}
    name = (plugin.get("config") or {}).get("name") or ""
    if not name:
        return 1
    found = re.fullmatch(CONFIG.format(r"(\d+)"), name)
    return int(found.group(1)) if found else None


def _number(text: object, otherwise: int = 1) -> int:
    return int(str(text)) if str(text).isdigit() else otherwise
