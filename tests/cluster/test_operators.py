"""The operators' kinds are available to Helm when their installation ends, not minutes later."""

import pytest
from embedded_cluster import operators
from embedded_cluster.say import UserError

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
