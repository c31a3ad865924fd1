"""The chart of the room: restricted, in the volumes of the release, exposed as the site says; refusals name the key and the remedy."""

import json
from pathlib import Path
from typing import Any

import pytest
from trainlab.room.kube_runner import KubeRunner

from charts.rendering import APIS, HELMS, KUBERNETES, ROOT, SITE, Document, binary, documents, helm, one
from charts.test_policy import assert_restricted

CHART = ROOT / "charts" / "room"
GIVEN = ("release=demo", "run=demo-12345678")
BOTH = pytest.mark.parametrize("name", HELMS)


def room(*sets: str, name: str = "helm", served: tuple[str, ...] = (), files: tuple[Path, ...] = (SITE,)) -> Any:
    """Run `helm template` of the room; return the process."""
    arguments = ["template", "demo-room", str(CHART), "--namespace", "lab"]
    arguments += [part for file in files for part in ("-f", str(file))]
    arguments += [part for each in sets for part in ("--set-json" if "=[" in each or "={" in each else "--set", each)]
    arguments += [part for api in served for part in ("--api-versions", api)]
    return helm(*arguments, name=name)


def pod(done: Any) -> Document:
    """Return the spec of the room's pod."""
    spec: Document = one(documents(done), "Deployment")["spec"]["template"]["spec"]
    return spec


@BOTH
def test_its_pod_is_restricted_and_in_the_volumes_of_the_release(name: str) -> None:
    spec = pod(room(*GIVEN, "job=kind: PyTorchJob\n", name=name))
    assert_restricted("room", spec)
    claims = [
        volume["persistentVolumeClaim"]["claimName"] for volume in spec["volumes"] if "persistentVolumeClaim" in volume
    ]
    assert claims == ["demo-models", "demo-runs"]
    (container,) = spec["containers"]
    mounts = {mount["mountPath"]: mount.get("readOnly", False) for mount in container["volumeMounts"]}
    assert mounts == {"/etc/trainlab": True, "/tmp": False, "/models": False, "/runs": True}


def test_one_claim_is_one_volume() -> None:
    """A pod that names a claim twice is never started by some kubelets."""
    shared = [f"site.storage.{name}.existing=team" for name in ("models", "runs", "data")]
    spec = pod(room(*GIVEN, *shared, "site.storage.runs.subPath=lab/runs"))
    claims = [volume for volume in spec["volumes"] if "persistentVolumeClaim" in volume]
    assert len(claims) == 1
    (container,) = spec["containers"]
    assert {
        mount["mountPath"]: mount.get("subPath")
        for mount in container["volumeMounts"]
        if mount["name"] == claims[0]["name"]
    } == {
        "/data": None,
        "/models": None,
        "/runs": "lab/runs",
    }
    assert {"name": "TRAINLAB_DATASETS", "value": "/data"} in container["env"]


def test_without_a_job_it_has_no_rights() -> None:
    kinds = {thing["kind"] for thing in documents(room(*GIVEN))}
    assert "Role" not in kinds and not pod(room(*GIVEN))["automountServiceAccountToken"]
    assert "--manifests" not in json.dumps(pod(room(*GIVEN)))


def test_a_room_asks_the_address_that_the_cluster_has() -> None:
    host = "demo-predictor.lab.svc.cluster.local"
    asked = {
        (): f"http://{host}",
        ("site.platform=openshift",): f"http://{host}:8080",
        ("site.auth=true",): f"https://{host}:8443",
        ('engines=["http://a#m as base"]',): "http://a#m as base",
    }
    for sets, url in asked.items():
        assert f"--engine={url}" in pod(room(*GIVEN, *sets))["containers"][0]["args"]


@pytest.mark.parametrize(
    ("served", "kind"), [(("route.openshift.io/v1", "security.openshift.io/v1"), "Route"), ((), "Ingress")]
)
def test_it_is_exposed_as_the_release_is(served: tuple[str, ...], kind: str) -> None:
    """By a host of its own, as the model has the site's."""
    things = documents(room(*GIVEN, "site.expose.enabled=true", "site.expose.host=ai.example.org", served=served))
    (exposed,) = [thing for thing in things if thing["kind"] in ("Route", "Ingress")]
    assert exposed["kind"] == kind
    assert "room-ai.example.org" in json.dumps(exposed)


