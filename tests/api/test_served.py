"""What is served by a release, and what is left of it, on a real API server with Helm 3 and 4: upgrades, rollbacks, uninstall."""

from pathlib import Path

import pytest
import requests
from api_server import crds, printed, profiles, recorded
from api_server.client import Json
from api_server.policies import MANAGED, Policies
from api_server.promotions import Promotions, answers, there
from api_server.releases import BROKEN, Releases, done, making_room, refused
from api_server.server import Server
from charts.rendering import CHART, HELMS
from waiting import until

pytestmark = pytest.mark.usefixtures("training")
V1 = "kubeflow.org/v1"
IMAGE = "site.images.trainer=other/image:2"

KSERVE = "serving.kserve.io/v1beta1"
BY_RELEASE = {
    release: [
        one
        for one in recorded.read(f"rhoai-{release}")["denies"]
        if one["what"] == profiles.WHAT and one["resource"] == f"{KSERVE}/inferenceservices"
    ]
    for release in ("2.25", "3.3", "3.4", "3.5", "3.6")
}
"""What each release of OpenShift AI denies to an InferenceService that names a HardwareProfile."""


@pytest.fixture(params=HELMS)
def helm(server: Server, request: pytest.FixtureRequest) -> Releases:
    """A namespace of its own for each Helm program."""
    return Releases(server, request.param, "served")


@pytest.fixture
def promotions(helm: Releases, tmp_path: Path) -> Promotions:
    """The kubelet."""
    return Promotions(helm, tmp_path)


def seed(number: int) -> tuple[str, str]:
    """Another phase."""
    return "--set", f"phase.seed={number}"


def run_of(helm: Releases) -> str:
    """The run that the release trains."""
    return str(helm.one("PyTorchJob", V1)["metadata"]["labels"]["trainlab.dev/run"])


def trained(helm: Releases, promotions: Promotions, promoted: bool = True) -> str:
    """Decide the current run and let its promotion act."""
    run = run_of(helm)
    promotions.decide(run, promoted)
    promotions.act()
    return run


def make_room(helm: Releases) -> None:
    """Run what the notes say for a failed upgrade."""
    notes = done(helm.run("get", "notes", "demo", "--revision", "1"))
    printed.run(making_room(notes), helm.server.folder, helm.server.kubeconfig, helm.helm_name)


def removed(helm: Releases, installed: bool = True) -> None:
    """Uninstall; only the claims stay, and then they go."""
    if installed:
        done(helm.run("uninstall", "demo"))
    until(lambda: not any(names for kind, names in there(helm).items() if kind != "claims"))
    claims = helm.client.items("v1", "PersistentVolumeClaim", helm.namespace)
    assert sorted(claim["metadata"]["name"] for claim in claims) == ["demo-models", "demo-runs"]
    for claim in claims:
        helm.client.delete(claim)
        helm.client.merge(claim, {"metadata": {"finalizers": None}})


def test_a_served_model_is_replaced_only_by_a_promoted_one(helm: Releases, promotions: Promotions) -> None:
    done(helm.upgrade(*seed(1)))
    promotions.act()
    assert answers(helm) is None
    first = trained(helm, promotions)
    served = answers(helm)
    assert served and served["service"]["predictor"]["model"]["runtime"].startswith(f"{first}-")

    done(helm.upgrade(*seed(2)))  # trains
    promotions.act()
    assert run_of(helm) != first and answers(helm) == served
    trained(helm, promotions, promoted=False)  # refused
    assert answers(helm) == served
    done(helm.upgrade(*seed(3)))
    for kind, api in (("PyTorchJob", V1), ("Job", "batch/v1")):  # deleted
        helm.client.delete(helm.one(kind, api))
    assert refused(helm.upgrade(*seed(4), *BROKEN))  # fails
    make_room(helm)
    done(helm.run("rollback", "demo"))
    promotions.act()
    assert answers(helm) == served

    done(helm.upgrade(*seed(5)))
    last = trained(helm, promotions)
    now = answers(helm)
    assert now and now["service"]["predictor"]["model"]["runtime"].startswith(f"{last}-")
    until(lambda: len(there(helm)["ServingRuntime"]) == 1 and len(there(helm)["ConfigMap"]) == 5)
    removed(helm)


def test_what_serves_and_where_changes_without_training(helm: Releases, promotions: Promotions) -> None:
    done(helm.upgrade())
    run, job = trained(helm, promotions), helm.one("PyTorchJob", V1)
    served = answers(helm)
    assert served
    done(helm.upgrade("--set", "phase.serve.max_tokens=9"))
    promotions.act()
    now = answers(helm)
    assert now and now["phase"]["phase"]["serve"]["max_tokens"] == 9
    assert helm.one("PyTorchJob", V1)["metadata"]["uid"] == job["metadata"]["uid"], "not even its pods start"
    done(helm.upgrade("--set", IMAGE))
    promotions.act()
    now = answers(helm)
    assert now and now["runtime"]["containers"][0]["image"] == "other/image:2"
    assert now["phase"] == served["phase"] and run_of(helm) == run
    done(helm.upgrade("--set", "site.serving=false"))
    until(lambda: answers(helm) is None and there(helm)["ServingRuntime"] == [])
    done(helm.upgrade())
    promotions.act()
    assert answers(helm) == served
    removed(helm)


