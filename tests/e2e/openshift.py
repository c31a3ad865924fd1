"""OpenShift's APIs on the embedded cluster: what a bare OpenShift serves, its operators' stand-ins, and builds by buildah.

The stand-ins are those of tests/api_server. What they cannot do is real here: OpenShift AI's training operator, Trainer with JobSet and KServe
are the embedded cluster's own, pods run, and the image that a build makes is what they run. They run as UIDs that OpenShift gives (scc.py).
Not there: a registry (push_image.py), a controller that enforces NetworkPolicies, and GPUs.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests
import yaml
from api_server import builds, crds
from api_server.client import Client
from embedded_cluster.base import programs
from embedded_cluster.nodes import operators, render

from e2e import machine
from e2e.scc import Constraints

Json = dict[str, Any]
IMAGE = "localhost/trainlab-pause:1"
"""Of which cert-manager's pod is made; every node has it."""
VERSION = "4.20.6"
USER = {"name": "openshift-stand-ins", "namespace": "kube-system"}
RBAC = "rbac.authorization.k8s.io"
ADMINISTRATOR: list[Json] = [
    {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": USER},
    {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": USER["name"]},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", **USER}],
    },
]
SETTINGS: list[tuple[Json, Json, Json]] = [
    (
        crds.reduced("config.openshift.io", "ClusterVersion", ["v1"], False),
        {"apiVersion": "config.openshift.io/v1", "kind": "ClusterVersion", "metadata": {"name": "version"}},
        {"status": {"desired": {"version": VERSION}}},
    ),
    (
        crds.reduced("imageregistry.operator.openshift.io", "Config", ["v1"], False),
        {"apiVersion": "imageregistry.operator.openshift.io/v1", "kind": "Config", "metadata": {"name": "cluster"}},
        {"spec": {"managementState": "Managed"}},
    ),
    (
        # by this API the chart knows OpenShift
        crds.reduced(
            "security.openshift.io", "SecurityContextConstraints", ["v1"], False, "securitycontextconstraints"
        ),
        {
            "apiVersion": "security.openshift.io/v1",
            "kind": "SecurityContextConstraints",
            "metadata": {"name": "restricted-v2"},
        },
        {},
    ),
]
"""What a bare OpenShift has besides: definition, object, and what the object says."""
SECONDS = 120


class Buildah(builds.Builder):
    """Builds what was uploaded, with the Dockerfile that the BuildConfig names."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        """Start; contexts and logs go into `folder`."""
        self._folder = folder
        self.repositories: set[str] = set()
        super().__init__(kubeconfig, folder)

    def receive(self, build: str, sent: tarfile.TarFile) -> None:
        """Unpack the context."""
        sent.extraction_filter = getattr(tarfile, "data_filter", None)  # Debian 12's Python 3.11.2 has none
        sent.extractall(self._folder / build / "context")

    def log(self, build: str) -> list[str]:
        """Return what was printed so far."""
        file = self._folder / build / "log"
        return file.read_text(encoding="utf-8").splitlines() if file.exists() else []

    def make(self, build: Json, place: str) -> str:
        """Build, and hand the image to the nodes as `place`."""
        name, strategy = build["metadata"]["name"], build["spec"]["strategy"]["dockerStrategy"]
        folder, tag = self._folder / name, build["spec"]["output"]["to"]["name"].split(":")[1]
        self.repositories.add(place)
        with (folder / "log").open("w", encoding="utf-8") as log:
            words = [str(folder / "context"), strategy["dockerfilePath"], place, tag]
            done = subprocess.run(push_image(*words), env=environment(), stdout=log, stderr=log, check=False)
        if done.returncode:
            raise RuntimeError("\n".join(self.log(name)[-20:]))
        return str(json.loads(self.log(name)[-1])["digest"])

    def forget(self) -> None:
        """Remove the images from this machine's stores."""
        for place in self.repositories:
            subprocess.run(push_image("--forget", place), env=environment(), check=True, capture_output=True)


