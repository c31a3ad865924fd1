"""The life of a release on a real API server, by Helm 3 and Helm 4: install, other site, other phase, uninstall, refusals."""

import pytest
from live import Lab, done, owner, refused
from rendering import HELMS
from server import Server

V1 = "kubeflow.org/v1"
IMAGE = "site.images.trainer=other/image:2"


@pytest.fixture(scope="module")
def server(training: Server) -> Server:
    """Not the bare OpenShift."""
    return training


@pytest.fixture(params=HELMS)
def lab(server: Server, request: pytest.FixtureRequest) -> Lab:
    """A namespace of its own for each Helm program."""
    return Lab(server, request.param)


def test_life_of_a_release(lab: Lab) -> None:
    out = done(lab.upgrade())
    job = lab.one("PyTorchJob", V1)
    run = job["metadata"]["name"]
    assert f"Run {run}: pytorchjob with 4 pods" in out
    promote = lab.one("Job", "batch/v1")
    runtime = lab.one("ServingRuntime", "serving.kserve.io/v1alpha1")

    # another site: the server changes, what runs already does not
    change = {"spec": {"runPolicy": {"suspend": True}}}  # as Kueue does it
    lab.client.merge(job | {"apiVersion": V1, "kind": "PyTorchJob"}, change)
    for _ in range(2):
        done(lab.upgrade("--set", IMAGE, "--set", "site.queue=other"))
        after = lab.one("PyTorchJob", V1)
        assert after["metadata"]["uid"] == job["metadata"]["uid"]
        assert after["spec"] == job["spec"] | {"runPolicy": job["spec"]["runPolicy"] | {"suspend": True}}
        assert lab.one("Job", "batch/v1")["spec"] == promote["spec"]
    served = lab.one("ServingRuntime", "serving.kserve.io/v1alpha1")
    assert served["metadata"]["uid"] == runtime["metadata"]["uid"]
    assert served["spec"]["containers"][0]["image"] == "other/image:2"

    # another phase: another run; the volumes are the same
    claims = {item["metadata"]["uid"] for item in lab.client.items("v1", "PersistentVolumeClaim", lab.namespace)}
    done(lab.upgrade("--set", IMAGE, "--set", "phase.seed=7"))
    assert lab.one("PyTorchJob", V1)["metadata"]["name"] != run
    assert lab.names("ServingRuntime", "serving.kserve.io/v1alpha1") == lab.names("PyTorchJob", V1)
    assert {
        item["metadata"]["uid"] for item in lab.client.items("v1", "PersistentVolumeClaim", lab.namespace)
    } == claims

    # a job that was deleted is made anew by an upgrade, with the site of now
    lab.client.delete(lab.one("PyTorchJob", V1))
    done(lab.upgrade("--set", IMAGE, "--set", "phase.seed=7"))
    pod = lab.one("PyTorchJob", V1)["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
    assert pod["containers"][0]["image"] == "other/image:2"

    # gone but for the volumes, which a later release takes up again
    done(lab.helm("uninstall", "demo"))
    for kind, api in (("PyTorchJob", V1), ("Job", "batch/v1"), ("Role", "rbac.authorization.k8s.io/v1")):
        assert lab.names(kind, api) == []
    assert lab.names("PersistentVolumeClaim", "v1") == ["demo-models", "demo-runs"]
    done(lab.upgrade())
    assert {
        item["metadata"]["uid"] for item in lab.client.items("v1", "PersistentVolumeClaim", lab.namespace)
    } == claims
    done(lab.helm("uninstall", "demo"))


def test_life_of_a_trainjob(lab: Lab) -> None:
    api = "trainer.kubeflow.org/v1alpha1"
    trainjob = ("--set", "site.trainingApi=trainjob")
    done(lab.upgrade(*trainjob, release="tj"))
    before = [lab.one("TrainJob", api)["spec"], lab.one("TrainingRuntime", api)["spec"]]
    done(lab.upgrade(*trainjob, "--set", IMAGE, release="tj"))
    assert [lab.one("TrainJob", api)["spec"], lab.one("TrainingRuntime", api)["spec"]] == before
    done(lab.helm("uninstall", "tj"))
    assert lab.names("TrainJob", api) == []


def test_everything_is_refused_before_an_object_is_made(lab: Lab) -> None:
    gpu = ("--set", "phase.resources.gpus_per_node=5", "--set", "phase.resources.processes_per_node=5")
    text = refused(lab.upgrade(*gpu, release="bad"))
    assert (
        "phase.resources.gpus_per_node: 5 asked, but no node of the cluster offers more than 4 nvidia.com/gpu" in text
    )
    text = refused(lab.upgrade("--set", "site.storage.runs.storageClass=rwx", release="bad"))
    assert "site.storage.runs.storageClass: rwx does not exist in the cluster; it has: " in text
    lab.client.apply(
        {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "a"}, "provisioner": "x"}
    )
    text = refused(lab.upgrade("--set", "site.storage.runs.storageClass=rwx", release="bad"))
    assert "site.storage.runs.storageClass: rwx does not exist in the cluster; it has: a" in text
    claims = lab.names("PersistentVolumeClaim", "v1")
    assert not [name for name in claims if name.startswith("bad")]
    assert lab.names("ConfigMap", "v1") == []


def test_owner_of_a_namespace_only(lab: Lab) -> None:
    for thing in owner(lab.namespace):
        lab.client.apply(thing)
    text = refused(lab.upgrade("--set", "phase.resources.gpus_per_node=1", release="mine", nobody=True))
    assert "where you may not, use --set site.preflight=false" in text
    assert "forbidden" in text
    done(lab.upgrade("--set", "site.preflight=false", release="mine", nobody=True))
    done(lab.helm("uninstall", "mine", nobody=True))
