"""Somebody who may edit in one restricted namespace with a quota, and nothing else, trains by plain Helm and is answered."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e import machine
from e2e.commands import WITH_PROGRAMS, kubectl, sh, trainer_image

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3600)]
SPACE, WHO, PROMOTER = "team", "editor", "promoter"
RULES = [
    {
        "apiGroups": ["serving.kserve.io"],
        "resources": ["servingruntimes"],
        "verbs": ["create", "patch", "list", "delete"],
    },
    {"apiGroups": ["serving.kserve.io"], "resources": ["inferenceservices"], "verbs": ["get", "create", "patch"]},
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "create", "patch"]},
]
"""What values.yaml says of site.serviceAccount."""
OPERATORS = [
    {"apiGroups": ["kubeflow.org"], "resources": ["pytorchjobs"], "verbs": ["*"]},
    {"apiGroups": ["serving.kserve.io"], "resources": ["inferenceservices", "servingruntimes"], "verbs": ["*"]},
]
"""What OpenShift AI adds to ClusterRole edit for KServe, and an administrator for the training operator (docs/operate/namespace.md)."""
QUOTA = {"requests.cpu": "2", "requests.memory": "6Gi", "limits.memory": "6Gi", "requests.storage": "8Gi", "pods": "20"}


@pytest.mark.tier
def test_rights_in_one_namespace_are_enough(demo: str, tmp_path: Path) -> None:
    storage = {name: {"storageClass": "local-path-rwx", "size": "3Gi"} for name in ("models", "runs")}
    site = {"images": {"trainer": trainer_image(), "pullPolicy": "Never"}, "storage": storage}
    (tmp_path / "site.yaml").write_text(yaml.safe_dump({"site": site}), encoding="utf-8")
    try:
        for document in prepared():
            kubectl("apply", "-f", "-", given=json.dumps(document))
        config = tmp_path / "kubeconfig"
        config.write_text(yaml.safe_dump(kubeconfig()), encoding="utf-8")
        env = {"KUBECONFIG": str(config), **WITH_PROGRAMS}
        line = (
            "helm",
            "install",
            "quick",
            "charts/trainjob",
            "-f",
            "values/quick.yaml",
            "-f",
            str(tmp_path / "site.yaml"),
        )

        assert "site.serviceAccount" in sh(*line, env=env, ok=False), "no Role can be made"
        own = ("--set", f"site.serviceAccount={PROMOTER}")
        said = sh(*line, *own, "--set", "phase.serve.memory=7Gi", env=env, ok=False)
        assert "the server requests 7Gi; its pod could not be created" in said
        assert kubectl("-n", SPACE, "get", "pvc,pytorchjobs,jobs", "-o", "name") == "", "told before anything is made"

        sh(*line, *own, env=env)
        sh("kubectl", "wait", "pytorchjobs", "--all", "--for=condition=Succeeded", "--timeout=900s", env=env)
        sh("kubectl", "wait", "inferenceservices", "quick", "--for=condition=Ready", "--timeout=600s", env=env)
        sh("helm", "test", "quick", "--timeout", "10m", env=env)
        sh("helm", "uninstall", "quick", "--wait", env=env)
        left = sh("kubectl", "get", "pvc,pytorchjobs,inferenceservices,servingruntimes", "-o", "name", env=env).split()
        assert left == ["persistentvolumeclaim/quick-models", "persistentvolumeclaim/quick-runs"]
    finally:
        kubectl("delete", "namespace", SPACE, "--ignore-not-found")


def prepared() -> list[dict[str, Any]]:
    """What an administrator makes beforehand."""
    names = {"namespace": SPACE}
    api = "rbac.authorization.k8s.io"

    def given(name: str, kind: str, role: str, account: str) -> dict[str, Any]:
        return {
            "apiVersion": f"{api}/v1",
            "kind": "RoleBinding",
            "metadata": names | {"name": name},
            "roleRef": {"apiGroup": api, "kind": kind, "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": SPACE}],
        }

    def role(name: str, rules: list[dict[str, Any]]) -> dict[str, Any]:
        return {"apiVersion": f"{api}/v1", "kind": "Role", "metadata": names | {"name": name}, "rules": rules}

    restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE, "labels": restricted}},
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": names | {"name": "team"}, "spec": {"hard": QUOTA}},
        *({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": names | {"name": one}} for one in (WHO, PROMOTER)),
        role("promoter", RULES),
        role("operators", OPERATORS),
        given("edit", "ClusterRole", "edit", WHO),
        given("operators", "Role", "operators", WHO),
        given("promoter", "Role", "promoter", PROMOTER),
    ]


def kubeconfig() -> dict[str, Any]:
    """Their own: a token, and the namespace."""
    found = yaml.safe_load(machine.KUBECONFIG.read_text(encoding="utf-8"))
    (cluster,) = found["clusters"]
    token = kubectl("-n", SPACE, "create", "token", WHO, "--duration=2h").strip()
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [cluster],
        "users": [{"name": WHO, "user": {"token": token}}],
        "contexts": [{"name": WHO, "context": {"cluster": cluster["name"], "user": WHO, "namespace": SPACE}}],
        "current-context": WHO,
    }
