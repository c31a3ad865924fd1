"""Checks of Helm, and of what it says of the release."""

from __future__ import annotations

import re
import shutil
import subprocess

from .cluster_state import ClusterState, Finding

HELM_SECONDS = 30
REFUSED = re.compile(r"execution error at \([^)]*\): ")
"""Where Helm passes on what the chart refuses."""


def helm(facts: ClusterState) -> Finding:
    """Helm 3 is installed: kubernetes.core 6.2 calls `helm list --all`, which Helm 4 does not know."""
    found = shutil.which(facts.options.helm)
    if not found:
        return Finding(
            "error",
            f"trainlab_helm is {facts.options.helm}: no such program",
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


def release(facts: ClusterState) -> list[Finding]:
    """What `helm upgrade --install --dry-run=server` refuses, a finding for each line: the chart's own checks are not repeated here."""
    text = facts.options.helm_refused.strip()
    if not shutil.which(facts.options.helm):
        return [Finding.skipped("see the check helm")]
    if not text:
        return [Finding.ok("the chart refuses nothing")]
    of_chart = REFUSED.search(text)
    if not of_chart and "forbidden" in text:
        return [Finding.skipped(f"not checked, this user may not: {text.splitlines()[-1]}")]
    lines = text[of_chart.end() :].splitlines() if of_chart else [text]
    return [_refusal(line.strip().removeprefix("- ")) for line in lines if line.strip()]


def _refusal(line: str) -> Finding:
    """Split a sentence of the chart: what, why where there is one, and the remedy."""
    what, *why, fix = line.split("; ") if "; " in line else (line, "")
    return Finding("error", what, "; ".join(why), fix)
