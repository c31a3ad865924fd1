"""What an attendee can do with the kubeconfig that they were given; used by test_attendees.py."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path

import yaml
from embedded_cluster.base import paths
from embedded_cluster.builds import build

from api_server.client import Client

REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def may(kubeconfig: Path, verb: str, group: str, resource: str, namespace: str = "") -> bool:
    """Ask the API server whether the user of a kubeconfig may do this."""
    name, _, part = resource.partition("/")
    wanted = {"verb": verb, "group": group, "resource": name, "subresource": part, "namespace": namespace}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    answer = user(kubeconfig).send("POST", REVIEW, review | {"spec": {"resourceAttributes": wanted}})
    return bool(answer["status"]["allowed"])


def allowed(kubeconfig: Path, namespace: str) -> set[tuple[str, str, str]]:
    """Return all that the user of a kubeconfig may do to objects in a namespace: verb, API group and resource."""
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview"}
    path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    rules = user(kubeconfig).send("POST", path, review | {"spec": {"namespace": namespace}})["status"]["resourceRules"]
    return {
        (verb, group, resource)
        for rule in rules
        for verb in rule["verbs"]
        for group in rule.get("apiGroups", [""])
        for resource in rule.get("resources", [])
    }


def user(kubeconfig: Path) -> Client:
    """A client as the user of a kubeconfig that carries its certificate."""
    config = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
    assert "certificate-authority-data" in config["clusters"][0]["cluster"]
    authority = kubeconfig.parent.parent / "ca.crt"
    authority.write_bytes(base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"]))
    config["clusters"][0]["cluster"]["certificate-authority"] = str(authority)
    copy = kubeconfig.parent.parent / "as-user"
    copy.write_text(yaml.safe_dump(config), encoding="utf-8")
    return Client(copy)


def helm(kubeconfig: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Helm 3 as the user of a kubeconfig, in the namespace that it names."""
    env = {"PATH": "/usr/bin:/bin", "HOME": str(kubeconfig.parent.parent), "KUBECONFIG": str(kubeconfig)}
    return subprocess.run(
        [str(build.binary("helm")), *arguments], cwd=paths.REPO, env=env, capture_output=True, text=True, check=False
    )
