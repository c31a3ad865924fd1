"""What GPUs a node really has, and whether the GPU operator's `ready` means that pods can get them; used by waits and checks.

GPU feature discovery sets the labels (NVIDIA/k8s-device-plugin, docs/gpu-feature-discovery/README.md): `gpu.count` counts GPUs, or
slices with the MIG strategy `single`, `gpu.replicas` the shares of each, `gpu.memory` the MiB of each, and `mig-PROFILE.count`,
`.replicas` and `.memory` the same of the slices of a profile with the strategy `mixed`.

Source of the rest: NVIDIA/gpu-operator's controllers/clusterpolicy_controller.go; tests/api_server/statuses/gpu-operator-*.yaml has the lines.
Its state is `ready`, too, without any GPU, and for a moment before its pods have started.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .kube import Json, condition
from .platform_ready import FAILED, READY, WAITING, Verdict

LABEL, MIB = "nvidia.com/", 2**20
SHARED = ".shared"
"""End of a resource whose shares the device plugin renames."""
CONFIG = "trainlab-gpu-shares-{}"
"""Name of the ConfigMap of platform_gpu_shares: another number is another name, which makes the operator restart its plugin."""
# NFD labels a PCI vendor, or class and vendor, as its configuration says; 10de is NVIDIA. Those that the operator looks for:
# controllers/state_manager.go, gpuNodeLabels
NVIDIA_LABELS = (
    "feature.node.kubernetes.io/pci-10de.present",
    "feature.node.kubernetes.io/pci-0302_10de.present",
    "feature.node.kubernetes.io/pci-0300_10de.present",
)
FEATURE = "feature.node.kubernetes.io/"
DRIVER_LABELS = (f"{LABEL}cuda.driver-version.major", f"{LABEL}cuda.driver.major")
"""Major version of a node's driver: the label of today, and the one that GPU feature discovery calls deprecated."""
MIN_DRIVER = 580
"""The oldest major version for CUDA 13, which the lock of the trainer image pins."""
LEFT_OUT = "nvidia.com/gpu.deploy.operands"
"""Label of a node on which the GPU operator is told to do nothing, if it is `false`."""
RESOURCES = re.compile(r"nvidia\.com/(gpu(\.shared)?|mig-.+)")
"""Those of its device plugin; other NVIDIA operators offer network devices as nvidia.com/..., too."""
NO_GPU = (
    "NO GPU: the GPU operator is ready, but no node has an NVIDIA GPU (no label feature.node.kubernetes.io/pci-10de.present), so no "
    "pod can get one; add a machine that has one (it is then set up without another run), and look with playbooks/verify.yml"
)


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


def driver_of(node: Json) -> int | None:
    """Return the major version of a node's driver, None if no label tells it."""
    labels = node["metadata"].get("labels") or {}
    return next((int(labels[name]) for name in DRIVER_LABELS if str(labels.get(name)).isdigit()), None)


def shares_of(policy: Json) -> int | None:
    """Return how many shares of each GPU a ClusterPolicy asks for; None where a configuration of somebody else says it."""
    plugin = (policy.get("spec") or {}).get("devicePlugin") or {}
    name = (plugin.get("config") or {}).get("name") or ""
    if not name:
        return 1
    match = re.fullmatch(CONFIG.format(r"(\d+)"), name)
    return int(match.group(1)) if match else None


def _number(text: object, otherwise: int = 1) -> int:
    return int(str(text)) if str(text).isdigit() else otherwise


def judge_gpus(policy: Json | None, nodes: list[Json]) -> Verdict:
    """Judge a ClusterPolicy: Ready with the reason Reconciled, and GPUs allocatable on each node where NFD found some."""
    if policy is None:
        return Verdict(WAITING, "does not exist yet")
    ready, error = condition(policy, "Ready"), condition(policy, "Error")
    reason = str(ready.get("reason") or "")
    if ready.get("status") != "True":
        text = f"{error.get('reason')}: {error.get('message')}" if error.get("status") == "True" else "no condition yet"
        return Verdict(WAITING, text)
    gpus = [node for node in nodes if _has_gpu(node)]
    if gpus and reason != "Reconciled":
        return Verdict(WAITING, f"Ready ({reason}), but {len(gpus)} nodes have an NVIDIA GPU")
    if gpus:
        return _offered(policy, gpus)
    if not nodes:
        return Verdict(READY, f"Ready ({reason}), without a node", note=NO_GPU)
    if not any(key.startswith(FEATURE) for node in nodes for key in _labels(node)):
        text = "Node Feature Discovery has not labeled any node yet"
        return Verdict(WAITING, f"Ready ({reason}), but {text}", FAILED, "NFDLabelsMissing")
    # the nodes are labeled one after another
    text = f"Ready ({reason}): no node has an NVIDIA GPU so far"
    return Verdict(WAITING, text, READY, "NoGPUNodes", brief=True, note=NO_GPU)


def _offered(policy: Json, gpus: list[Json]) -> Verdict:
    """Judge the nodes that have GPUs, once the operator is done with them."""
    names = [node["metadata"]["name"] for node in gpus if not count(node)]
    if ((policy.get("spec") or {}).get("devicePlugin") or {}).get("enabled") is False:
        return Verdict(READY, "Reconciled, without its device plugin")
    if names:
        shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
        return Verdict(
            WAITING, f"Reconciled, but {len(names)} of {len(gpus)} nodes with an NVIDIA GPU offer none: {shown}"
        )
    asked = shares_of(policy)
    for node in gpus:
        offered = (node.get("status") or {}).get("allocatable") or {}
        for name in (name for name in offered if RESOURCES.fullmatch(name) and int(offered[name])):
            have = gpus_of(node, name)
            if asked is not None and have.replicas != asked and (have.replicas > 1 or not have.sliced):
                shares = f"{have.replicas} shares of each GPU where {asked} are asked"
                return Verdict(WAITING, f"Reconciled, but {node['metadata']['name']} offers {shares}")
            if (labelled := _devices(node, name)) and have.allocatable != labelled * have.replicas:
                text = f"{have.allocatable} {name}, and {labelled} in {have.replicas} shares each would be {labelled * have.replicas}"
                return Verdict(WAITING, f"Reconciled, but {node['metadata']['name']} offers {text}")
    return Verdict(READY, f"Reconciled; {sum(map(count, gpus))} GPUs on {len(gpus)} nodes")


def _devices(node: Json, resource: str) -> int:
    """Return what the label of a shared resource counts; 0 without: a GPU that is out of order is in no label and no amount."""
    family = resource.removeprefix("nvidia.com/").removesuffix(".shared")
    number = str(_labels(node).get(f"nvidia.com/{family}.count") or "")
    return int(number) if number.isdigit() and gpus_of(node, resource).replicas > 1 else 0


def count(node: Json) -> int:
    """Return how many GPUs, or parts of one, pods can get on a node."""
    offered = (node.get("status") or {}).get("allocatable") or {}
    return sum(int(number) for name, number in offered.items() if RESOURCES.fullmatch(name))


def _labels(node: Json) -> Json:
    return node["metadata"].get("labels") or {}


def _has_gpu(node: Json) -> bool:
    labels = _labels(node)
    return labels.get(LEFT_OUT) != "false" and any(labels.get(key) == "true" for key in NVIDIA_LABELS)
