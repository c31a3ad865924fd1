"""The operators' kinds are available to Helm when their installation ends, not minutes later."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from embedded_cluster.base import paths
from embedded_cluster.base.say import UserError
from embedded_cluster.nodes import operators, render

MANIFESTS = """apiVersion: v1
kind: ConfigMap
metadata:
  name: not-a-definition
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  annotations:
    a: b
  name: inferenceservices.serving.kserve.io
spec:
  names:
    plural: inferenceservices
"""
NAME = "inferenceservices.serving.kserve.io"


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[str | UserError]:
    """kubectl's outputs, one after the other; the last one repeats."""
    answers: list[str | UserError] = []

    def kubectl(*arguments: str) -> str:
        assert arguments[0] == "api-resources"
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, UserError):
            raise answer
        return answer

    monkeypatch.setattr(operators, "_kubectl", kubectl)
    monkeypatch.setattr(operators, "render", lambda _: MANIFESTS)
    monkeypatch.setattr(operators, "POLL", 0.01)
    return answers


def test_definitions_are_found() -> None:
    assert operators.defined(MANIFESTS) == {NAME}


def test_apis_are_waited_for(listed: list[str | UserError], monkeypatch: pytest.MonkeyPatch) -> None:
    """An emulated machine: KServe runs, but for two minutes the API server does not know it; then parts of it fail."""
    monkeypatch.setattr(operators.time, "monotonic", lambda: 0.0)
    listed += ["pods", UserError("unable to retrieve the complete list of server APIs"), f"pods\n{NAME}"]
    operators._wait_for_apis([operators.OPERATORS["kserve"]], 1.0)
    assert listed == [f"pods\n{NAME}"]


def test_what_is_never_listed_is_named(listed: list[str | UserError]) -> None:
    listed.append("pods")
    with pytest.raises(UserError, match=f"does not list {NAME}; "):
        operators._wait_for_apis([operators.OPERATORS["kserve"]], 0.0)


@pytest.mark.parametrize(
    ("message", "hopeless"),
    [
        ("services have not yet been read at least once, cannot construct envvars", False),
        ('secret "webhook-cert" not found', True),
    ],
)
def test_a_kubelet_that_has_just_started_is_waited_for(message: str, hopeless: bool) -> None:
    """Its pods have the reason of those whose Secret is missing."""
    one = operators.OPERATORS["local-path-provisioner"]
    waiting = {"state": {"waiting": {"reason": "CreateContainerConfigError", "message": message}}, "image": "x"}
    pod = operators_pod(one, waiting)
    assert (message in operators._hopeless(one, [pod], {})) == hopeless


def operators_pod(one: operators.Operator, container: dict[str, Any]) -> dict[str, Any]:
    """A pod of an operator's Deployment."""
    metadata = {"name": f"{one.deployment}-5d64b7b967-g66qf", "namespace": one.namespace, "uid": "u"}
    return {"kind": "Pod", "metadata": metadata, "status": {"containerStatuses": [{"name": "manager"} | container]}}


def test_restarts_of_earlier_reboots_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kept cluster adds one for each; what restarts five times while it is waited for is hopeless."""
    monkeypatch.setenv("TRAINLAB_PATIENCE", "1")
    one = operators.OPERATORS["local-path-provisioner"]
    pods = [operators_pod(one, {"restartCount": count, "image": "x"}) for count in (7, 8, 12)]
    before = operators._restarts(pods[:1])
    assert [operators._hopeless(one, [pod], before) for pod in pods] == ["", "", "its container restarted 5 times"]


@pytest.mark.slow
def test_a_pod_is_replaced_when_its_manifests_change(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Kueue reads its ConfigMap only at its start: an upgraded checkout would go on with the settings of before."""
    one = operators.OPERATORS["kueue"]
    changed = tmp_path / "manifests"
    shutil.copytree(paths.MANIFESTS, changed)
    monkeypatch.setattr(render, "RENDERED", tmp_path / "rendered")
    marks = []
    for _ in range(2):
        documents = yaml.load_all(render.render(one), yaml.CSafeLoader)
        (deployment,) = (each for each in documents if each["kind"] == "Deployment")
        marks.append(deployment["spec"]["template"]["metadata"]["annotations"]["trainlab.dev/manifests"])
        with (changed / "kueue" / "kustomization.yaml").open("a", encoding="utf-8") as file:
            file.write("# another line\n")
        monkeypatch.setattr(paths, "MANIFESTS", changed)
    assert marks[0] != marks[1]
