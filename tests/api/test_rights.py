"""The check of rights against a real API server: the commands that it prints grant what was missing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from api_server import printed, remedies
from api_server.client import Json
from api_server.harness import Cluster
from api_server.training_api import KUEUE, free_claims
from waiting import until

pytestmark = pytest.mark.usefixtures("training")
SERVING = "serving.kserve.io/v1beta1"
CONTAINER = {"name": "pytorch", "image": "none"}
POD = {"containers": [CONTAINER]}
JOB = {"pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": {"spec": POD}}}}
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


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
        result: dict[str, str] = next(row for row in rows if row["name"] == "rights")
        return result

    result = rights()
    assert result["state"] == "error" and "create pytorchjobs.kubeflow.org" in result["what"]
    commands = re.findall(r"`(kubectl .+?)`", result["fix"])
    assert len(commands) == 3
    for command in commands:
        printed.run(command, tmp_path, cluster.server.kubeconfig)
    left = rights()["what"]
    # ClusterRole admin is empty here: the controller manager fills it, and none runs with this API server
    assert not re.search("pytorchjobs|servingruntimes|inferenceservices", left), left
    for kind, name in (("RoleBinding", "trainlab-admin"), ("RoleBinding", "trainlab"), ("Role", "trainlab")):
        result = cluster.client.look("rbac.authorization.k8s.io/v1", kind, name, "rights")
        assert result, name
        cluster.client.delete(result)
    cluster.client.delete(space)
    until(lambda: not cluster.client.look("v1", "Namespace", "rights"))


def test_printed_commands_work_as_they_stand(cluster: Cluster, tmp_path: Path) -> None:
    """Those that need no more than kubectl or Helm and what they name; each is run word for word where that is there."""
    things: list[Json] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "lab"}},
        {"apiVersion": KUEUE, "kind": "LocalQueue", "metadata": {"name": "default"}, "spec": {"clusterQueue": "c"}},
        {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "survival"}, "spec": JOB},
        {
            "apiVersion": SERVING,
            "kind": "InferenceService",
            "metadata": {"name": "survival"},
            "spec": {"predictor": {}},
        },
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "survival-runs"}, "spec": CLAIM},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "survival-read"}, "spec": POD},
    ]
    for thing in things:
        within = {} if thing["kind"] == "Namespace" else {"namespace": "lab"}
        cluster.client.apply(thing | {"metadata": thing["metadata"] | within})
    chart = tmp_path / "chart"
    chart.mkdir()
    (chart / "Chart.yaml").write_text("{apiVersion: v2, name: empty, version: 0.1.0}", encoding="utf-8")
    printed.run(f"helm -n lab install survival {chart}", tmp_path, cluster.server.kubeconfig)
    (tmp_path / "token").write_text("t", encoding="utf-8")
    said = {}
    for command in remedies.RUN:
        line = remedies.filled(command).replace("=FILE", f"={tmp_path / 'token'}")
        said[command] = printed.run(line, tmp_path, cluster.server.kubeconfig)
    assert "survival-read" in said["kubectl -n {} get pods,events"]
    assert "nvidia-pool" in said["kubectl get clusterqueues"]
    assert not cluster.client.items(KUEUE, "LocalQueue", "lab")
    for undo in (
        "kubectl uncordon n1",
        "kubectl delete namespace other --wait=false",
        "helm -n lab uninstall survival",
    ):
        printed.run(undo, tmp_path, cluster.server.kubeconfig)
    cluster.client.send("DELETE", "/api/v1/namespaces/lab/pods/survival-read", gracePeriodSeconds=0)
    cluster.client.delete(things[0])
    free_claims(cluster.client)
    until(lambda: not any(cluster.client.look("v1", "Namespace", name) for name in ("lab", "other")))
