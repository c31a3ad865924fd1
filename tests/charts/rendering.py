"""Renders the chart with the real Helm binaries; used by all tests of this folder.

The binaries come from `make binaries`, built from cluster/helm and cluster/helm4.
"""

import functools
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from embedded_cluster.builds import build

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "trainjob"
VALUES = ROOT / "values"
HELMS = ("helm", "helm4")
APIS = ("pytorchjob", "trainjob")
REAL_CLUSTER = ("v1/Pod", "kubeflow.org/v1/PyTorchJob", "serving.kserve.io/v1beta1")
"""What a cluster with the training operator and KServe serves; `v1/Pod` is how the chart recognizes a real one."""

SITE = Path(__file__).with_name("site.yaml")
IMAGE = yaml.safe_load(SITE.read_text(encoding="utf-8"))["site"]["images"]["trainer"]

KUBERNETES = (
    yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))["kubeVersion"].strip(">=").removesuffix("-0")
)
"""The oldest that the chart takes. Without a cluster `helm template` assumes one, and a Helm 3 that is not built by its own
Makefile a 1.20."""

Document = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One values file at one scale with one training API."""

    phase: str
    scale: str
    api: str
    step: str = "train"

    @property
    def name(self) -> str:
        """Name in the golden file."""
        return f"{self.phase}-{self.scale}-{self.api if self.step == 'train' else self.step}"

    @property
    def files(self) -> tuple[str, ...]:
        """The values files, paths as given to Helm."""
        full = str(VALUES / f"{self.phase}.yaml")
        return (full,) if self.scale == "full" else (full, str(VALUES / "local" / f"{self.phase}.yaml"))


PREPARED = Case("staged-pretrain", "full", "pytorchjob", "prepare")
"""The step before the training, of which one phase at one scale is like any other."""


def cases() -> list[Case]:
    """Return every values file at every scale with both training APIs."""
    result: list[Case] = []
    for path in sorted(VALUES.glob("*.yaml")):
        scales = ["full", "local"] if (VALUES / "local" / path.name).exists() else ["full"]
        result += [Case(path.stem, scale, api) for scale in scales for api in APIS]
    return result


def case(name: str) -> Case:
    """Return the case of this name."""
    (result,) = [each for each in (*cases(), PREPARED) if each.name == name]
    return result


@functools.cache
def binary(name: str) -> Path:
    """Return the Helm binary."""
    given = os.environ.get("TRAINLAB_BIN")
    if given:
        path = next(iter(sorted(Path(given).glob(f"{name}-*"))), Path(given) / name)
    else:
        path = build.binary(name)
    if not path.exists():
        pytest.fail(f"{path} does not exist: run `make binaries`")
    return path


def environment(kubeconfig: str | Path = os.devnull) -> dict[str, str]:
    """Return one without any configuration of the user; at Go's default of 100, collecting garbage is a third of a rendering's time."""
    return {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "KUBECONFIG": str(kubeconfig), "GOGC": "800"}


@functools.cache
def helm(*arguments: str, name: str = "helm") -> subprocess.CompletedProcess[str]:
    """Run Helm without any cluster or configuration of the user; the result is cached."""
    if arguments[0] == "template":
        arguments = (*arguments, "--kube-version", KUBERNETES)
    command = [str(binary(name)), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment())


def template(
    files: tuple[str, ...],
    *sets: str,
    release: str = "demo",
    name: str = "helm",
    served: tuple[str, ...] = (),
) -> subprocess.CompletedProcess[str]:
    """Run `helm template` in namespace `lab` with an image; `served` are the APIs of a simulated cluster."""
    arguments = ["template", release, str(CHART), "--namespace", "lab", "-f", str(SITE)]
    for file in files:
        arguments += ["-f", file]
    for one in sets:
        arguments += ["--set-json" if "=[" in one or "={" in one else "--set", one]
    for api in served:
        arguments += ["--api-versions", api]
    return helm(*arguments, name=name)


def documents(done: subprocess.CompletedProcess[str]) -> list[Document]:
    """Return the objects of a rendering that must succeed, sorted by kind and name; copy before changing one."""
    assert done.returncode == 0, done.stderr
    return list(_parsed(done.stdout))


@functools.cache
def _parsed(text: str) -> list[Document]:
    """Read a rendering; many tests need the same one, and reading takes as long as rendering."""
    loaded = [one for one in yaml.load_all(text, yaml.CSafeLoader) if one]
    found = [item for one in loaded for item in (one["items"] if one["kind"] == "List" else [one])]
    return sorted(found, key=lambda one: (one["kind"], one["metadata"]["name"]))


def rendered(case: Case, name: str = "helm") -> list[Document]:
    """Return the objects of one case."""
    sets = (f"site.trainingApi={case.api}", *([] if case.step == "train" else [f"site.step={case.step}"]))
    return documents(template(case.files, *sets, release=case.phase, name=name))


def with_service(objects: list[Document]) -> list[Document]:
    """Return the objects and what waits in a ConfigMap for the promotion: the run's server, its phase, the InferenceService."""
    return objects + served(objects)


def served(objects: list[Document]) -> list[Document]:
    """Return what the promotion applies."""
    return [
        yaml.load(text, yaml.CSafeLoader)
        for one in objects
        if one["kind"] == "ConfigMap"
        for file, text in one.get("data", {}).items()
        if file.endswith(".yaml")
    ]


def run_of(objects: list[Document]) -> str:
    """Return the run of a rendering."""
    (run,) = {item["metadata"]["labels"].get("trainlab.dev/run") for item in objects} - {None}
    return str(run)


def one(objects: list[Document], kind: str) -> Document:
    """Return the only object of a kind."""
    result = [item for item in objects if item["kind"] == kind]
    assert len(result) == 1, f"{len(result)} objects of kind {kind}"
    return result[0]


def pods(objects: list[Document]) -> list[tuple[str, Document, Document]]:
    """Return (where, labels, pod spec) of each pod that results from the objects."""
    result: list[tuple[str, Document, Document]] = []
    for item in objects:
        spec, kind = item.get("spec", {}), item["kind"]
        if kind == "Pod":
            result.append((kind, item["metadata"]["labels"], spec))
        elif kind == "Job":
            result.append((kind, spec["template"]["metadata"]["labels"], spec["template"]["spec"]))
        elif kind == "PyTorchJob":
            for role, replica in spec["pytorchReplicaSpecs"].items():
                template_ = replica["template"]
                result.append((f"{kind} {role}", template_["metadata"]["labels"], template_["spec"]))
        elif kind == "TrainingRuntime":
            for job in spec["template"]["spec"]["replicatedJobs"]:
                template_ = job["template"]["spec"]["template"]
                result.append((f"{kind} {job['name']}", template_["metadata"]["labels"], template_["spec"]))
    return result
