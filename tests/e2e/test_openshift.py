"""docs/start/openshift.md from a bare cluster to a served model and back, for each release, in nodes that run pods.

OpenShift's APIs and operators are stand-ins (openshift.py); the build, the training, the gate and the served model are real.
"""

import json
import re
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml
from api_server import builds, catalog, training_api

from e2e import machine, scc
from e2e.commands import KEEP, NAMESPACE, REPO, Collection
from e2e.openshift import OpenShift, trainer

pytestmark = [pytest.mark.e2e, pytest.mark.tier, pytest.mark.apart, pytest.mark.timeout(5400)]
RELEASES = [name for name, one in catalog.RELEASES.items() if not one.get("prepared")]
OURS = yaml.safe_load((REPO / "inventory/openshift/platform.yml").read_text(encoding="utf-8"))["all"]["vars"]
PHASES = dict.fromkeys(RELEASES, "quick") | {OURS["trainlab_platform_release"]: "survival"}
"""That of the inventory trains what the README's line names; the others what takes the least."""
DEFAULTS = yaml.safe_load((REPO / "roles/image/defaults/main.yml").read_text(encoding="utf-8"))
SOMEBODY: list[dict[str, Any]] = [
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "somebody"}},
    {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "theirs", "namespace": "somebody"},
        "data": {"a": "b"},
    },
    {"apiVersion": builds.IMAGE, "kind": "ImageStream", "metadata": {"name": "theirs", "namespace": "somebody"}},
    {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "cluster-monitoring-config", "namespace": "openshift-monitoring"},
        "data": {"config.yaml": "enableUserWorkload: true\n"},
    },
]


@pytest.fixture(scope="module")
def openshift(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenShift]:
    """A bare OpenShift with two nodes, with what somebody else has in it."""
    if not KEEP:
        machine.cluster("down")
        machine.cluster("up")
        machine.cluster("operators", "local-path-provisioner", "training-operator", "kserve")
    one = OpenShift(tmp_path_factory.mktemp("openshift") / "stand-ins")
    try:
        yield one
    finally:
        one.close()
        if not KEEP:
            machine.cluster("down")


class Playbooks:
    """Those of the documentation with inventory/openshift as it is, for one release."""

    def __init__(self, openshift: OpenShift, release: str, folder: Path) -> None:
        """What they write goes into `folder`."""
        self.phase = PHASES[release]
        files = [f"values/{self.phase}.yaml", f"values/local/{self.phase}.yaml", "tests/e2e/openshift.yaml"]
        self._extra = {
            "trainlab_platform_release": release,
            "phase": self.phase,
            "trainlab_values": [str(REPO / file) for file in files],
            "report_dest": str(folder),
            "image_site_file": str(folder / "site.yaml"),
        }
        self._kubeconfig = openshift.kubeconfig

    def run(self, name: str, **more: Any) -> str:
        """Run a playbook, which has to succeed; return what it printed."""
        return Collection().play("openshift", name, {"KUBECONFIG": str(self._kubeconfig)}, self._extra | more)


@pytest.mark.parametrize("release", RELEASES)
def test_from_bare_to_served_and_back(openshift: OpenShift, release: str, tmp_path: Path) -> None:
    """platform.yml, site.yml, and their undo: nothing is left, and what somebody else has is as it was."""
    client, books = openshift.client, Playbooks(openshift, release, tmp_path)
    theirs = [client.apply(one, manager="somebody") for one in SOMEBODY]
    bare = client.objects()

    said = books.run("platform")
    assert "NO GPU" in said, "the nodes have none"
    group = "datasciencecluster.opendatahub.io"
    found = client.look(f"{group}/{'v1' if release == '2.25' else 'v2'}", "DataScienceCluster", "default-dsc")
    assert found and found["status"]["phase"] == "Ready"
    (pod,) = client.items("v1", "Pod", "cert-manager")
    assert pod["status"]["phase"] == "Running", "for which the playbook waits"

    trains = "jobset" in catalog.RELEASES[release]["needs"]
    with trainer() if trains else nullcontext():
        goes_and_comes(openshift, books, tmp_path, "TrainJob" if trains else "PyTorchJob")
    books.run("platform_teardown")
    assert client.objects() == bare
    kept = [
        client.look(one["apiVersion"], one["kind"], one["metadata"]["name"], one["metadata"].get("namespace", ""))
        for one in SOMEBODY
    ]
    assert [left_alone(one) for one in kept] == [left_alone(one) for one in theirs]


def goes_and_comes(openshift: OpenShift, books: Playbooks, folder: Path, kind: str) -> None:
    """site.yml, twice, and teardown.yml: the image is built there, a job of the kind trains on it, its model is served."""
    client = openshift.client
    started = openshift.builder.started
    books.run("site")
    assert openshift.builder.started == started + 1
    (config,) = client.items(builds.BUILD, "BuildConfig", NAMESPACE)
    base = {"name": "BASE", "value": DEFAULTS["image_base"]}
    assert base in config["spec"]["strategy"]["dockerStrategy"]["buildArgs"]
    image = yaml.safe_load((folder / "site.yaml").read_text(encoding="utf-8"))["site"]["images"]["trainer"]
    assert re.fullmatch(rf"{builds.REGISTRY}/{NAMESPACE}/trainlab-trainer@sha256:[0-9a-f]{{64}}", image)
    pods = client.items("v1", "Pod", NAMESPACE, labelSelector=f"app.kubernetes.io/instance={books.phase}")
    assert pods and {one["spec"]["containers"][0]["image"] for one in pods} == {image}, "built here, and run"
    ((api, good),) = ((api, good) for api, name, good, _more in training_api.JOBS if name == kind)
    (job,) = client.items(api, kind, NAMESPACE)
    assert [one["status"] for one in job["status"]["conditions"] if one["type"] == good] == ["True"]
    assert len({uids(one) for one in pods}) == 1, "of the namespace's block, not the image's"
    (run,) = folder.glob(f"{books.phase}-*")
    gate = json.loads((run / "gate.json").read_text(encoding="utf-8"))
    assert gate["promoted"] and gate["verdict"] == "better", gate["reasons"]
    (server,) = client.items("serving.kserve.io/v1beta1", "InferenceService", NAMESPACE)
    ready = [one for one in server["status"]["conditions"] if one["type"] == "Ready"]
    assert [one["status"] for one in ready] == ["True"]
    again = books.run("site")
    assert re.findall(r"changed=(\d+)", again) == ["0"], again[-4000:]

    books.run("teardown", teardown_volumes=True)


def uids(pod: dict[str, Any]) -> tuple[int, int]:
    """The one UID of a pod's containers, and the group of its volumes: OpenShift's."""
    every = [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]
    (uid,) = {one["securityContext"]["runAsUser"] for one in every}
    assert uid >= scc.FIRST and pod["metadata"]["annotations"][scc.VALIDATED] == scc.CONSTRAINT
    return uid, pod["spec"]["securityContext"]["fsGroup"]


def left_alone(one: dict[str, Any] | None) -> dict[str, Any]:
    """Return what only its owner may change: a registry gives every ImageStream its status."""
    assert one
    mine = {key: one["metadata"].get(key) for key in ("name", "uid", "generation", "labels", "annotations")}
    return {key: value for key, value in one.items() if key not in ("metadata", "status")} | {"mine": mine}
