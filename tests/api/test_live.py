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
    run = job["metadata"]["labels"]["trainlab.dev/run"]
    assert f"Run {run}: pytorchjob with 4 pods" in out
    assert f"This revision trains run {run}, from its last checkpoint if" in out
    promote = helm.one("Job", "batch/v1")

    # nothing changes: neither does what Kueue does to a job
    change = {"spec": {"runPolicy": {"suspend": True}}}
    helm.client.merge(job | {"apiVersion": V1, "kind": "PyTorchJob"}, change)
    out = done(helm.upgrade())
    assert f"This revision trains nothing new: the same run, {run}, and its pods as they are." in out
    after = helm.one("PyTorchJob", V1)
    assert after["metadata"]["uid"] == job["metadata"]["uid"]
    assert after["spec"] == job["spec"] | {"runPolicy": job["spec"]["runPolicy"] | {"suspend": True}}
    assert helm.one("Job", "batch/v1")["metadata"]["uid"] == promote["metadata"]["uid"]

    # another site: the same run, in another job, as an admitted one cannot change
    site = ("--set", IMAGE, "--set", "site.queue=other")
    assert f"trains nothing new: the same run, {run}. Its pods start once more" in done(helm.upgrade(*site))
    after = helm.one("PyTorchJob", V1)
    assert after["metadata"]["uid"] != job["metadata"]["uid"]
    assert after["metadata"]["labels"]["trainlab.dev/run"] == run

    # another phase: another run, as the notes of a dry run tell beforehand; the volumes are the same
    claims = {item["metadata"]["uid"] for item in helm.client.items("v1", "PersistentVolumeClaim", helm.namespace)}
    told = done(helm.upgrade("--set", IMAGE, "--set", "phase.seed=7", "--dry-run=server"))
    assert f"which is not the one before, {run}, because of\n  phase.seed: 42 -> 7\nWhat is served stays" in told
    assert helm.one("PyTorchJob", V1)["metadata"]["uid"] == after["metadata"]["uid"]
    done(helm.upgrade("--set", IMAGE, "--set", "phase.seed=7"))
    assert helm.one("PyTorchJob", V1)["metadata"]["labels"]["trainlab.dev/run"] != run
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
    for kind, api in (*JOBS, ("Role", "rbac.authorization.k8s.io/v1")):
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
    before = helm.one("TrainJob", api)
    done(helm.upgrade(*trainjob, "--set", "phase.serve.max_tokens=9", release="tj"))
    assert helm.one("TrainJob", api)["metadata"]["uid"] == before["metadata"]["uid"]
    done(helm.upgrade(*trainjob, "--set", IMAGE, release="tj"))
    assert helm.names("TrainJob", api) == helm.names("TrainingRuntime", api) != [before["metadata"]["name"]]
    done(helm.run("rollback", "tj", "1"))
    assert helm.names("TrainJob", api) == helm.names("TrainingRuntime", api) == [before["metadata"]["name"]]
    done(helm.run("uninstall", "tj"))
    assert helm.names("TrainJob", api) == []


def test_claims_that_cannot_become_so_are_refused(helm: Releases) -> None:
    """In our words, with key, value and remedy; the API server's name the object, and Helm is halfway by then."""
    done(helm.upgrade("--set", "site.storage.runs.size=30Gi", release="grow"))
    claim = helm.client.look("v1", "PersistentVolumeClaim", "grow-runs", helm.namespace)
    assert claim
    runs = "site.storage.runs"
    for sets, words in (
        (
            [f"{runs}.size=20Gi"],
            f"{runs}.size: 20Gi, but the claim grow-runs has 30Gi and no claim can shrink; set 30Gi",
        ),
        (
            [f"{runs}.size=40Gi"],
            f"{runs}.size: 40Gi, but the claim grow-runs has 30Gi and is not bound, and only a bound",
        ),
        (
            ["phase.needs.runs=40Gi"],
            f"phase.needs.runs: 40Gi, but the claim grow-runs has 30Gi; set {runs}.size to 40Gi",
        ),
        (
            [f"{runs}.accessMode=ReadWriteOnce", "phase.resources.nodes=1"],
            f"{runs}.accessMode: ReadWriteOnce, but the claim grow-runs exists with",
        ),
        (
            [f"{runs}.storageClass=fast", "site.preflight=false"],
            f"{runs}.storageClass: fast, but the claim grow-runs was made with the default; set ''",
        ),
    ):
        assert words in refused(helm.upgrade(*(word for one in sets for word in ("--set", one)), release="grow"))
    done(helm.upgrade(release="grow"))  # a phase that needs less takes what is there
    held = helm.client.look("v1", "PersistentVolumeClaim", "grow-runs", helm.namespace)
    assert held and held["spec"] == claim["spec"]
    helm.client.status(claim, {"phase": "Bound", "capacity": {"storage": "30Gi"}})
    text = refused(helm.upgrade("--set", f"{runs}.size=40Gi", "--set", "site.preflight=false", release="grow"))
    assert "can be resized" in text, "the API server has no StorageClass to ask"
    done(helm.run("rollback", "grow", "1"))
    done(helm.run("uninstall", "grow"))


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
    assert not [name for name in helm.names("ConfigMap", "v1") if name.startswith("bad")]


def test_owner_of_a_namespace_only(helm: Releases) -> None:
    for thing in owner(helm.namespace):
        helm.client.apply(thing)
    text = refused(helm.upgrade("--set", "phase.resources.gpus_per_node=1", release="mine", nobody=True))
    assert "where you may not, use --set site.preflight=false" in text
    assert "forbidden" in text
    done(helm.upgrade("--set", "site.preflight=false", release="mine", nobody=True))
    done(helm.run("uninstall", "mine", nobody=True))
