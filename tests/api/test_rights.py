"""The check of rights against a real API server: the commands that it prints grant what was missing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from api_server import printed
from api_server.attendee import until
from api_server.harness import Cluster
from api_server.server import Server


@pytest.fixture(scope="module")
def server(training: Server) -> Server:
    """Not the bare OpenShift."""
    return training


def test_the_commands_that_it_prints_give_the_rights(cluster: Cluster, tmp_path: Path) -> None:
    """An administrator runs them word for word, for the user of this test server."""
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "rights"}}
    cluster.client.apply(space)
    wanted: dict[str, Any] = {
        "trainlab_namespace": "rights",
        "trainlab_release": "survival",
        "trainlab_values": ["values/survival.yaml"],
        "stage": "before",
        "verify_json": str(tmp_path / "verify.json"),
    }

    def rights() -> dict[str, str]:
        cluster.playbook("verify", kubeconfig=cluster.server.nobody, **wanted)
        rows = json.loads((tmp_path / "verify.json").read_text(encoding="utf-8"))
        found: dict[str, str] = next(row for row in rows if row["name"] == "rights")
        return found

    found = rights()
    assert found["state"] == "error" and "create pytorchjobs.kubeflow.org" in found["what"]
    commands = re.findall(r"`(kubectl .+?)`", found["fix"])
    assert len(commands) == 3
    for command in commands:
        printed.run(command, tmp_path, cluster.server.kubeconfig)
    left = rights()["what"]
    # ClusterRole admin is empty here: the controller manager fills it, and none runs with this API server
    assert not re.search("pytorchjobs|servingruntimes|inferenceservices", left), left
    for kind, name in (("RoleBinding", "trainlab-admin"), ("RoleBinding", "trainlab"), ("Role", "trainlab")):
        found = cluster.client.look("rbac.authorization.k8s.io/v1", kind, name, "rights")
        assert found, name
        cluster.client.delete(found)
    cluster.client.delete(space)
    until(lambda: not cluster.client.look("v1", "Namespace", "rights"))
