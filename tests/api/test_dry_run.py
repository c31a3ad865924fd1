"""Server-side dry run, strict, of everything that the chart renders, by a real API server with the operators' true CRDs.

Twice: with the versions that cluster/*/go.mod pin (Trainer 2.1, training-operator 1.9, KServe 0.15, Kueue 0.15) and with the
newest that a release of OpenShift AI may bring (Trainer 2.3, KServe 0.17, Kueue 0.19). The queue's objects are those of the
end-to-end test and of the role workspace.
"""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml
from live import Client, Server
from rendering import ROOT, Document, cases, documents, one, rendered, template, with_service
from upstream import CRDS, QUEUES, from_module, from_newer

pytestmark = pytest.mark.xdist_group("live")
CRD_SECONDS = 60
SPACE = "dry-run"
DNS_1035 = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """An API server without any CRD of these."""
    one = Server(Path(tmp_path_factory.mktemp("dry-run")) / "api")
    one.start()
    yield one
    one.stop()


@pytest.fixture(scope="module", params=[from_module, from_newer], ids=["pinned", "newest"])
def client(server: Server, request: pytest.FixtureRequest) -> Client:
    """The API server with the CRDs of one set of versions; the newest replace the pinned ones."""
    admin = Client(server.kubeconfig)
    space = {"name": SPACE, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}
    admin.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": space})
    for component, path in (*CRDS.values(), *QUEUES.values()):
        crd = yaml.load(request.param(component, path), Loader=yaml.CSafeLoader)
        crd["spec"].pop("conversion", None)
        made = admin.apply(json.loads(json.dumps(crd, default=str)))
        served = [each["name"] for each in crd["spec"]["versions"] if each["served"]]
        end = time.monotonic() + CRD_SECONDS
        while not all(admin.path(f"{crd['spec']['group']}/{each}", crd["spec"]["names"]["kind"]) for each in served):
            assert time.monotonic() < end, f"{made['metadata']['name']} is not served"
            time.sleep(0.3)
    return admin


def objection(client: Client, item: Document) -> str:
    """Return what the API server has against an object, unknown fields included; empty when it would take it."""
    metadata = {key: value for key, value in item["metadata"].items() if key != "namespace"}
    path = client.path(item["apiVersion"], item["kind"], "", SPACE)
    try:
        client.send("POST", str(path), item | {"metadata": metadata}, dryRun="All", fieldValidation="Strict")
    except requests.HTTPError as error:
        return str(error)
    return ""


def test_everything_rendered_is_taken(client: Client) -> None:
    found: list[str] = []
    seen = set()
    for case in cases():
        for item in with_service(rendered(case)):
            seen.add(item["kind"])
            if said := objection(client, item):
                found.append(f"{case.name}: {said}")
    assert found == []
    assert {*CRDS, "ConfigMap", "Job", "PersistentVolumeClaim", "Role", "RoleBinding"} <= seen


def test_queues_are_taken(client: Client) -> None:
    text = (ROOT / "tests" / "e2e" / "queue.yaml").read_text(encoding="utf-8")
    queues = [each for each in yaml.safe_load_all(text) if each and each["kind"] in QUEUES]
    assert {each["kind"] for each in queues} == set(QUEUES)
    assert [said for each in queues if (said := objection(client, each))] == []


def test_an_unknown_field_is_refused(client: Client) -> None:
    """Also the field by which Trainer 2.1 and 2.2 differ, which is why the chart brings a runtime of its own."""
    (case,) = [each for each in cases() if each.name == "survival-full-trainjob"]
    job: dict[str, Any] = one(rendered(case), "TrainJob")
    for field in ("podTemplateOverride", "runtimePatch"):
        assert field in objection(client, job | {"spec": job["spec"] | {field: []}})
    overrides = objection(client, job | {"spec": job["spec"] | {"podTemplateOverrides": []}})
    patches = objection(client, job | {"spec": job["spec"] | {"runtimePatches": []}})
    assert bool(overrides) != bool(patches)


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_webhook_rules_of_names(case: Any) -> None:
    """training-operator and JobSet make Services of a job's name: DNS-1035, shorter by what their pods append."""
    (job,) = [each for each in rendered(case) if each["kind"] in ("PyTorchJob", "TrainJob")]
    assert DNS_1035.fullmatch(f"{job['metadata']['name']}-worker-99")


def test_a_release_whose_jobs_would_be_refused_is_refused() -> None:
    """Helm allows a release to begin with a digit, the webhooks of the training operators do not."""
    files = cases()[0].files
    done = template(files, release="3d")
    assert done.returncode != 0
    assert "release name: 3d" in done.stderr and "a letter first" in done.stderr
    assert documents(template(files, release="d3"))