def test_every_earlier_revision_comes_back(helm: Releases, promotions: Promotions) -> None:
    """After changes of site, of phase and a failed upgrade: the same answers, the same objects, the same claims."""
    revisions = [(), ("--set", IMAGE, "--set", "site.queue=q"), ("--set", "phase.serve.max_tokens=9"), seed(7)]
    states = {}
    for number, changes in enumerate(revisions, 1):
        done(helm.upgrade(*changes))
        trained(helm, promotions)
        until(lambda: len(there(helm)["ServingRuntime"]) == 1 and len(there(helm)["ConfigMap"]) == 5)
        states[number] = answers(helm), there(helm)
    assert refused(helm.upgrade(*seed(8), *BROKEN))
    make_room(helm)
    for number in (4, 1, 2, 3, 1):
        done(helm.run("rollback", "demo", str(number)))
        promotions.act()
        until(lambda number=number: (answers(helm), there(helm)) == states[number])  # type: ignore[misc]
    removed(helm)


def test_no_live_object_is_written_into_the_release(helm: Releases, promotions: Promotions) -> None:
    """Two installs of one phase are one manifest, whatever the cluster filled in meanwhile."""
    done(helm.upgrade())
    first = done(helm.run("get", "manifest", "demo"))
    claim = helm.client.items("v1", "PersistentVolumeClaim", helm.namespace)[0]
    helm.client.merge(claim, {"spec": {"volumeName": "pv-1"}})
    done(helm.upgrade())
    assert done(helm.run("get", "manifest", "demo")) == first
    done(helm.run("rollback", "demo", "1"))
    removed(helm)


def test_history_that_is_kept_and_volumes_that_are_kept(helm: Releases, promotions: Promotions) -> None:
    done(helm.upgrade())
    trained(helm, promotions)
    served, claims = answers(helm), there(helm)["claims"]
    done(helm.run("uninstall", "demo", "--keep-history"))
    until(lambda: answers(helm) is None and not there(helm)["ConfigMap"])
    done(helm.run("rollback", "demo", "1"))
    promotions.act()
    assert answers(helm) == served and there(helm)["claims"] == claims
    done(helm.run("uninstall", "demo"))
    until(lambda: not there(helm)["ConfigMap"])
    done(helm.upgrade())
    promotions.act()
    assert answers(helm) == served and there(helm)["claims"] == claims
    removed(helm)


def test_atomic_goes_back_by_itself(helm: Releases, promotions: Promotions) -> None:
    done(helm.upgrade())
    trained(helm, promotions)
    for claim in helm.client.items("v1", "PersistentVolumeClaim", helm.namespace):
        helm.client.status(claim, {"phase": "Bound"})
    served, before = answers(helm), there(helm)
    flag = "--atomic" if helm.helm_name == "helm" else "--rollback-on-failure"
    claim = ("--set", "site.storage.data.size=1Gi")  # which nothing binds
    assert refused(helm.upgrade(*seed(2), *claim, flag, "--timeout", "10s"))
    promotions.act()
    assert answers(helm) == served
    (added,) = [
        one
        for one in helm.client.items("v1", "PersistentVolumeClaim", helm.namespace)
        if one["metadata"]["name"] == "demo-data"
    ]
    helm.client.delete(added)
    helm.client.merge(added, {"metadata": {"finalizers": None}})
    until(lambda: there(helm) == before)
    removed(helm)


def test_an_install_that_fails_halfway_leaves_nothing_but_volumes(helm: Releases) -> None:
    """With the flag by itself, without it by the command in the chart's page."""
    page = (CHART / "README.md").read_text(encoding="utf-8")
    flag = "--atomic" if helm.helm_name == "helm" else "--rollback-on-failure"
    assert f"`{flag}`" in page and "`helm uninstall survival`" in page
    assert refused(helm.upgrade(*BROKEN, flag))
    removed(helm, installed=False)
    assert refused(helm.upgrade(*BROKEN))
    assert helm.names("PyTorchJob", V1)
    removed(helm)