def push_image(*words: str) -> list[str]:
    """Return the command line of push_image.py."""
    return [sys.executable, "-m", "e2e.push_image", *words]


def environment() -> dict[str, str]:
    """That of a program of the tests which acts on the tests' cluster."""
    return machine.ENVIRONMENT | {
        "PYTHONPATH": os.pathsep.join(map(str, (machine.REPO / "cluster", machine.REPO / "tests")))
    }


@contextmanager
def trainer() -> Iterator[None]:
    """Have what OpenShift AI brings from 3.3 on once its JobSet operator and its trainer are there, and have it gone when they go."""
    names = ("jobset", "trainer")
    machine.cluster("operators", *names)
    yield
    manifests = "\n---\n".join(render.render(operators.OPERATORS[name]) for name in reversed(names))
    machine.kubectl("delete", "--ignore-not-found", "--wait", "-f", "-", stdin=manifests)


class OpenShift:
    """An OpenShift without its operators, on the running cluster."""

    def __init__(self, folder: Path) -> None:
        """Start and return when the operators' stand-ins watch; `bare` are its objects now."""
        self._folder = folder
        folder.mkdir(parents=True)
        machine.kubectl("apply", "-f", "-", stdin=_list(ADMINISTRATOR))
        self.client = Client(self._kubeconfig())
        builds.serve(self.client)
        for crd, thing, says in SETTINGS:
            self.client.apply(crd)
            self._apply(thing | {key: value for key, value in says.items() if key != "status"})
            if "status" in says:
                self.client.status(thing, says["status"])
        (folder / "faults.json").write_text("{}", encoding="ascii")
        command = [*programs.with_us(), sys.executable, "-m", "api_server.operators_process", str(folder), IMAGE]
        with (folder / "operators.log").open("wb") as log:
            self._operators = subprocess.Popen(command, env=environment(), stdout=log, stderr=log)
        end = time.monotonic() + SECONDS
        while not (folder / "ready").exists():
            assert self._operators.poll() is None and time.monotonic() < end, self.said()
            time.sleep(0.3)
        self._constraints = Constraints(self.client, f"{machine.NODES}.1")
        self.builder = Buildah(folder / "kubeconfig", folder)
        self.kubeconfig = self.builder.kubeconfig
        self.bare = self.client.objects()

    def said(self) -> str:
        """Return what the operators' stand-ins printed: their errors."""
        return (self._folder / "operators.log").read_text(encoding="utf-8")

    def close(self) -> None:
        """End all of it and remove the images; its objects go with the cluster."""
        self._constraints.close()
        self.builder.close()
        self._operators.kill()
        self._operators.wait()
        self.builder.forget()

    def _kubeconfig(self) -> Path:
        """Write a kubeconfig with a token, which a proxy can pass on, instead of the administrator's certificate."""
        config: Json = yaml.safe_load(machine.KUBECONFIG.read_text(encoding="utf-8"))
        token = machine.kubectl("-n", USER["namespace"], "create", "token", USER["name"], "--duration=24h").strip()
        cluster = config["clusters"][0]["cluster"]
        authority = self._folder / "ca.crt"
        authority.write_bytes(base64.b64decode(cluster.pop("certificate-authority-data")))
        cluster["certificate-authority"] = str(authority)
        config["users"][0]["user"] = {"token": token}
        file = self._folder / "kubeconfig"
        file.touch(mode=0o600)
        file.write_text(yaml.safe_dump(config), encoding="utf-8")
        return file

    def _apply(self, thing: Json) -> None:
        """Apply an object of a new kind, which is served a moment later."""
        end = time.monotonic() + SECONDS
        while True:
            try:
                self.client.apply(thing)
                return
            except (LookupError, requests.HTTPError):
                assert time.monotonic() < end
                time.sleep(0.2)


def _list(things: Sequence[Json]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(things)})
