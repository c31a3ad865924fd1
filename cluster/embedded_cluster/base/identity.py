"""The cluster's name and addresses, from the environment: what keeps it apart from other clusters on this machine.

Read by paths.py, cgroups.py and layout.py. Clusters of different names share the caches and nothing else. An invalid
value is rejected when this file is imported, because whatever follows would act on another cluster.
"""

from __future__ import annotations

import ipaddress
import os
import re

from embedded_cluster.base.say import UserError

DEFAULT = "trainlab"
OTHERS = {
    "kubeadm's Services": "10.96.0.0/12",
    "OpenShift's pods": "10.128.0.0/14",
    "OpenShift's Services": "172.30.0.0/16",
    "OVN-Kubernetes": "100.64.0.0/10",
    "k3s": "10.42.0.0/15",
    "flannel": "10.244.0.0/16",
    "docker": "172.16.0.0/12",
    "libvirt and minikube": "192.168.0.0/16",
}
"""Usual networks of others, which the defaults below avoid: this machine may reach, or be a node of, any of them, and no route
shows a network of Services."""
NODE_SUBNET = ("TRAINLAB_NODE_SUBNET", "10.246.0.0/24")
POD_SUBNET = ("TRAINLAB_POD_SUBNET", "10.245.0.0/16")
SERVICE_SUBNET = ("TRAINLAB_SERVICE_SUBNET", "10.243.0.0/16")
SHAPE = "[a-z]([a-z0-9-]*[a-z0-9])?"
"""Pattern of a cluster's name."""
MAX_LINK_NAME = 15  # the kernel's IFNAMSIZ, minus the terminating zero


def checked_name(asked: str) -> str:
    """Return the name of a cluster; UserError when it cannot be part of a host, folder and link name."""
    longest = MAX_LINK_NAME - len(link_of(""))
    if not re.fullmatch(SHAPE, asked) or len(asked) > longest:
        raise UserError(
            f"TRAINLAB_CLUSTER={asked}: give at most {longest} lower case letters, digits and hyphens that begin with "
            "a letter and do not end with a hyphen, e.g. second"
        )
    return asked


def link_of(name: str) -> str:
    """Name of the link by which the host reaches the cluster of this name."""
    return "trainlab0" if name == DEFAULT else f"tl-{name}"


def group_of(name: str) -> str:
    """Name of this cluster's folder below each cgroup hierarchy."""
    return DEFAULT if name == DEFAULT else f"{DEFAULT}-{name}"


def checked_subnet(variable: str, asked: str, example: str) -> ipaddress.IPv4Network:
    """Return the network; UserError when it is not one, or not of the size that the nodes' addresses assume."""
    length = example.rpartition("/")[2]
    try:
        result = ipaddress.IPv4Network(asked)
    except ValueError:
        result = None
    if (
        result is None
        or str(result.prefixlen) != length
        or result.is_loopback
        or result.is_multicast
        or result.is_reserved
    ):
        raise UserError(
            f"{variable}={asked}: give an IPv4 network of the form {example}: a prefix of {length} bits, the rest 0"
        )
    return result


def checked_subnets(environment: dict[str, str]) -> tuple[ipaddress.IPv4Network, ...]:
    """Return the networks of nodes, pods and Services; UserError when one is wrong or two of them overlap."""
    asked = {name: environment.get(name) or usual for name, usual in (NODE_SUBNET, POD_SUBNET, SERVICE_SUBNET)}
    usual = dict((NODE_SUBNET, POD_SUBNET, SERVICE_SUBNET))
    subnets = {name: checked_subnet(name, text, usual[name]) for name, text in asked.items()}
    for name in subnets:
        for other in subnets:
            if name < other and subnets[name].overlaps(subnets[other]):
                raise UserError(
                    f"{name}={subnets[name]} overlaps {other}={subnets[other]}: set one of them to another network"
                )
    return tuple(subnets.values())


NAME = checked_name(os.environ.get("TRAINLAB_CLUSTER") or DEFAULT)
GROUP, LINK = group_of(NAME), link_of(NAME)
SUFFIX = "" if NAME == DEFAULT else f"-{NAME}"
"""Suffix of the names of this cluster's folder and lock below TRAINLAB_HOME."""
NODES, PODS, SERVICES = checked_subnets(dict(os.environ))
VARIABLES = {NODES: NODE_SUBNET[0], PODS: POD_SUBNET[0], SERVICES: SERVICE_SUBNET[0]}
"""The variable that sets each network."""
