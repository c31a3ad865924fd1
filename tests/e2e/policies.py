"""NetworkPolicies enforced, which nothing does in the embedded cluster: kube-router's firewall in each of its nodes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e import machine, node_programs

PROGRAM = "kube-router"
FIREWALL = ("--run-router=false", "--run-service-proxy=false", "--health-port=0", "--metrics-port=0")
CONNECTION = (f"--kubeconfig={node_programs.KUBECONFIG}", f"--service-cluster-ip-range={machine.SERVICES}.0.0/16")
REMOVED = "iptables-save | grep -vE 'KUBE-(ROUTER|POD-FW|NWPLCY)' | iptables-restore && ipset destroy"
"""Its own --cleanup-config leaves its rules (v2.1.0: it asks no handler of iptables), and crashes where the kernel has no IPVS."""


@contextmanager
def enforced(log: Path) -> Iterator[None]:
    """Enforce the policies of all namespaces, seconds after the beginning, and no longer at the end."""
    firewall = (node_programs.inside(PROGRAM), *FIREWALL, *CONNECTION)
    nodes = machine.ready_nodes()
    try:
        with node_programs.running(PROGRAM, {node: (*firewall, f"--hostname-override={node}") for node in nodes}, log):
            yield
    finally:
        for node in nodes:
            machine.cluster("exec", node, "sh", "-c", REMOVED)
