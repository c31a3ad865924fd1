"""The statuses that the test API server's operators report: each step names where a real operator's code says so."""

from __future__ import annotations

import pytest
from api_server import catalog, policies, recorded

FILES = sorted(str(path.relative_to(recorded.FOLDER).with_suffix("")) for path in recorded.FOLDER.rglob("*.yaml"))


@pytest.mark.parametrize("name", FILES)
def test_every_step_has_its_source(name: str) -> None:
    """Repository, commit, path and line; or a bundle from a cluster and the line of its log."""
    entries = recorded.entries(name)
    assert entries
    assert [entry for entry in entries if not recorded.sourced(entry)] == []
    assert all(policies.known(denial["what"]) for denial in recorded.read(name).get("denies", []))


def test_a_source_is_code_or_a_line_of_a_bundle() -> None:
    """A bundle's line is not one of a repository, and a bundle without a line is none."""
    code = {"repository": "openshift/cluster-nfd-operator", "commit": "a" * 40, "source": "internal/status.go:7"}
    seen = {"bundle": "trainlab-collect-3f2a1b9c-20261124T223000Z", "source": "changes.jsonl:7"}
    module = {"module": "k8s.io/kubernetes@v1.34.4", "source": "pkg/controller/deployment/sync.go:529"}
    assert recorded.sourced(code) and recorded.sourced(seen) and recorded.sourced(module)
    wrong = (code | {"source": seen["source"]}, seen | {"source": code["source"]}, {"source": "changes.jsonl:7"})
    assert not any(
        recorded.sourced(each) for each in (*wrong, code | {"commit": "main"}, seen | {"source": "changes.jsonl"})
    )


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
    ("operator", "sequence", "reason"),
    [
        ("nfd", "NodeFeatureDiscovery", "NFDWorkerDaemonSetDegraded"),
        ("olm", "ClusterServiceVersion, reinstalled", "InstallCheckFailed"),
        ("gpu-operator", "ClusterPolicy, no GPU nodes", "NoGPUNodes"),
        ("gpu-operator", "ClusterPolicy", "OperandNotReady"),
        ("cert-manager", "Deployment", "MinimumReplicasUnavailable"),
        ("jobset", "JobSetOperator", "SyncError"),
        ("kueue", "Kueue", "NoReplicasReady"),
        ("efs", "ClusterCSIDriver", "CredentialsNotProvisionedYet"),
        ("odf", "StorageCluster", "ReconcileFailed"),
        ("rhoai", "DataScienceCluster", "DeploymentsNotReady"),
    ],
)
def test_what_looks_broken_on_the_way_is_in_it(operator: str, sequence: str, reason: str) -> None:
    """In each release: an operator that was ready at once would not have shown where the roles gave up too early."""
    files = [name for name in FILES if operator in (name, name.rpartition("-")[0])]
    assert files
    for name in files:
        assert reason in str(recorded.read(name)["sequences"][sequence]), name
