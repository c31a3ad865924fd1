"""A cluster that only answers: what the chart looks up, from objects in memory, for `helm template --dry-run=server` of Helm 3.

Helm 4 first asks whether it reaches a cluster; tests/api renders with both on real API servers.
"""

from __future__ import annotations

import json
import subprocess
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ports import Handler, serve_in_thread, write_kubeconfig

from charts.rendering import CHART, KUBERNETES, REAL_CLUSTER, SITE, binary, environment

PLURALS = {
    "v1": {
        "ConfigMap": "configmaps",
        "LimitRange": "limitranges",
        "Node": "nodes",
        "PersistentVolumeClaim": "persistentvolumeclaims",
        "ResourceQuota": "resourcequotas",
        "Secret": "secrets",
        "Service": "services",
    },
    "batch/v1": {"Job": "jobs"},
    "kubeflow.org/v1": {"PyTorchJob": "pytorchjobs"},
    "monitoring.coreos.com/v1": {"PodMonitor": "podmonitors"},
    "networking.k8s.io/v1": {"Ingress": "ingresses"},
    "rbac.authorization.k8s.io/v1": {"Role": "roles"},
    "route.openshift.io/v1": {"Route": "routes"},
    "serving.kserve.io/v1beta1": {"InferenceService": "inferenceservices"},
    "storage.k8s.io/v1": {"StorageClass": "storageclasses"},
    "trainer.kubeflow.org/v1alpha1": {"TrainJob": "trainjobs"},
}
CLUSTERED = ("Node", "StorageClass")
"""Kinds without a namespace."""


class Lookups:
    """Objects, served to Helm; a kind in `forbidden` may not be read."""

    def __init__(self, folder: Path) -> None:
        self.objects: list[dict[str, Any]] = []
        self.forbidden: set[str] = set()
        lookups = self

        class Requests(Handler):
            def do_GET(self) -> None:
                status, found = lookups.answer(urlsplit(self.path).path)
                self.answer(status, json.dumps(found).encode())

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Requests)
        serve_in_thread(self.server)
        self.kubeconfig = write_kubeconfig(folder / "kubeconfig", f"http://127.0.0.1:{self.server.server_port}")

    def close(self) -> None:
        """Stop answering."""
        self.server.shutdown()
        self.server.server_close()

    def template(
        self,
        files: tuple[str, ...],
        *sets: str,
        served: tuple[str, ...] = REAL_CLUSTER,
        upgrade: bool = False,
        site: Path = SITE,
        chart: Path = CHART,
    ) -> subprocess.CompletedProcess[str]:
        """Run `helm template demo` in namespace `lab`, with a real cluster to look things up in."""
        command = [str(binary("helm")), "template", "demo", str(chart), "--namespace", "lab", "-f", str(site)]
        command += [word for file in files for word in ("-f", file)] + [word for one in sets for word in ("--set", one)]
        command += [word for api in served for word in ("--api-versions", api)]
        command += ["--kube-version", KUBERNETES, "--dry-run=server", *(["--is-upgrade"] if upgrade else [])]
        env = environment(self.kubeconfig)
        return subprocess.run(command, capture_output=True, text=True, check=False, env=env)

    def answer(self, path: str) -> tuple[int, dict[str, Any]]:
        """Return status and body for a path: the kinds of an API, a list, or an object."""
        for version, kinds in PLURALS.items():
            base = f"/{'api' if version == 'v1' else 'apis'}/{version}"
            if path == base:
                return 200, _kinds(version, kinds)
            for kind, plural in kinds.items():
                folder = f"{base}/{plural}" if kind in CLUSTERED else f"{base}/namespaces/lab/{plural}"
                if path == folder or path.startswith(f"{folder}/"):
                    return self._of_kind(version, kind, path.removeprefix(folder).strip("/"))
        return 404, _status(404, "NotFound", f"nothing at {path}")

    def _of_kind(self, version: str, kind: str, name: str) -> tuple[int, dict[str, Any]]:
        if kind in self.forbidden:
            return 403, _status(403, "Forbidden", f"{kind} is forbidden")
        found = [each for each in self.objects if each["kind"] == kind]
        if not name:
            return 200, {"apiVersion": version, "kind": f"{kind}List", "items": found}
        for each in found:
            if each["metadata"]["name"] == name:
                return 200, {"apiVersion": version} | each
        return 404, _status(404, "NotFound", f"no {kind} {name}")


def _kinds(version: str, kinds: dict[str, str]) -> dict[str, Any]:
    resources = [
        {"name": plural, "kind": kind, "namespaced": kind not in CLUSTERED, "verbs": ["get", "list"]}
        for kind, plural in kinds.items()
    ]
    return {"kind": "APIResourceList", "groupVersion": version, "resources": resources}


def _status(code: int, reason: str, message: str) -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "reason": reason,
        "code": code,
        "message": message,
    }
