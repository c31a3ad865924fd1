"""The life of a release on a real API server, with Helm 3 and 4: install, other site, other phase, uninstall, refusals."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from api_server import printed
from api_server.promotions import KINDS
from api_server.registry import Registry
from api_server.releases import Releases, done, editor, refused
from api_server.server import Server
from api_server.training_api import free_claims
from charts.packages import packaged, served
from charts.rendering import APIS, CHART, HELMS, SITE, VALUES

pytestmark = pytest.mark.usefixtures("training")
V1 = "kubeflow.org/v1"
JOBS = (("PyTorchJob", V1), ("Job", "batch/v1"))
IMAGE = "site.images.trainer=other/image:2"


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
    told = done(helm.upgrade("--set", IMAGE, "--set", "phase.seed=7", "--dry-run=client"))
    assert "This revision trains what cannot be told here" in told and "--dry-run=server" in told
    told = done(helm.upgrade("--set", IMAGE, "--set", "phase.seed=7", "--dry-run=server"))
    assert f"which is not the one before, {run}, because of\n  phase.seed: 42 -> 7\nWhat is served stays" in told
    assert helm.one("PyTorchJob", V1)["metadata"]["uid"] == after["metadata"]["uid"]
    done(helm.upgrade("--set", IMAGE, "--set", "phase.seed=7"))
    assert helm.one("PyTorchJob", V1)["metadata"]["labels"]["trainlab.dev/run"] != run
    assert {
        item["metadata"]["uid"] for item in helm.client.items("v1", "PersistentVolumeClaim", helm.namespace)
    } == claims

    # a run is repeated with the command in the notes, with the current site, by who has no checkout, too
    out = done(helm.upgrade("--set", IMAGE, "--set", "phase.seed=7"))
    assert "charts/trainjob" not in out
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
            [f"{runs}.storageClass=fast"],
            f"{runs}.storageClass: fast, but the claim grow-runs was made with the default; set ''",
        ),
    ):
        assert words in refused(helm.upgrade(*(word for one in sets for word in ("--set", one)), release="grow"))
    done(helm.upgrade(release="grow"))  # a phase that needs less takes what is there
    held = helm.client.look("v1", "PersistentVolumeClaim", "grow-runs", helm.namespace)
    assert held and held["spec"] == claim["spec"]
    helm.client.status(claim, {"phase": "Bound", "capacity": {"storage": "30Gi"}})
    text = refused(helm.upgrade("--set", f"{runs}.size=40Gi", release="grow"))
    assert "can be resized" in text, "the API server has no StorageClass to ask"
    done(helm.run("rollback", "grow", "1"))
    done(helm.run("uninstall", "grow"))


def test_everything_is_refused_before_an_object_is_made(helm: Releases) -> None:
    def says(words: str, *sets: str) -> None:
        given = (word for one in ("site.preflight=true", *sets) for word in ("--set", one))
        assert words in refused(helm.upgrade(*given, release="bad"))

    runs, local = "site.storage.runs", {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass"}
    says("site.storage.models.storageClass: empty, and the cluster has no default StorageClass")
    default = {"name": "a", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}
    classes = [
        local | {"metadata": default, "provisioner": "rancher.io/local-path"},
        local | {"metadata": {"name": "local-path-rwx"}, "provisioner": "rancher.io/local-path"},
    ]
    for one in classes:
        helm.client.apply(one)
    text = f"{runs}.storageClass: there is no StorageClass rwx; the claim would stay Pending, and every pod with it; set {runs}"
    says(f"{text}.storageClass to one of: a, local-path-rwx", *shared("models"), f"{runs}.storageClass=rwx")
    says(f"{runs}: StorageClass a (rancher.io/local-path) does not offer ReadWriteMany", *shared("models"))
    gpu = ("phase.resources.gpus_per_node=5", "phase.resources.processes_per_node=5")
    says(
        "phase.resources.gpus_per_node: 5 asked, but no node of the cluster offers more than 4 nvidia.com/gpu",
        *gpu,
        *shared("models"),
        *shared("runs"),
    )
    for one in classes:
        helm.client.delete(one)
    claims = helm.names("PersistentVolumeClaim", "v1")
    assert not [name for name in claims if name.startswith("bad")]
    assert not [name for name in helm.names("ConfigMap", "v1") if name.startswith("bad")]


def test_installed_from_a_repository(helm: Releases, url: str) -> None:
    """By who has nothing but the address: the chart's own phases, and messages without a path of the checkout."""
    text = refused(
        helm.run(
            "install", "web", "trainjob", "--repo", url, "-f", str(SITE), *FIVE_GPUS, "--set", "site.preflight=true"
        )
    )
    says = text.partition("refused.yaml")[2]  # after the position that Helm prints
    assert "or set preset.scale to local, which needs no GPU" in says and "values/" not in says
    local = ("--set", "preset.phase=survival,preset.scale=local")
    done(helm.run("install", "web", "trainjob", "--repo", url, "-f", str(SITE), *local))
    assert helm.one("PyTorchJob", V1)["metadata"]["labels"]["app.kubernetes.io/instance"] == "web"
    done(helm.run("uninstall", "web"))


