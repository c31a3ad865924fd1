"""Checks of programs on the controller."""

from __future__ import annotations

import shutil
import subprocess

from .cluster_state import ClusterState, Finding

HELM_SECONDS = 30


def helm(cluster_state: ClusterState) -> Finding:
    """Helm 3 is installed: kubernetes.core 6.2 calls `helm list --all`, which Helm 4 does not know."""
    found = shutil.which(cluster_state.options.helm)
    if not found:
        return Finding(
            "error",
            f"trainlab_helm is {cluster_state.options.helm}: no such program",
            "the release is installed with it",
            "install Helm 3 (embedded cluster: `make binaries`) and set trainlab_helm",
        )
    done = subprocess.run(
        [found, "version", "--short"], capture_output=True, text=True, check=False, timeout=HELM_SECONDS
    )
    version = done.stdout.strip()
    if done.returncode == 0 and version.startswith("v3."):
        return Finding.ok(version)
    return Finding(
        "error",
        f"trainlab_helm is {found}: version {version or done.stderr.strip()[:200]}",
        "the Ansible module kubernetes.core.helm works with Helm 3 only",
        "set trainlab_helm to a Helm 3",
    )
