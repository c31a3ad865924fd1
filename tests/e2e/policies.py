"""NetworkPolicies enforced, which nothing does in the embedded cluster: kube-router's firewall as one more process of each node."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from embedded_cluster import build

from e2e import machine

PROGRAM = "kube-router"
INSIDE = f"/share/{PROGRAM}"
FIREWALL = (INSIDE, "--run-router=false", "--run-service-proxy=false", "--health-port=0", "--metrics-port=0")
CONNECTION = ("--kubeconfig=/share/admin.conf", f"--service-cluster-ip-range={machine.SERVICES}.0.0/16")
REMOVED = "iptables-save | grep -vE 'KUBE-(ROUTER|POD-FW|NWPLCY)' | iptables-restore && ipset destroy"
"""Its own --cleanup-config leaves its rules (v2.1.0: it asks no handler of iptables), and crashes where the kernel has no IPVS."""


@contextmanager
def enforced(log: Path) -> Iterator[None]:
    """Enforce the policies of all namespaces, seconds after the beginning, and no longer at the end."""
    build.build_all([PROGRAM])
    shutil.copy(build.binary(PROGRAM), machine.FOLDER / "share" / PROGRAM)
    processes, nodes = [], machine.ready_nodes()
    try:
        with log.open("w", encoding="utf-8") as out:
            for node in nodes:
                command = machine.command("exec", node, *FIREWALL, *CONNECTION, f"--hostname-override={node}")
                processes.append(
                    subprocess.Popen(command, env=machine.ENVIRONMENT, stdout=out, stderr=out, start_new_session=True)
                )
        yield
    finally:
        for process in processes:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
        for node in nodes:
            machine.cluster("exec", node, "sh", "-c", REMOVED)
