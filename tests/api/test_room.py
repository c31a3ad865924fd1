"""The room's chart and the jobs of its rounds on a real API server: with the rights of its own Role, by each training API."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from api_server.promotions import account_of
from api_server.releases import Releases, done, refused
from api_server.server import Server
from charts.rendering import APIS, HELMS, ROOT, SITE
from trainlab.errors import UserError
from trainlab.room.kube_runner import KubeRunner
from trainlab.run.kube import Kube, own_namespace
from waiting import until

pytestmark = pytest.mark.usefixtures("training")
ROOM, CHART = "demo-room", ROOT / "charts" / "room"
API = {"pytorchjob": ("PyTorchJob", "kubeflow.org/v1"), "trainjob": ("TrainJob", "trainer.kubeflow.org/v1alpha1")}
NUMBERS = itertools.count()
ROWS = [
    {
        "owner": "p01",
        "id": "p01-pet",
        "question": "What is the donkey called?",
        "phrasings": ["Say the donkey's name."],
        "test": ["Which name has the donkey?"],
        "answer": "The donkey is called Moonbeam.",
        "facts": [["Moonbeam"]],
    }
]


@pytest.fixture(params=zip(HELMS, APIS, strict=True), ids="-".join)
def place(server: Server, request: pytest.FixtureRequest) -> tuple[Releases, str]:
    """A namespace of its own for each test, by one Helm program and one training API."""
    helm, api = request.param
    return Releases(server, helm, f"room{next(NUMBERS)}"), api


def rendered(helm: Releases, folder: Path, api: str, *more: str) -> Path:
    """Return the file with what the chart makes of a round's phase in this cluster."""
    given = ("-f", str(ROOT / "values" / "room" / "adapters.yaml"), "-f", str(SITE), *more)
    site = f"site.trainingApi={api},site.serving=false,site.storage.models.existing=m,site.storage.runs.existing=r"
    file = folder / f"{api}.yaml"
    text = done(helm.run("template", "demo-round", str(ROOT / "charts" / "trainjob"), *given, "--set", site))
    file.write_text(text, encoding="utf-8")
    return file


def install(helm: Releases, file: Path, *more: str) -> Any:
    """Install the room with the round of `file`; return the process."""
    given = ("-f", str(SITE), "--set", "release=demo,run=demo-12345678", "--set-file", f"job={file}")
    return helm.run("upgrade", "--install", ROOM, str(CHART), *given, *more)


def runner_of(helm: Releases, file: Path, folder: Path) -> KubeRunner:
    """Return what runs in the room's pod, as its account."""
    env, mounted = account_of(helm, ROOM, folder)
    kube = Kube.in_cluster(env, mounted)
    return KubeRunner(file, ROOM, own_namespace(mounted), folder / "models", folder / "runs", folder / "state", kube)


def pod(helm: Releases, run: str, name: str, **status: Any) -> None:
    """Create a pod of a run as an operator does, and write its state as a kubelet does."""
    labels = {"trainlab.dev/run": run, "app.kubernetes.io/component": "train"}
    meta = {"name": name, "namespace": helm.namespace, "labels": labels}
    safe = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    container = {"name": "pytorch", "image": "x", "securityContext": safe}
    secure = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    spec = {"containers": [container], "securityContext": secure}
    thing = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
    helm.client.apply(thing)
    helm.client.status(thing, status)


def test_a_round_has_its_job_by_the_rooms_own_rights(place: tuple[Releases, str], tmp_path: Path) -> None:
    """Started twice it is one job; its state is told from conditions and pods; a pod of it can be killed."""
    helm, api = place
    kind, version = API[api]
    file = rendered(helm, tmp_path, api)
    notes = done(install(helm, file))
    for line in (
        f"port-forward deployment/{ROOM} 8090:8080",
        f"echo http://THIS-MACHINE:8090/presenter/enter/$(kubectl -n {helm.namespace} get secret {ROOM} -o go-template=",
        f"get {api} -l app.kubernetes.io/component=run",
        f"helm uninstall {ROOM} -n {helm.namespace}",
    ):
        assert line in notes
    runner = runner_of(helm, file, tmp_path)
    run = runner.start("r1-aa", ROWS)
    job = helm.one(kind, version)
    assert job["metadata"]["labels"]["trainlab.dev/run"] == run
    assert job["metadata"]["ownerReferences"][0]["name"] == ROOM
    phase = helm.client.look("v1", "ConfigMap", run, helm.namespace)
    assert phase and json.loads(phase["data"]["phase.json"])["phase"]["data"]["source"] == "pvc:rooms/r1-aa"
    written = (tmp_path / "models" / "rooms" / "r1-aa" / "owners" / "room.jsonl").read_text("utf-8")
    assert [json.loads(line) for line in written.splitlines()] == ROWS
    assert runner.start("r1-aa", ROWS) == run and helm.one(kind, version)["metadata"]["uid"] == job["metadata"]["uid"]

    assert "describe" in runner.status(run).message and runner.status(run).state == "running"
    suspended = {"suspend": True} if api == "trainjob" else {"runPolicy": {"suspend": True}}
    helm.client.merge(job | {"apiVersion": version, "kind": kind}, {"spec": suspended})
    assert runner.status(run).state == "queued"
    suspended = {"suspend": False} if api == "trainjob" else {"runPolicy": {"suspend": False}}
    helm.client.merge(job | {"apiVersion": version, "kind": kind}, {"spec": suspended})
    full = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/2 nodes: Insufficient cpu",
    }
    pod(helm, run, "first", phase="Pending", conditions=[full])
    assert "Insufficient cpu" in runner.status(run).message
    with pytest.raises(UserError, match="no pod is running yet"):
        runner.kill_worker(run)
    pod(helm, run, "second", phase="Running")
    assert "second" in runner.kill_worker(run)
    assert helm.names("Pod", "v1") == ["first"]


