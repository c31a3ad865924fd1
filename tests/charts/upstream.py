"""Files of the upstream projects, read from the Go module cache in the versions that cluster/*/go.mod pin."""

import functools
import json
import subprocess
import sys
from pathlib import Path

from rendering import ROOT

CRDS = {
    "PyTorchJob": ("training-operator", "manifests/base/crds/kubeflow.org_pytorchjobs.yaml"),
    "TrainJob": ("trainer", "manifests/base/crds/trainer.kubeflow.org_trainjobs.yaml"),
    "TrainingRuntime": ("trainer", "manifests/base/crds/trainer.kubeflow.org_trainingruntimes.yaml"),
    "InferenceService": ("kserve", "config/crd/full/serving.kserve.io_inferenceservices.yaml"),
    "ServingRuntime": ("kserve", "config/crd/full/serving.kserve.io_servingruntimes.yaml"),
}
OPENAPI = ("kubernetes", "api/openapi-spec/swagger.json")


@functools.cache
def from_module(component: str, path: str) -> str:
    """Return a file of the Go module that cluster/<component>/go.mod pins; the module is downloaded if it must be."""
    lab = str(ROOT / "cluster" / "lab")
    if lab not in sys.path:
        sys.path.insert(0, lab)
    import build
    import modules

    module, version = modules.module(component)
    command = [build.go(), "mod", "download", "-json", f"{module}@{version}"]
    folder = modules.folder(component)
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder, env=build.environment())
    return (Path(json.loads(done.stdout)["Dir"]) / path).read_text(encoding="utf-8")
