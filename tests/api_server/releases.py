"""Releases of the chart on the API server of training_api.py, by each Helm program."""

import os
import subprocess
from typing import Any

from charts.rendering import CHART, ROOT, SITE, binary

from api_server.client import Client
from api_server.server import Server

Document = dict[str, Any]
BROKEN = ("--set-json", 'site.podAnnotations={"no key": "x"}')
"""The API server refuses it in the promotion Job, so after the training job is created; the chart does not."""


class Releases:
    """One API server, one namespace, one Helm program."""

    def __init__(self, server: Server, name: str, tests: str = "releases") -> None:
        """Make the namespace that belongs to this Helm program and these tests."""
        self.server, self.helm_name, self.namespace = server, name, f"{tests}-{name}"
        self.client = Client(server.kubeconfig)
        self.client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}})

    def run(self, *arguments: str, nobody: bool = False) -> subprocess.CompletedProcess[str]:
        """Run Helm against the server, as administrator or as a user with rights in the namespace only."""
        kubeconfig = self.server.nobody if nobody else self.server.kubeconfig
        env = {"PATH": os.environ["PATH"], "HOME": str(self.server.folder), "KUBECONFIG": str(kubeconfig)}
        command = [str(binary(self.helm_name)), *arguments, "--namespace", self.namespace]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=env)

    def upgrade(self, *arguments: str, release: str = "demo", nobody: bool = False) -> subprocess.CompletedProcess[str]:
        """Run `helm upgrade --install` with the survival phase at local scale."""
        files = [str(ROOT / "values" / "survival.yaml"), str(ROOT / "values" / "local" / "survival.yaml")]
        given = ["-f", str(SITE), "-f", files[0], "-f", files[1]]
        return self.run("upgrade", "--install", release, str(CHART), *given, *arguments, nobody=nobody)

    def names(self, kind: str, api_version: str) -> list[str]:
        """Return the names of all objects of a kind in the namespace."""
        return sorted(item["metadata"]["name"] for item in self.client.items(api_version, kind, self.namespace))

    def one(self, kind: str, api_version: str) -> Document:
        """Return the only object of a kind in the namespace."""
        (result,) = self.client.items(api_version, kind, self.namespace)
        return result


def done(process: subprocess.CompletedProcess[str]) -> str:
    """Return the output of a Helm command that must succeed."""
    assert process.returncode == 0, process.stderr
    return process.stdout


def refused(process: subprocess.CompletedProcess[str]) -> str:
    """Return the error of a Helm command that must fail."""
    assert process.returncode != 0, process.stdout
    return process.stderr


def making_room(notes: str) -> str:
    """Return the line that the notes have for an upgrade that failed."""
    return notes.split("After an upgrade that failed")[1].splitlines()[1].strip()


def editor(namespace: str) -> list[Document]:
    """Return what gives the user `nobody` in the namespace what an edit-only user of OpenShift AI has, and nothing outside.

    ClusterRole `edit` is empty here, as no controller manager aggregates it; its parts are not. KServe's part is aggregated to it
    there, that of the training operator is not (docs/operate/namespace.md). It may write no Roles.
    """
    api = "rbac.authorization.k8s.io"
    rules = [
        {"apiGroups": ["kubeflow.org"], "resources": ["pytorchjobs"], "verbs": ["*"]},
        {"apiGroups": ["serving.kserve.io"], "resources": ["servingruntimes", "inferenceservices"], "verbs": ["*"]},
    ]
    role = {"kind": "Role", "metadata": {"name": "operators", "namespace": namespace}, "rules": rules}
    result: list[Document] = [{"apiVersion": f"{api}/v1", **role}]
    for kind, name in (
        ("ClusterRole", "system:aggregate-to-edit"),
        ("ClusterRole", "system:aggregate-to-view"),
        ("Role", "operators"),
    ):
        result.append(
            {
                "apiVersion": f"{api}/v1",
                "kind": "RoleBinding",
                "metadata": {"name": name.replace(":", "-"), "namespace": namespace},
                "roleRef": {"apiGroup": api, "kind": kind, "name": name},
                "subjects": [{"apiGroup": api, "kind": "User", "name": "nobody"}],
            }
        )
    return result
