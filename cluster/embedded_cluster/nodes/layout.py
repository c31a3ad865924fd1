"""The addresses of the nodes, and what a node's folder holds before its first process starts.

Called by cluster.py. All configuration is written here as JSON (which is YAML), so that node.sh only acts.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
import uuid
from pathlib import Path
from typing import Any

from embedded_cluster.base import identity, paths, patience, programs, running, system
from embedded_cluster.builds import build, modules, rootfs
from embedded_cluster.containers import image_store, images

NET = str(identity.NODES.network_address).rpartition(".")[0]
PODS, SERVICES = (
    ".".join(str(network.network_address).split(".")[:2]) for network in (identity.PODS, identity.SERVICES)
)
"""The parts of the networks' addresses that all in them begin with."""
MAX_NODES = 4
KUBE_PROGRAMS = ("kubeadm", "kubelet", "kubectl", "kube-proxy")
SOCKET_URL = f"unix://{running.SOCKET}"
# kubeadm's own limits, in seconds; the first is also how long the control plane's start-up probes last
TIMEOUTS = {
    "controlPlaneComponentHealthCheck": 240,
    "kubeletHealthCheck": 240,
    "kubernetesAPICall": 60,
    "etcdAPICall": 120,
    "tlsBootstrap": 300,
    "discovery": 300,
}
# There is one of each, and on a slow machine it would lose a lease of 15 s to nobody and start anew.
NO_ELECTION = [{"name": "leader-elect", "value": "false"}]
PATCHES = "root/patches"
DROP_INS = "etc/kubernetes/kubelet.conf.d"
"""What the kubelet reads on top of the configuration that kubeadm wrote (--config-dir)."""
CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
PROBES = 8  # of kubeadm: so many liveness probes in a row may fail before a part of the control plane is started anew
# the kubelet wants these host-wide settings: a node sees files that already say so, the real ones are never written
SYSCTLS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}


def address(number: int) -> str:
    """Address of node `number` (1 is the control plane)."""
    return f"{NET}.{10 + number}"


def digest(count: int) -> str:
    """Hash of the configuration that a cluster of `count` nodes is made with, by its values: not of this file's text.

    Without what differs from one `up` to the next: token, limits of waits, and what `renew` writes.
    """
    numbers = range(1, count + 1)
    documents = [*_init("n1", 1, ""), *(_join(f"n{number}", number, "") for number in numbers[1:])]
    for document in documents:
        document.pop("timeouts", None)
    networks = [[_cni(number), _proxy(f"n{number}")] for number in numbers]
    values = [documents, networks, SYSCTLS, tomllib.loads(_containerd())]
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


def prepare(number: int, count: int, token: str) -> None:
    """Make the folder of one node: root with /etc, configuration, links to the images. It must not exist yet."""
    name = f"n{number}"
    root = running.root(name)
    _skeleton(root)
    _etc(root, name, number, count)
    _configuration(root, name, number, token)
    renew(number, count)
    sysctls = root.parent / "sysctl"
    for key, value in SYSCTLS.items():
        file = sysctls / key
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(value + "\n")
    image_store.link_into(root)
    running.note_loaded(name, {ref: entry["digest"] for ref, entry in image_store.refs().items()})


def renew(number: int, count: int) -> None:
    """Write what each start of an existing node takes anew: its programs, and its share of the machine's memory."""
    root = running.root(f"n{number}")
    for program in KUBE_PROGRAMS:
        link = root / "opt/bin" / program
        link.unlink(missing_ok=True)
        link.symlink_to(f"../kube/{build.binary('kubernetes').name}")
    (root / DROP_INS).mkdir(exist_ok=True)
    (root / DROP_INS / "share.conf").write_text(json.dumps(_share(count, system.memory_total()), indent=1))


