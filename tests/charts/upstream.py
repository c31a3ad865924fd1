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
QUEUES = {
    kind: ("kueue", f"config/components/crd/bases/kueue.x-k8s.io_{kind.lower()}s.yaml")
    for kind in ("ClusterQueue", "LocalQueue", "ResourceFlavor")
}


def from_older(component: str, path: str) -> str:
    """Return a file of a component in the version of the older leg (cluster/older); without one there, of the pinned version."""
    older = f"{modules.OLDER}/{component}"
    return from_module(older if modules.folder(older).is_dir() else component, path)


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