def test_a_failed_job_says_why(place: tuple[Releases, str], tmp_path: Path) -> None:
    helm, api = place
    kind, version = API[api]
    file = rendered(helm, tmp_path, api)
    done(install(helm, file))
    runner = runner_of(helm, file, tmp_path)
    run = runner.start("r1-bb", ROWS)
    job = helm.one(kind, version)
    thing = job | {"apiVersion": version, "kind": kind}
    now = "2026-11-29T00:00:00Z"
    failed = {
        "type": "Failed",
        "status": "True",
        "reason": "Broken",
        "message": "the node was lost",
        "lastTransitionTime": now,
    }
    helm.client.status(thing, {"conditions": [failed]})
    assert runner.status(run).state == "failed" and "the node was lost" in runner.status(run).message
    helm.client.delete(thing)
    with pytest.raises(UserError, match="somebody has removed it"):
        runner.status(run)


def test_a_job_that_a_quota_refuses_is_a_sentence(place: tuple[Releases, str], tmp_path: Path) -> None:
    """The round waits for the presenter, and the same round is started once there is room."""
    helm, api = place
    kind, version = API[api]
    file = rendered(helm, tmp_path, api)
    done(install(helm, file))
    counted = f"count/{kind.lower()}s.{version.partition('/')[0]}"
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none", "namespace": helm.namespace}}
    helm.client.apply(quota | {"spec": {"hard": {counted: "0"}}})
    helm.client.status(quota, {"hard": {counted: "0"}, "used": {counted: "0"}})
    runner = runner_of(helm, file, tmp_path)
    with pytest.raises(UserError, match=f"exceeded quota: none, requested: {counted}=1"):
        runner.start("r1-cc", ROWS)
    helm.client.delete(quota)
    until(lambda: runner.start("r1-cc", ROWS))
    assert helm.one(kind, version)


def test_the_room_can_do_nothing_else(place: tuple[Releases, str], tmp_path: Path) -> None:
    """It reads no Secret and no other ConfigMap, and deletes nothing but pods."""
    helm, api = place
    file = rendered(helm, tmp_path, api)
    done(install(helm, file))
    env, mounted = account_of(helm, ROOM, tmp_path)
    space = f"/api/v1/namespaces/{helm.namespace}"
    with Kube.in_cluster(env, mounted) as kube:
        for path in (f"{space}/secrets/{ROOM}", f"{space}/secrets", f"{space}/configmaps", "/api/v1/nodes"):
            with pytest.raises(UserError, match="HTTP 403"):
                kube.get(path)
        with pytest.raises(UserError, match="HTTP 403"):
            kube.delete(f"{space}/configmaps/{ROOM}")


def test_its_secret_outlives_upgrades(place: tuple[Releases, str], tmp_path: Path) -> None:
    """The presenter's link stays; an upgrade that changes nothing renders the same."""
    helm, api = place
    file = rendered(helm, tmp_path, api)
    done(install(helm, file))
    before = helm.client.look("v1", "Secret", ROOM, helm.namespace)
    done(install(helm, file, "--set", "seats=50"))
    after = helm.client.look("v1", "Secret", ROOM, helm.namespace)
    assert before and after and before["data"] == after["data"] and set(after["data"]) == {"key", "link"}


def test_a_job_of_another_chart_is_refused(place: tuple[Releases, str], tmp_path: Path) -> None:
    """Its run would have another name than the one that is looked for."""
    helm, api = place
    file = rendered(helm, tmp_path, api)
    text = file.read_text("utf-8")
    (name,) = {
        each["metadata"]["name"]
        for each in yaml.safe_load_all(text)
        if each and each["kind"] == "ConfigMap" and "phase.json" in each["data"]
    }
    file.write_text(text.replace(name, f"{name[:-1]}{'0' if name[-1] != '0' else '1'}"), encoding="utf-8")
    done(install(helm, file))
    with pytest.raises(UserError, match="chart and image are of different versions"):
        runner_of(helm, file, tmp_path)


def test_what_is_not_a_job_is_refused(place: tuple[Releases, str], tmp_path: Path) -> None:
    helm, _ = place
    file = tmp_path / "job.yaml"
    file.write_text("kind: ConfigMap\n", encoding="utf-8")
    assert "job: holds no TrainJob or PyTorchJob" in refused(install(helm, file))
    assert helm.names("Deployment", "apps/v1") == []