def _share(count: int, total: int) -> dict[str, Any]:
    """Each of `count` nodes sees all `total` bytes of memory: what is the others' is reserved in it, so that pods find the rest."""
    reserved = {"systemReserved": {"memory": str(total - total // count)}}
    return {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", **reserved}


def _skeleton(root: Path) -> None:
    folders = "usr dev proc sys run root home mnt old share opt/kube opt/bin etc/kubernetes/manifests etc/cni/net.d"
    for folder in (folders + " var/lib/kubelet var/log/pods var/log/containers var/cache var/lib/local-path").split():
        (root / folder).mkdir(parents=True)
    for folder in ("tmp", "var/tmp"):
        (root / folder).mkdir()
        (root / folder).chmod(0o1777)
    for link in ("bin", "sbin", "lib", "lib64"):
        (root / link).symlink_to(f"usr/{link}")
    (root / "var/run").symlink_to("/run")


def _etc(root: Path, name: str, number: int, count: int) -> None:
    programs.run(*programs.with_us(), "cp", "-aT", str(rootfs.base() / "etc"), str(root / "etc"))
    # Nothing listens on port 53 of the node, so CoreDNS refuses a name from outside at once. Not 127.0.0.1: CoreDNS
    # would ask itself. Not the host: its firewall may drop, and every such name would take seconds.
    (root / "etc/resolv.conf").unlink(missing_ok=True)
    (root / "etc/resolv.conf").write_text(f"nameserver {address(number)}\n")
    hosts = ["127.0.0.1 localhost", *(f"{address(n)} n{n}" for n in range(1, count + 1))]
    (root / "etc/hosts").write_text("\n".join(hosts) + "\n")
    (root / "etc/hostname").write_text(name + "\n")
    (root / "etc/machine-id").unlink(missing_ok=True)
    (root / "etc/machine-id").write_text(uuid.uuid4().hex + "\n")


def _configuration(root: Path, name: str, number: int, token: str) -> None:
    (root / "etc/containerd.toml").write_text(_containerd())
    (root / "etc/cni/net.d/10-trainlab.conflist").write_text(json.dumps(_cni(number), indent=1))
    documents = _init(name, number, token) if number == 1 else [_join(name, number, token)]
    (root / "root/kubeadm.yaml").write_text("\n---\n".join(json.dumps(document, indent=1) for document in documents))
    (root / PATCHES).mkdir()
    for part in CONTROL_PLANE:
        (root / PATCHES / f"{part}+strategic.json").write_text(json.dumps(_patient(part)))
    (root / "root/kube-proxy.yaml").write_text(json.dumps(_proxy(name), indent=1))


def _containerd() -> str:
    return (paths.PACKAGE / "containerd.toml").read_text().replace("@PAUSE@", images.PAUSE)


def _cni(number: int) -> dict[str, Any]:
    ipam = {
        "type": "host-local",
        "dataDir": "/run/cni-ipam",
        # the controller hands out the subnets in the order in which nodes register
        "ranges": [[{"subnet": f"{PODS}.{number - 1}.0/24"}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    # no ipMasq: it would hide pod addresses between nodes; node.sh masquerades only what leaves the cluster
    bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": False, "hairpinMode": True, "ipam": ipam}
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "0.4.0", "name": "trainlab", "plugins": [bridge, portmap]}


def _registration(name: str, number: int) -> dict[str, Any]:
    arguments = {"node-ip": address(number), "hostname-override": name}
    return {
        "name": name,
        "criSocket": SOCKET_URL,
        "taints": [],
        "imagePullPolicy": "Never",
        "kubeletExtraArgs": [{"name": key, "value": value} for key, value in arguments.items()],
    }


def _patient(part: str) -> dict[str, Any]:
    """A part of the control plane that only is slow is not ended for it: that would make all others slower."""
    probe = {"failureThreshold": round(patience.seconds(PROBES))}
    return {"spec": {"containers": [{"name": part, "livenessProbe": probe}]}}


def _timeouts() -> dict[str, str]:
    return {name: f"{patience.seconds(usual):.0f}s" for name, usual in TIMEOUTS.items()}


def _init(name: str, number: int, token: str) -> list[dict[str, Any]]:
    api = "kubeadm.k8s.io/v1beta4"
    return [
        {
            "apiVersion": api,
            "kind": "InitConfiguration",
            "localAPIEndpoint": {"advertiseAddress": address(number), "bindPort": 6443},
            "bootstrapTokens": [{"token": token, "ttl": "0s"}],
            "nodeRegistration": _registration(name, number),
            "timeouts": _timeouts(),
            "patches": {"directory": f"/{PATCHES}"},
        },
        {
            "apiVersion": api,
            "kind": "ClusterConfiguration",
            "kubernetesVersion": modules.version("kubernetes"),
            "encryptionAlgorithm": "ECDSA-P256",  # a key takes milliseconds and not seconds on a slow machine
            "networking": {"podSubnet": str(identity.PODS), "serviceSubnet": str(identity.SERVICES)},
            "dns": {"imageTag": modules.version("coredns")},
            # Seen with v1.34: a pod whose claims were bound while it was tried is looked at again only after this, by
            # default five minutes.
            "scheduler": {
                "extraArgs": [{"name": "pod-max-in-unschedulable-pods-duration", "value": "20s"}, *NO_ELECTION]
            },
            "controllerManager": {"extraArgs": NO_ELECTION},
        },
        {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "cgroupDriver": "cgroupfs",
            "failSwapOn": False,
            # small absolute values: the pause image is garbage-collected under disk pressure
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1Gi", "imagefs.available": "1Gi"},
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
        },
    ]


def _join(name: str, number: int, token: str) -> dict[str, Any]:
    return {
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "JoinConfiguration",
        "discovery": {"file": {"kubeConfigPath": "/share/cluster-info.conf"}, "tlsBootstrapToken": token},
        "nodeRegistration": _registration(name, number),
        "timeouts": _timeouts(),
    }


def _proxy(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": "/share/kube-proxy.conf"},
        "hostnameOverride": name,
        "clusterCIDR": str(identity.PODS),
        "mode": "nftables",
        "conntrack": {"maxPerCore": 0},
    }
