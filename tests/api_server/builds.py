"""OpenShift's builds for the test API server: reduced CRDs, a build controller, and the subresources that no CRD can have.

BuildConfig, Build and ImageStream are an aggregated API on OpenShift, so they have no CRDs anywhere: these accept every
field. `instantiate`, `instantiatebinary` and `log` are answered by a small proxy in front of the API server, which
forwards everything else. Faults: `build-failed`, `no-registry`, `hang`.
"""

from __future__ import annotations

import io
import json
import tarfile
import threading
from functools import partial
from pathlib import Path
from typing import Any

import requests
from waiting import until

from api_server import crds
from api_server.client import Client
from api_server.front import Front

Json = dict[str, Any]
BUILD, IMAGE = "build.openshift.io/v1", "image.openshift.io/v1"
REGISTRY = "image-registry.openshift-image-registry.svc:5000"
STEP_SECONDS = 0.3
LOG = [f"STEP {number}" for number in range(1, 60)] + ["ERROR: no matching distribution", "error: build error"]


def definitions() -> list[Json]:
    """Return the reduced CRDs."""
    return [
        crds.reduced("build.openshift.io", "BuildConfig", ["v1"], True),
        crds.reduced("build.openshift.io", "Build", ["v1"], True),
        crds.reduced("image.openshift.io", "ImageStream", ["v1"], True),
        crds.reduced("template.openshift.io", "Template", ["v1"], True),
    ]


class Builder(Front):
    """The proxy and the controller; `fault` may be changed at any time, `sent` lists the file names of each upload."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        """Start both, with the rights of `kubeconfig`; `self.kubeconfig` points to the proxy."""
        self.client, self.fault, self.started = Client(kubeconfig), "", 0
        self.sent: list[list[str]] = []
        self._lock = threading.Lock()
        super().__init__(kubeconfig, folder / "through-proxy")
        self._end = threading.Event()
        threading.Thread(target=self._control, daemon=True).start()

    def close(self) -> None:
        """Stop both."""
        self._end.set()
        super().close()

    def _own(self, method: str, path: str, body: bytes) -> tuple[int, bytes] | None:
        """Answer what no CRD can have; None for the rest."""
        parts = path.strip("/").split("/")
        if len(parts) != 8 or parts[1] != "build.openshift.io":
            return None
        namespace, name, last = parts[4], parts[6], parts[7]
        if method == "GET" and last == "log":
            return 200, "\n".join(self.log(name)).encode()
        if method == "POST" and last in ("instantiate", "instantiatebinary"):
            return self._instantiate(namespace, name, body if last == "instantiatebinary" else None)
        return None

    def _instantiate(self, namespace: str, name: str, archive: bytes | None) -> tuple[int, bytes]:
        config = self.client.look(BUILD, "BuildConfig", name, namespace)
        if config is None:
            return 404, b'{"kind": "Status", "message": "buildconfigs not found"}'
        if (config["spec"]["source"]["type"] == "Binary") != (archive is not None):
            return 400, b'{"kind": "Status", "message": "source type and request do not fit"}'
        with self._lock:
            self.started += 1
            number = self.started
        if archive is not None:
            with tarfile.open(fileobj=io.BytesIO(archive)) as sent:
                self.sent.append(sorted(sent.getnames()))
                self.receive(f"{name}-{number}", sent)
        build = {
            "apiVersion": BUILD,
            "kind": "Build",
            "metadata": {
                "name": f"{name}-{number}",
                "namespace": namespace,
                "labels": {"openshift.io/build-config.name": name, "buildconfig": name},
            },
            "spec": {key: config["spec"][key] for key in ("source", "strategy", "output")},
        }
        made = self.client.apply(build)
        self.client.status(made, {"phase": "New"})
        return 201, json.dumps(made).encode()

    def receive(self, build: str, sent: tarfile.TarFile) -> None:
        """Take the archive that was uploaded for a build; nothing here builds it."""

    def log(self, build: str) -> list[str]:
        """Return the lines of a build's log."""
        return LOG

    def make(self, build: Json, place: str) -> str:
        """Return the digest of the image that a build makes and pushes to `place`; RuntimeError if that fails."""
        return f"sha256:{build['metadata']['uid'].replace('-', '') * 2}"

    def _control(self) -> None:
        while not self._end.wait(STEP_SECONDS):
            try:
                self._step()
            except (requests.RequestException, LookupError) as error:
                print(f"builds: {error}", flush=True)

    def _step(self) -> None:
        for stream in self.client.items(IMAGE, "ImageStream"):
            if self.fault != "no-registry" and not (stream.get("status") or {}).get("dockerImageRepository"):
                metadata = stream["metadata"]
                place = f"{REGISTRY}/{metadata['namespace']}/{metadata['name']}"
                self.client.status(stream, {"dockerImageRepository": place})
        for build in self.client.items(BUILD, "Build"):
            now = (build.get("status") or {}).get("phase")
            after = {"New": "Pending", "Pending": "Running"}.get(now or "")
            if after:
                self.client.status(build, {"phase": after})
            elif now == "Running" and self.fault == "build-failed":
                self._failed(build)
            elif now == "Running" and self.fault != "hang":
                self._push(build)

    def _failed(self, build: Json) -> None:
        why = {"phase": "Failed", "reason": "DockerBuildFailed", "message": "Dockerfile build strategy has failed."}
        self.client.status(build, why | {"logSnippet": "\n".join(self.log(build["metadata"]["name"])[-2:])})

    def _push(self, build: Json) -> None:
        name, tag = build["spec"]["output"]["to"]["name"].split(":")
        stream = self.client.look(IMAGE, "ImageStream", name, build["metadata"]["namespace"])
        if stream is None:
            self.client.status(build, {"phase": "New", "reason": "InvalidOutputReference"})
            return
        status = stream.get("status") or {}
        try:
            digest = self.make(build, status["dockerImageRepository"])
        except RuntimeError as error:
            print(f"builds: {build['metadata']['name']}: {error}", flush=True)
            self._failed(build)
            return
        tags = [each for each in status.get("tags") or [] if each["tag"] != tag]
        self.client.status(stream, {"tags": [*tags, {"tag": tag, "items": [{"image": digest, "generation": 1}]}]})
        self.client.status(build, {"phase": "Complete", "output": {"to": {"imageDigest": digest}}})


def serve(client: Client) -> None:
    """Load the reduced CRDs and wait until they are served."""
    for definition in definitions():
        client.apply(definition)
        spec = definition["spec"]
        until(partial(client.path, f"{spec['group']}/v1", spec["names"]["kind"]))