@pytest.mark.parametrize("api", APIS)
def test_applied_twice_is_the_same(server: Server, api: str) -> None:
    """`helm template` without a cluster, then server-side apply, as GitOps does it: the second time changes no object."""
    helm = Releases(server, "helm", f"gitops-{api}")
    files = ("-f", str(SITE), "-f", str(VALUES / "survival.yaml"), "-f", str(VALUES / "local" / "survival.yaml"))
    sets = ("--set", f"site.platform=kubernetes,site.trainingApi={api},site.queue=q")
    text = done(helm.run("template", "demo", str(CHART), "--no-hooks", *files, *sets, nobody=True))
    manifest = server.folder / "manifest.yaml"
    manifest.write_text(text, encoding="utf-8")

    def applied() -> dict[str, str]:
        kubectl(f"apply --server-side -f {manifest}", helm)
        found = [one for kind, version in KINDS for one in helm.client.items(version, kind, helm.namespace)]
        return {one["metadata"]["uid"]: one["metadata"]["resourceVersion"] for one in found}

    first = applied()
    assert len(first) >= 8 and text.count("fsGroup: 1001") >= 2
    assert applied() == first
    kubectl(f"delete --wait=false -f {manifest}", helm)
    free_claims(helm.client)


def kubectl(arguments: str, helm: Releases) -> None:
    """Run kubectl in the namespace."""
    printed.run(f"kubectl -n {helm.namespace} {arguments}", helm.server.folder, helm.server.kubeconfig)


