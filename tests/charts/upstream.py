"""Files of the upstream projects, read from the Go module cache in the versions that cluster/*/go.mod pin."""

import functools
import json
import subprocess
from pathlib import Path

from embedded_cluster.builds import build, modules, toolchain

CRDS = {
    "PyTorchJob": ("training-operator", "manifests/base/crds/kubeflow.org_pytorchjobs.yaml"),
    "TrainJob": ("trainer", "manifests/base/crds/trainer.kubeflow.org_trainjobs.yaml"),
    "TrainingRuntime": ("trainer", "manifests/base/crds/trainer.kubeflow.org_trainingruntimes.yaml"),
    "InferenceService": ("kserve", "config/crd/full/serving.kserve.io_inferenceservices.yaml"),
    "ServingRuntime": ("kserve", "config/crd/full/serving.kserve.io_servingruntimes.yaml"),
}
# The newest that a release of OpenShift AI, prepared ones included, may bring; checksums as in a go.sum. KServe v0.17.1, which
# 3.4 contains, is not on the module proxy.
NEWER = {
    "trainer": ("github.com/kubeflow/trainer/v2@v2.3.0", "h1:Je+e7zvTLzB4qW09J1fB7pZrqvPtWuGng2NqdN5p5QU="),
    "kserve": ("github.com/kserve/kserve@v0.17.0", "h1:IaynaBFzVQz1Xyrw5n3ncqzd5Y7L1RkO+YWvVwwtMQE="),
    "kueue": ("sigs.k8s.io/kueue@v0.19.2", "h1:mPNzr37u0nwI7ikST5QQl5gg6EgtYOAvC9ZbTgywdN8="),
}
QUEUES = {
    kind: ("kueue", f"config/components/crd/bases/kueue.x-k8s.io_{kind.lower()}s.yaml")
    for kind in ("ClusterQueue", "LocalQueue", "ResourceFlavor")
}


@functools.cache
def from_newer(component: str, path: str) -> str:
    """Return a file of the newest version of a component (NEWER); without an entry there, of the pinned version."""
    if component not in NEWER:
        return from_module(component, path)
    return of_version(*NEWER[component], path)


def of_version(name: str, checksum: str, path: str) -> str:
    """Return a file of a Go module, `name` with its version; it is downloaded if necessary, and has to have this checksum."""
    found = _download(name, None)
    assert found["Sum"] == checksum, f"{name} has checksum {found['Sum']}"
    return (Path(found["Dir"]) / path).read_text(encoding="utf-8")


@functools.cache
def from_module(component: str, path: str) -> str:
    """Return a file of the Go module that cluster/<component>/go.mod pins; the module is downloaded if necessary."""
    module, version = modules.module(component)
    found = _download(f"{module}@{version}", modules.folder(component))
    return (Path(found["Dir"]) / path).read_text(encoding="utf-8")


def _download(name: str, folder: Path | None) -> dict[str, str]:
    command = [toolchain.go(), "mod", "download", "-json", name]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=folder or "/", env=build.environment()
    )
    result: dict[str, str] = json.loads(done.stdout)
    return result