def test_a_server_is_in_the_queue_where_openshift_ai_wants_it(server: Server, tmp_path: Path) -> None:
    """OpenShift AI 2.25 and 3.3 deny an InferenceService without a queue in a namespace that Kueue manages, by either label.

    Only while its DataScienceCluster says that Kueue is asked for.
    """
    helm = Releases(server, "helm", "managed")
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": helm.namespace}}
    bare = {"apiVersion": "serving.kserve.io/v1beta1", "kind": "InferenceService", "spec": {"predictor": {}}}
    bare["metadata"] = {"name": "bare", "namespace": helm.namespace}
    policies, platform = Policies(helm.client), data_science_cluster(helm)
    for release in ("2.25", "3.4", "3.5", "3.6", "3.3"):
        denied = [
            one for one in recorded.read(f"rhoai-{release}")["denies"] if one["what"] == "a workload without a queue"
        ]
        policies.step(denied, "v2")
        for label in ("kueue-managed", "kueue.openshift.io/managed"):
            helm.client.merge(space, {"metadata": {"labels": dict.fromkeys(MANAGED) | {label: "true"}}})
            words = denied[0]["message"] if denied else ""
            until(lambda words=words: (words in refusal(helm, bare)) if words else not refusal(helm, bare))  # type: ignore[misc]
        assert bool(denied) is (release in ("2.25", "3.3")), release
    helm.client.status(platform, {"components": {"kueue": {"managementState": "Removed"}}})
    until(lambda: not refusal(helm, bare))
    helm.client.status(platform, {"components": {"kueue": {"managementState": "Unmanaged"}}})
    until(lambda: refusal(helm, bare))
    done(helm.upgrade("--set", "site.queue=team,site.platform=openshift"))
    trained(helm, Promotions(helm, tmp_path))
    (service,) = helm.client.items("serving.kserve.io/v1beta1", "InferenceService", helm.namespace)
    assert service["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team"
    policies.step([], "v2")
    helm.client.delete(platform)
    removed(helm)


def data_science_cluster(helm: Releases) -> Json:
    """A DataScienceCluster that says that it leaves Kueue to its own operator; the API server serves them from now on."""
    group, kind = "datasciencecluster.opendatahub.io", "DataScienceCluster"
    helm.client.apply(crds.reduced(group, kind, ["v2"], namespaced=False))
    until(lambda: helm.client.path(f"{group}/v2", kind))
    one = {"apiVersion": f"{group}/v2", "kind": kind, "metadata": {"name": "default-dsc"}, "spec": {}}
    helm.client.apply(one)
    helm.client.status(one, {"components": {"kueue": {"managementState": "Unmanaged"}}})
    return one


def profile(helm: Releases, name: str) -> Json:
    """A HardwareProfile of the namespace; the API server serves them from now on."""
    helm.client.apply(crds.reduced(profiles.API, "HardwareProfile", ["v1alpha1", "v1"], True))
    until(lambda: helm.client.path(f"{profiles.API}/v1", "HardwareProfile"))
    named = {"metadata": {"name": name, "namespace": helm.namespace}}
    return helm.client.apply({"apiVersion": f"{profiles.API}/v1", "kind": "HardwareProfile", **named})


def test_a_profile_that_is_not_there_is_denied_as_each_release_denies_it(server: Server) -> None:
    helm = Releases(server, "helm", "profiles")
    policies, one = Policies(helm.client), profile(helm, "small")
    named = {"name": "bare", "namespace": helm.namespace}
    bare: Json = {"apiVersion": KSERVE, "kind": "InferenceService", "spec": {"predictor": {}}, "metadata": named}
    for release, denials in BY_RELEASE.items():
        policies.step(denials, "v2")
        bare["metadata"] = named | {"annotations": {profiles.NAME: "none"}}
        mark = '\\"' if release in ("3.5", "3.6") else "'"
        words = f"hardware profile {mark}none{mark} not found in namespace {mark}{helm.namespace}{mark}"
        until(lambda words=words: words in refusal(helm, bare))  # type: ignore[misc]
        said = refusal(helm, bare)
        assert '"code":403' in said if release in ("3.5", "3.6") else '"code":400' in said, release
        bare["metadata"] = named | {"annotations": {profiles.NAME: "small"}}
        assert not refusal(helm, bare)
    policies.step([], "v2")
    helm.client.delete(one)


@pytest.mark.parametrize("release", ["3.4", "3.5"])
def test_a_profile_that_goes_during_the_training_is_a_sentence(
    server: Server, tmp_path: Path, release: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """OpenShift AI's webhook denies the server then; what it says to do serves the trained run, and nothing is trained again."""
    helm = Releases(server, "helm", "profiles")
    policies, promotions = Policies(helm.client), Promotions(helm, tmp_path)
    small = profile(helm, "small")
    policies.step(BY_RELEASE[release], "v2")
    done(helm.upgrade("--set", "site.platform=openshift,site.hardwareProfile.name=small"))
    helm.client.delete(small)
    run = run_of(helm)
    promotions.decide(run, True)
    promotions.act(code=2)
    said = capsys.readouterr().err
    assert said.startswith("error: ") and said.count("\n") == 1 and "denied the request: hardware profile" in said
    assert "site.hardwareProfile" in said and "Role" not in said
    assert answers(helm) is None

    large = profile(helm, "large")
    done(helm.upgrade("--set", "site.platform=openshift,site.hardwareProfile.name=large"))
    promotions.act()
    assert answers(helm) and run_of(helm) == run
    policies.step([], "v2")
    helm.client.delete(large)
    removed(helm)


def refusal(helm: Releases, thing: Json) -> str:
    """Return what the API server says against an object; empty when it takes it."""
    try:
        helm.client.apply(thing)
    except requests.HTTPError as error:
        return str(error.response.text)
    helm.client.delete(thing)
    return ""
