"""The life of a release on a real API server, with Helm 3 and 4: install, other site, other phase, uninstall, refusals."""

import pytest
from api_server import printed
from api_server.releases import Releases, done, owner, refused
from api_server.server import Server
from charts.rendering import HELMS

V1 = "kubeflow.org/v1"
JOBS = (("PyTorchJob", V1), ("Job", "batch/v1"))
IMAGE = "site.images.trainer=other/image:2"


@pytest.fixture(scope="module")
def server(training: Server) -> Server:
    """Not the bare OpenShift."""
    return training


@pytest.fixture(params=HELMS)
def helm(server: Server, request: pytest.FixtureRequest) -> Releases:
    """A namespace of its own for each Helm program."""
    return Releases(server, request.param)


def test_life_of_a_release(helm: Releases) -> None:
    out = done(helm.upgrade())
    job = helm.one("PyTorchJob", V1)
    run = job["metadata"]["name"]
    assert f"Run {run}: pytorchjob with 4 pods" in out
    promote = helm.one("Job", "batch/v1")
    runtime = helm.one("ServingRuntime", "serving.kserve.io/v1alpha1")

    # another site: the server changes, what is already running does not
    change = {"spec": {"runPolicy": {"suspend": True}}}  # as Kueue does it
    helm.client.merge(job | {"apiVersion": V1, "kind": "PyTorchJob"}, change)
    for _ in range(2):
        done(helm.upgrade("--set", IMAGE, "--set", "site.queue=other"))
        after = helm.one("PyTorchJob", V1)
        assert after["metadata"]["uid"] == job["metadata"]["uid"]
        assert after["spec"] == job["spec"] | {"runPolicy": job["spec"]["runPolicy"] | {"suspend": True}}
        assert helm.one("Job", "batch/v1")["spec"] == promote["spec"]
    served = helm.one("ServingRuntime", "serving.kserve.io/v1alpha1")
    assert served["metadata"]["uid"] == runtime["metadata"]["uid"]
    assert served["spec"]["containers"][0]["image"] == "other/image:2"

    # another phase: another run; the volumes are the same
    claims = {item["metadata"]["uid"] for item in helm.client.items("v1", "PersistentVolumeClaim", helm.namespace)}
    done(helm.upgrade("--set", IMAGE, "--set", "phase.seed=7"))
    assert helm.one("PyTorchJob", V1)["metadata"]["name"] != run
    assert helm.names("ServingRuntime", "serving.kserve.io/v1alpha1") == helm.names("PyTorchJob", V1)
    assert {
        item["metadata"]["uid"] for item in helm.client.items("v1", "PersistentVolumeClaim", helm.namespace)
    } == claims

    # a run is repeated with the command in the notes, with the current site
    out = done(helm.upgrade("--set", IMAGE, "--set", "phase.seed=7"))
    uids = {helm.one(*each)["metadata"]["uid"] for each in JOBS}
    line = out.split("To repeat a run")[1].splitlines()[1].strip()
    printed.run(line, helm.server.folder, helm.server.kubeconfig, helm.helm_name)
    assert not uids & {helm.one(*each)["metadata"]["uid"] for each in JOBS}
    pod = helm.one("PyTorchJob", V1)["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
    assert pod["containers"][0]["image"] == "other/image:2"

    # gone except for the volumes, which a later release reuses
    done(helm.run("uninstall", "demo"))
    for kind, api in (("PyTorchJob", V1), ("Job", "batch/v1"), ("Role", "rbac.authorization.k8s.io/v1")):
        assert helm.names(kind, api) == []
    assert helm.names("PersistentVolumeClaim", "v1") == ["demo-models", "demo-runs"]
    done(helm.upgrade())
    assert {
        item["metadata"]["uid"] for item in helm.client.items("v1", "PersistentVolumeClaim", helm.namespace)
    } == claims
    done(helm.run("uninstall", "demo"))


def test_life_of_a_trainjob(helm: Releases) -> None:
    api = "trainer.kubeflow.org/v1alpha1"
    trainjob = ("--set", "site.trainingApi=trainjob")
    done(helm.upgrade(*trainjob, release="tj"))
    before = [helm.one("TrainJob", api)["spec"], helm.one("TrainingRuntime", api)["spec"]]
    done(helm.upgrade(*trainjob, "--set", IMAGE, release="tj"))
    assert [helm.one("TrainJob", api)["spec"], helm.one("TrainingRuntime", api)["spec"]] == before
    done(helm.run("uninstall", "tj"))
    assert helm.names("TrainJob", api) == []


def test_everything_is_refused_before_an_object_is_made(helm: Releases) -> None:
    gpu = ("--set", "phase.resources.gpus_per_node=5", "--set", "phase.resources.processes_per_node=5")
    text = refused(helm.upgrade(*gpu, release="bad"))
    assert (
        "phase.resources.gpus_per_node: 5 asked, but no node of the cluster offers more than 4 nvidia.com/gpu" in text
    )
    text = refused(helm.upgrade("--set", "site.storage.runs.storageClass=rwx", release="bad"))
    assert "site.storage.runs.storageClass: rwx does not exist in the cluster; it has: " in text
    helm.client.apply(
        {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "a"}, "provisioner": "x"}
    )
    text = refused(helm.upgrade("--set", "site.storage.runs.storageClass=rwx", release="bad"))
    assert "site.storage.runs.storageClass: rwx does not exist in the cluster; it has: a" in text
    claims = helm.names("PersistentVolumeClaim", "v1")
    assert not [name for name in claims if name.startswith("bad")]
    assert helm.names("ConfigMap", "v1") == []


def test_owner_of_a_namespace_only(helm: Releases) -> None:
    for thing in owner(helm.namespace):
        helm.client.apply(thing)
    text = refused(helm.upgrade("--set", "phase.resources.gpus_per_node=1", release="mine", nobody=True))
    assert "where you may not, use --set site.preflight=false" in text
    assert "forbidden" in text
    done(helm.upgrade("--set", "site.preflight=false", release="mine", nobody=True))
    done(helm.run("uninstall", "mine", nobody=True))
