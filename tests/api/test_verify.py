"""playbooks/verify.yml against a real API server: what it finds, what it writes, and that it changes nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from api_server import catalog
from api_server.harness import Cluster
from charts.rendering import binary
from waiting import until

DSC = "datasciencecluster.opendatahub.io/v2"
NODE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "gpu1", "labels": {"feature.node.kubernetes.io/pci-10de.present": "true"}},
    "spec": {"taints": [{"key": "dedicated", "value": "team", "effect": "NoSchedule"}]},
}
STATUS = {
    "allocatable": {"cpu": "32", "memory": "256Gi", "nvidia.com/gpu": "4"},
    "conditions": [{"type": "Ready", "status": "True"}],
}
NOT_READY = [
    {"type": "TrainerReady", "status": "False", "reason": "Error", "message": "JobSet CRD not found"},
    {"type": "RayReady", "status": "False", "reason": "Removed", "message": "Removed"},
]


@pytest.fixture
def broken(cluster: Cluster) -> Iterator[Cluster]:
    """OpenShift AI whose trainer lacks JobSet, and a GPU node whose taint nothing tolerates; gone afterwards."""
    client = cluster.client
    definitions = catalog.owned("rhods-operator", "rhods-operator.3.4.4")
    for definition in definitions:
        client.apply(definition)
    until(lambda: client.path(DSC, "DataScienceCluster"), 60)
    spec = {"components": {"trainer": {"managementState": "Managed"}}}
    made = {"apiVersion": DSC, "kind": "DataScienceCluster", "metadata": {"name": "default-dsc"}, "spec": spec}
    conditions = [each | {"lastTransitionTime": "2026-01-01T00:00:00Z"} for each in NOT_READY]
    client.apply(made)
    client.apply(NODE)
    client.status(NODE, STATUS)
    # the test's own OpenShift AI operator runs: it makes nothing ready without its Subscription
    client.status(made, {"phase": "Not Ready", "conditions": conditions})
    yield cluster
    for definition in (made, NODE, *definitions):
        client.delete(definition)
    kind = "apiextensions.k8s.io/v1", "CustomResourceDefinition"
    until(lambda: not client.look(*kind, definitions[0]["metadata"]["name"]), 60)


def test_findings_are_printed_and_written(broken: Cluster, tmp_path: Path) -> None:
    """Table, JSON and JUnit say the same; nothing is changed; a user without rights gets that as each finding."""
    before = broken.objects()
    wanted: dict[str, Any] = {
        "trainlab_namespace": "demo",
        "trainlab_release": "survival",
        "trainlab_values": ["values/survival.yaml"],
        "stage": "before",
        "trainlab_helm": str(binary("helm")),
        "verify_json": str(tmp_path / "verify.json"),
        "verify_junit": str(tmp_path / "verify.xml"),
    }
    run = broken.playbook("verify", **wanted)
    assert (
        "OpenShift AI: DataScienceCluster is Not Ready: TrainerReady: JobSet CRD not found; missing: jobset"
        in run.error
    )
    assert broken.objects() == before
    listed = json.loads((tmp_path / "verify.json").read_text(encoding="utf-8"))
    rows = {each["name"]: each for each in listed}
    assert len(rows) >= 25
    assert rows["GPU taints"]["state"] == "error"
    assert "{key: dedicated, operator: Exists, effect: NoSchedule}" in rows["GPU taints"]["fix"]
    assert rows["Node Feature Discovery"]["state"] == "ok"
    refused = [each for each in listed if each["name"] == "release"]  # a row for each sentence of the chart
    assert [each["what"].partition(",")[0] for each in refused] == ["site.trainingApi: auto", "site.serving: true"]
    assert {each["state"] for each in refused} == {"error"}
    suite = ElementTree.parse(tmp_path / "verify.xml").getroot()
    failed = {each.get("name") for each in suite if each.find("failure") is not None}
    assert failed == {name for name, row in rows.items() if row["state"] == "error"}
    for name in failed:
        assert f"{name}: " in run.error

    blind = broken.playbook("verify", kubeconfig=broken.server.nobody, **wanted)
    assert blind.code != 0
    rows = {each["name"]: each for each in json.loads((tmp_path / "verify.json").read_text(encoding="utf-8"))}
    assert rows["nodes"]["state"] == "skipped"
    assert "may not" in rows["nodes"]["what"]
    assert rows["rights"]["state"] == "error"
    assert rows["release"]["state"] == "skipped"
