"""The statuses that the test API server's operators report: each step names where a real operator's code says so."""

from __future__ import annotations

import re

import pytest
from api_server import catalog, policies, recorded

FILES = sorted(path.stem for path in recorded.FOLDER.glob("*.yaml"))


@pytest.mark.parametrize("name", FILES)
def test_every_step_has_its_source(name: str) -> None:
    """Repository, commit, path and line."""
    entries = recorded.entries(name)
    assert entries
    for entry in entries:
        assert re.fullmatch(r"[\w.-]+/[\w.-]+", entry["repository"]), entry
        assert re.fullmatch(r"[0-9a-f]{40}", entry["commit"]), entry
        assert re.fullmatch(r"[\w./-]+\.(go|yaml):\d+", entry["source"]), entry
    assert all(policies.known(denial["what"]) for denial in recorded.read(name).get("denies", []))


def test_every_release_that_the_catalog_offers_has_its_file() -> None:
    """Operators whose reports differ by release; the others have one file."""
    for package, operator in (
        ("gpu-operator-certified", "gpu-operator"),
        ("kueue-operator", "kueue"),
        ("rhods-operator", "rhoai"),
    ):
        for csv in catalog.PACKAGES[package].channels.values():
            assert f"{operator}-{catalog.release_of(csv)}" in FILES


@pytest.mark.parametrize(
    ("name", "sequence", "reason"),
    [
        ("nfd-4.20", "NodeFeatureDiscovery", "NFDWorkerDaemonSetDegraded"),
        ("olm", "ClusterServiceVersion, reinstalled", "InstallCheckFailed"),
        ("gpu-operator-26.3", "ClusterPolicy, no GPU nodes", "NoGPUNodes"),
        ("gpu-operator-26.3", "ClusterPolicy", "OperandNotReady"),
        ("jobset-1.0", "JobSetOperator", "SyncError"),
        ("kueue-1.3", "Kueue", "NoReplicasReady"),
        ("odf-4.20", "StorageCluster", "ReconcileFailed"),
        ("rhoai-3.4", "DataScienceCluster", "DeploymentsNotReady"),
    ],
)
def test_what_looks_broken_on_the_way_is_in_it(name: str, sequence: str, reason: str) -> None:
    """An operator that was ready at once would not have shown where the roles gave up too early."""
    assert reason in str(recorded.read(name)["sequences"][sequence])