FIVE_GPUS = (
    *("--set", "preset.phase=survival,phase.resources.gpus_per_node=5,phase.resources.processes_per_node=5"),
    *("--set", "site.storage.models.existing=a,site.storage.runs.existing=b"),
)
"""More GPUs than a node of this API server has; the claims keep StorageClasses out of it."""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a repository with the package."""
    with served(packaged(tmp_path_factory.mktemp("tree"))) as address:
        yield address


def shared(volume: str) -> tuple[str, ...]:
    """The class of shared storage for a volume."""
    return (f"site.storage.{volume}.storageClass=local-path-rwx",)


@pytest.fixture
def edits(helm: Releases) -> Iterator[Releases]:
    """The user `nobody` may edit in the namespace."""
    given = editor(helm.namespace)
    for thing in given:
        helm.client.apply(thing)
    yield helm
    for thing in given:
        helm.client.delete(thing)


def test_who_may_only_edit_in_the_namespace_installs(edits: Releases) -> None:
    """No key is needed for it but the one that names who promotes: only who may write Roles gets one made."""
    text = refused(edits.upgrade(release="mine", nobody=True))
    assert "name a ServiceAccount that may promote with site.serviceAccount" in text and "forbidden" in text
    prepared = ("--set", "site.serviceAccount=prepared")
    text = refused(edits.upgrade(*prepared, "--set", "site.preflight=true", release="mine", nobody=True))
    assert "where you may not, use --set site.preflight=false" in text and "forbidden" in text
    done(edits.upgrade(*prepared, release="mine", nobody=True))
    done(edits.run("uninstall", "mine", nobody=True))


def test_what_quotas_and_limits_refuse_is_told_to_who_may_only_edit(edits: Releases) -> None:
    """In sentences that playbooks/verify.yml turns into rows."""
    job = (
        "phase.resources.cpu=2000m",
        "phase.resources.nodes=4",
        "phase.resources.memory=3Gi",
        "phase.serve.memory=14Gi",
    )
    sets = [word for one in ("site.serviceAccount=prepared", *job) for word in ("--set", one)]
    given = {"apiVersion": "v1", "metadata": {"name": "small", "namespace": edits.namespace}}
    for kind, spec, words in (
        (
            "ResourceQuota",
            {"hard": {"limits.cpu": "64"}},
            "small counts limits.cpu, and no LimitRange sets one; the API",
        ),
        (
            "ResourceQuota",
            {"hard": {"requests.cpu": "7900m"}},
            "requests.cpu is 7900m, 0 in use, the job requests 4 times 2000m;",
        ),
        ("ResourceQuota", {"hard": {"limits.memory": "11Gi"}}, "lower phase.resources.memory or phase.resources.nodes"),
        (
            "LimitRange",
            limits(max={"cpu": "1500m"}),
            "may have 1500m of cpu at most, phase.resources.cpu is 2000m; the API",
        ),
        (
            "LimitRange",
            limits(default={"cpu": "500m"}),
            "to 500m of cpu by default, phase.resources.cpu is 2000m; the API",
        ),
        (
            "LimitRange",
            limits(min={"cpu": "50m"}),
            "50m of cpu at least, what promotion and test request is 20m; the API",
        ),
        (
            "ResourceQuota",
            {"hard": {"requests.memory": "13Gi"}},
            "requests.memory is 13Gi, 0 in use, the server requests 14Gi; its pod",
        ),
        (
            "ResourceQuota",
            {"hard": {"persistentvolumeclaims": "1"}},
            "in use, the release makes 2; they could not be made",
        ),
        (
            "ResourceQuota",
            {"hard": {"requests.storage": "1Gi"}},
            "or set site.storage.models.size or site.storage.runs.size",
        ),
    ):
        one = given | {"kind": kind, "spec": spec}
        edits.client.apply(one)
        assert words in refused(edits.upgrade(*sets, release="small", nobody=True))
        edits.client.delete(one)
    enough = [
        given | {"kind": "LimitRange", "spec": limits(default={"cpu": "2"})},
        given
        | {"kind": "ResourceQuota", "spec": {"hard": {"limits.cpu": "64", "requests.cpu": "8", "memory": "14Gi"}}},
    ]
    for one in enough:
        edits.client.apply(one)
    done(edits.upgrade(*sets, release="small", nobody=True))
    done(edits.upgrade(*sets, "--set", "phase.seed=7", release="small", nobody=True))  # what is in use is its own
    done(edits.run("uninstall", "small", nobody=True))
    for one in enough:
        edits.client.delete(one)


def limits(**bounds: dict[str, str]) -> dict[str, object]:
    """The spec of a LimitRange for containers."""
    return {"limits": [{"type": "Container", **bounds}]}


def test_a_published_chart_is_installed_by_its_digest(
    helm: Releases, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Pushed to a registry with a login, upgraded by version to the same release, and gone again: no checkout is needed."""
    (archive,) = packaged(tmp_path_factory.mktemp("tree")).glob("trainjob-*.tgz")
    version = archive.stem.removeprefix("trainjob-")
    with Registry(tmp_path / "registry", "127.0.0.1") as registry:
        access = (
            "--ca-file",
            str(registry.authority),
            "--registry-config",
            str(registry.login(tmp_path / "login.json")),
        )
        done(helm.run("push", str(archive), f"oci://{registry.host}/charts", *access))
        _, head = registry.get(f"charts/trainjob/manifests/{version}", method="HEAD")
        chart = f"oci://{registry.host}/charts/trainjob"
        given = ("-f", str(SITE), "--set", "preset.phase=quick", *access)
        done(helm.run("install", "public", f"{chart}@{head['Docker-Content-Digest']}", *given))
        job = helm.one("PyTorchJob", V1)
        told = done(helm.run("upgrade", "public", chart, "--version", version, *given))
        assert "This revision trains nothing new: the same run" in told
        assert helm.one("PyTorchJob", V1)["metadata"]["uid"] == job["metadata"]["uid"]
    done(helm.run("uninstall", "public"))
    assert helm.names("PyTorchJob", V1) == []