def test_read_write_once_keeps_it_where_the_server_is() -> None:
    spec = pod(room(*GIVEN, "site.storage.runs.accessMode=ReadWriteOnce"))
    (term,) = spec["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["labelSelector"] == {"matchLabels": {"serving.kserve.io/inferenceservice": "demo"}}
    assert "affinity" not in pod(room(*GIVEN))


@BOTH
def test_refusals_name_key_and_remedy(name: str) -> None:
    refused = room(name=name, files=()).stderr
    for key in ("release: empty; name", "run: empty; name", "site.images.trainer: empty; give"):
        assert key in refused
    assert "holds no TrainJob or PyTorchJob" in room(*GIVEN, "job=kind: Pod", name=name).stderr
    assert "site.expose.host: empty" in room(*GIVEN, "site.expose.enabled=true", name=name).stderr
    assert "seats" in room(*GIVEN, "seats=0", name=name).stderr
    assert "release" in room("release=Demo_1", "run=x", name=name).stderr


@BOTH
def test_lint_is_clean(name: str) -> None:
    done = helm(
        "lint",
        "--strict",
        str(CHART),
        "-f",
        str(SITE),
        "--set",
        ",".join(GIVEN),
        "--kube-version",
        KUBERNETES,
        name=name,
    )
    assert done.returncode == 0, done.stdout
    assert binary(name).exists()


def test_its_pod_is_labeled_and_placed_as_those_of_the_release() -> None:
    """What admission asks of all pods; a node selector or a volume for one node may send it to a node with GPUs, which is tainted."""
    labeled = ('site.podLabels={"cost":"42"}', 'site.podAnnotations={"sidecar.istio.io/inject":"false"}')
    template = one(documents(room(*GIVEN, *labeled)), "Deployment")["spec"]["template"]
    assert template["metadata"]["labels"]["cost"] == "42"
    assert template["metadata"]["annotations"]["sidecar.istio.io/inject"] == "false"
    gpu = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    assert "tolerations" not in pod(room(*GIVEN))
    for sets in (('site.nodeSelector={"pool":"gpu"}',), ("site.storage.models.accessMode=ReadWriteOnce",)):
        assert pod(room(*GIVEN, *sets))["tolerations"] == [gpu], sets


class Applied:
    """As much of an API server as a round's start asks."""

    def __init__(self) -> None:
        self.objects: list[Document] = []

    def get(self, _path: str) -> Document:
        """Return the room's ConfigMap."""
        return {"metadata": {"uid": "u"}}

    def apply(self, _path: str, wanted: Document) -> None:
        """Keep what is applied."""
        self.objects.append(wanted)


@pytest.mark.parametrize("api", APIS)
def test_with_volumes_for_one_node_a_rounds_pods_are_where_the_room_is(api: str, tmp_path: Path) -> None:
    """The claims are the release's: its server and the room hold them on one node."""
    own = [
        f"site.storage.{name}.{key}"
        for name in ("models", "runs")
        for key in ("existing=m", "accessMode=ReadWriteOnce")
    ]
    sets = [word for each in (f"site.trainingApi={api}", "site.serving=false", *own) for word in ("--set", each)]
    files = [word for file in (ROOT / "values" / "room" / "adapters.yaml", SITE) for word in ("-f", str(file))]
    rendered = helm("template", "demo-round", str(ROOT / "charts" / "trainjob"), "-n", "lab", *files, *sets)
    assert rendered.returncode == 0, rendered.stderr
    (tmp_path / "round.yaml").write_text(rendered.stdout, encoding="utf-8")
    kube = Applied()
    runner = KubeRunner(tmp_path / "round.yaml", "demo-room", "lab", tmp_path, tmp_path, tmp_path, kube)  # type: ignore[arg-type]
    runner.start("r1", [])
    text = json.dumps(kube.objects)
    assert "podAffinity" in text and 'app.kubernetes.io/instance": "demo-round"}' not in text.split("podAffinity")[1]
    wanted = {"app.kubernetes.io/name": "room", "app.kubernetes.io/instance": "demo-room"}
    assert f'"labelSelector": {{"matchLabels": {json.dumps(wanted)}}}' in text
    labels = one(documents(room(*GIVEN, "job=kind: PyTorchJob\n")), "Deployment")["spec"]["template"]["metadata"][
        "labels"
    ]
    assert wanted.items() <= labels.items()


@pytest.mark.parametrize(
    ("sets", "url"),
    [
        ((), "http://THIS-MACHINE:8090"),
        (("address=http://10.0.0.5:8090",), "http://10.0.0.5:8090"),
        (("site.expose.enabled=true", "site.expose.host=lab.example.com"), "http://room-lab.example.com"),
    ],
    ids=["forwarded", "named", "exposed"],
)
def test_the_notes_send_everybody_to_one_address(sets: tuple[str, ...], url: str) -> None:
    lines = [
        "install",
        "demo-room",
        str(CHART),
        "--namespace",
        "lab",
        "--dry-run=client",
        "-f",
        str(SITE),
        "-o",
        "json",
    ]
    done = helm(*lines, *(part for each in (*GIVEN, *sets) for part in ("--set", each)), name="helm4")
    notes = json.loads(done.stdout)["info"]["notes"]
    assert f"{url}/\n" in notes and f"echo {url}/presenter/enter/$(kubectl " in notes


@pytest.mark.parametrize("name", ["1room", "2026", "a.b"])
def test_a_name_that_no_service_may_have_is_refused_before_anything_is_made(name: str) -> None:
    done = helm("template", name, str(CHART), "-f", str(SITE), *(part for each in GIVEN for part in ("--set", each)))
    assert f"release name: {name} is no name for a Service" in done.stderr
