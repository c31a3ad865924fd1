"""`helm install NAME charts/trainjob -f PHASE` where the namespace knows its site: what is given wins, what is not comes from there."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from charts.lookups import Lookups
from charts.rendering import ROOT, VALUES, Document, documents, one

FILES = (str(VALUES / "quick.yaml"), str(VALUES / "local" / "quick.yaml"))
IMAGE = "registry.example.com/lab/trainer@sha256:" + "0" * 64
HELD = {
    "images": {"trainer": IMAGE, "pullPolicy": "Never"},
    "storage": {"models": {"storageClass": "fast", "size": "30Gi"}},
    "queue": "team",
    "env": {"NCCL_DEBUG": "INFO"},
    "keepVolumes": False,
}


@pytest.fixture
def lookups(tmp_path: Path) -> Iterator[Lookups]:
    """A cluster whose namespace has a site."""
    made = Lookups(tmp_path)
    made.objects.append(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "trainlab-site", "namespace": "lab"},
            "data": {"site.yaml": yaml.safe_dump({"site": HELD})},
        }
    )
    yield made
    made.close()


def rendered(lookups: Lookups, *sets: str) -> list[Document]:
    """Return what the chart makes of the phase and `sets`, without a site file."""
    return documents(lookups.template(FILES, *sets, site=Path(os.devnull)))


def refused(lookups: Lookups, *sets: str) -> str:
    """Return why it makes nothing of it."""
    done = lookups.template(FILES, *sets, site=Path(os.devnull))
    assert done.returncode != 0
    return done.stderr


def test_the_line_of_the_card_works(lookups: Lookups) -> None:
    things = rendered(lookups)
    job = one(things, "PyTorchJob")
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team"
    (container,) = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"]
    assert container["image"] == IMAGE and container["imagePullPolicy"] == "Never"
    assert {"name": "NCCL_DEBUG", "value": "INFO"} in container["env"]
    claims = {thing["metadata"]["name"]: thing for thing in things if thing["kind"] == "PersistentVolumeClaim"}
    assert claims["demo-models"]["spec"]["storageClassName"] == "fast"
    assert claims["demo-models"]["spec"]["resources"]["requests"]["storage"] == "30Gi"
    assert "helm.sh/resource-policy" not in claims["demo-models"]["metadata"]["annotations"]


def test_what_is_given_wins(lookups: Lookups) -> None:
    things = rendered(
        lookups, "site.images.trainer=mine/trainer:1", "site.queue=other", "site.storage.models.size=50Gi"
    )
    job = one(things, "PyTorchJob")
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "other"
    (container,) = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"]
    assert container["image"] == "mine/trainer:1" and container["imagePullPolicy"] == "Never"
    claims = {thing["metadata"]["name"]: thing["spec"] for thing in things if thing["kind"] == "PersistentVolumeClaim"}
    assert claims["demo-models"]["resources"]["requests"]["storage"] == "50Gi"


def test_a_given_default_wins_as_well(lookups: Lookups) -> None:
    things = rendered(lookups, "site.images.pullPolicy=IfNotPresent", "site.keepVolumes=true", "site.queue=")
    job = one(things, "PyTorchJob")
    assert "kueue.x-k8s.io/queue-name" not in job["metadata"]["labels"]
    (container,) = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"]
    assert container["image"] == IMAGE and container["imagePullPolicy"] == "IfNotPresent"
    claims = [thing for thing in things if thing["kind"] == "PersistentVolumeClaim"]
    assert all(claim["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep" for claim in claims)


def test_it_can_be_left_alone(lookups: Lookups) -> None:
    """As the playbooks do, which give the site themselves."""
    assert "site.images.trainer: missing" in refused(lookups, "site.fromNamespace=false")
    assert "and into this namespace" in refused(lookups, "site.fromNamespace=false")


def test_a_site_of_another_version_is_refused_by_its_key(lookups: Lookups) -> None:
    lookups.objects[0]["data"]["site.yaml"] = yaml.safe_dump({"site": HELD | {"imgaes": {}}})
    assert "site.imgaes" in refused(lookups)


def test_the_room_reads_it_as_well(lookups: Lookups) -> None:
    """With the one line of plain Helm; what is given wins, a default too, and it can be left alone."""

    def room(*sets: str) -> Document:
        given = ("release=quick", "run=quick-12345678", *sets)
        done = lookups.template((), *given, site=Path(os.devnull), chart=ROOT / "charts" / "room")
        spec: Document = one(documents(done), "Deployment")["spec"]["template"]["spec"]["containers"][0]
        return spec

    assert (room()["image"], room()["imagePullPolicy"]) == (IMAGE, "Never")
    given = room("site.images.trainer=mine/trainer:1", "site.images.pullPolicy=IfNotPresent")
    assert (given["image"], given["imagePullPolicy"]) == ("mine/trainer:1", "IfNotPresent")
    with pytest.raises(AssertionError, match=r"site\.images\.trainer: empty"):
        room("site.fromNamespace=false")
