"""A cluster without nodes for the chart: tests/api's real API server with the operators' true CRDs; used by test_live.py."""

import json
import os
import subprocess
import sys
import time
from typing import Any

import pytest
import yaml
from rendering import CHART, ROOT, binary
from upstream import CRDS, from_module

sys.path.insert(0, str(ROOT / "tests" / "api"))

from client import Client
from server import Server

Document = dict[str, Any]
CRD_SECONDS = 60


class Lab:
    """One API server, one namespace, one Helm program."""

    def __init__(self, server: Server, name: str) -> None:
        """Make the namespace that belongs to this Helm program."""
        self.server, self.helm_name, self.namespace = server, name, f"lab-{name}"
        self.client = Client(server.kubeconfig)
        self.client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}})

    def helm(self, *arguments: str, nobody: bool = False) -> subprocess.CompletedProcess[str]:
        """Run Helm against the server, as administrator or as a user with rights in the namespace only."""
        kubeconfig = self.server.nobody if nobody else self.server.kubeconfig
        env = {"PATH": os.environ["PATH"], "HOME": str(self.server.folder), "KUBECONFIG": str(kubeconfig)}
        command = [str(binary(self.helm_name)), *arguments, "--namespace", self.namespace]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=env)

    def upgrade(self, *arguments: str, release: str = "demo", nobody: bool = False) -> subprocess.CompletedProcess[str]:
        """Run `helm upgrade --install` with the survival phase at local scale."""
        files = [str(ROOT / "values" / "survival.yaml"), str(ROOT / "values" / "local" / "survival.yaml")]
        return self.helm(
            "upgrade", "--install", release, str(CHART), "-f", files[0], "-f", files[1], *arguments, nobody=nobody
        )

    def names(self, kind: str, api_version: str) -> list[str]:
        """Return the names of all objects of a kind in the namespace."""
        return sorted(item["metadata"]["name"] for item in self.client.items(api_version, kind, self.namespace))

    def one(self, kind: str, api_version: str) -> Document:
        """Return the only object of a kind in the namespace."""
        (found,) = self.client.items(api_version, kind, self.namespace)
        return found


def done(process: subprocess.CompletedProcess[str]) -> str:
    """Return the output of a Helm command that must have worked."""
    assert process.returncode == 0, process.stderr
    return process.stdout


def refused(process: subprocess.CompletedProcess[str]) -> str:
    """Return the error of a Helm command that must have failed."""
    assert process.returncode != 0, process.stdout
    return process.stderr


def install_crds(server: Server) -> None:
    """Install the operators' CRDs, without the operators, and wait until the server serves them."""
    client = Client(server.kubeconfig)
    for component, path in CRDS.values():
        crd = yaml.load(from_module(component, path), Loader=yaml.CSafeLoader)
        crd["spec"].pop("conversion", None)
        client.apply(json.loads(json.dumps(crd, default=str)))
        end = time.monotonic() + CRD_SECONDS
        spec = crd["spec"]
        while not client.path(f"{spec['group']}/{spec['versions'][0]['name']}", spec["names"]["kind"]):
            if time.monotonic() > end:
                pytest.fail(f"{crd['metadata']['name']} is not served after {CRD_SECONDS} s")
            time.sleep(0.3)


def node(gpus: int) -> Document:
    """Return a Node that offers GPUs; no kubelet stands behind it."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1"},
        "status": {"allocatable": {"cpu": "8", "memory": "64Gi"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})},
    }


def owner(namespace: str) -> list[Document]:
    """Return role and binding of the user `nobody`, who may do everything in the namespace and nothing outside."""
    api = "rbac.authorization.k8s.io"
    return [
        {
            "apiVersion": f"{api}/v1",
            "kind": "Role",
            "metadata": {"name": "owner", "namespace": namespace},
            "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}],
        },
        {
            "apiVersion": f"{api}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "owner", "namespace": namespace},
            "roleRef": {"apiGroup": api, "kind": "Role", "name": "owner"},
            "subjects": [{"apiGroup": api, "kind": "User", "name": "nobody"}],
        },
    ]
