"""Server-side dry run, strict, of everything that the chart renders, by a real API server with the operators' real CRDs.

Twice: with the versions of today's leg (cluster/*/go.mod: Trainer 2.3, KServe 0.19, Kueue 0.19) and of the older one
(cluster/older/*/go.mod: Trainer 2.1, KServe 0.15, Kueue 0.15). The queue's objects are those of the end-to-end test and of the
role workspace.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import requests
import yaml
from api_server import training_api
from api_server.client import Client
from api_server.server import Server
from charts.rendering import APIS, ROOT, Document, case, cases, documents, one, rendered, template, with_service
from charts.upstream import CRDS, QUEUES, from_module, from_older

pytestmark = pytest.mark.usefixtures("training")
SPACE = "dry-run"


@pytest.fixture(scope="module", params=[from_module, from_older], ids=["today", "older"])
def client(server: Server, request: pytest.FixtureRequest) -> Iterator[Client]:
    """The API server with the CRDs of one set of versions; the pinned ones are restored for other tests."""
    admin = Client(server.kubeconfig)
    space = {"name": SPACE, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}
    admin.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": space})
    training_api.install(admin, request.param)
    yield admin
    training_api.install(admin, from_module)


def objection(client: Client, item: Document) -> str:
    """Return the API server's objections to an object, unknown fields included; empty when it would accept it."""
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
    for each in cases():
        for item in with_service(rendered(each)):
            seen.add(item["kind"])
            if said := objection(client, item):
                found.append(f"{each.name}: {said}")
    assert found == []
    assert {*CRDS, "ConfigMap", "Job", "PersistentVolumeClaim", "Role", "RoleBinding"} <= seen


@pytest.mark.parametrize("existing", ["team", ""])
@pytest.mark.parametrize("api", APIS)
def test_sub_paths_a_third_volume_and_an_ingress_are_taken(client: Client, api: str, existing: str) -> None:
    sets = [f"site.storage.{name}.subPath=a/{name}" for name in ("models", "runs", "data")]
    sets += [f"site.storage.{name}.existing={existing}" for name in ("models", "runs", "data") if existing]
    files = case(f"gemma-local-{api}").files
    sets += ["site.expose.enabled=true", "site.expose.host=a.example", "site.expose.tlsSecret=a", "phase.serve.hours=4"]
    found = documents(template(files, f"site.trainingApi={api}", "site.storage.data.size=1Gi", *sets))
    assert one(found, "Ingress") and one(found, "CronJob")
    assert [said for item in with_service(found) if (said := objection(client, item))] == []


def test_queues_are_taken(client: Client) -> None:
    text = (ROOT / "tests" / "e2e" / "queue.yaml").read_text(encoding="utf-8")
    queues = [each for each in yaml.safe_load_all(text) if each and each["kind"] in QUEUES]
    assert {each["kind"] for each in queues} == set(QUEUES)
    assert [said for each in queues if (said := objection(client, each))] == []


def test_an_unknown_field_is_refused(client: Client) -> None:
    """Including the field in which Trainer 2.1 and 2.2 differ, the reason why the chart brings its own runtime."""
    job: dict[str, Any] = one(rendered(case("survival-full-trainjob")), "TrainJob")
    for field in ("podTemplateOverride", "runtimePatch"):
        assert field in objection(client, job | {"spec": job["spec"] | {field: []}})
    overrides = objection(client, job | {"spec": job["spec"] | {"podTemplateOverrides": []}})
    patches = objection(client, job | {"spec": job["spec"] | {"runtimePatches": []}})
    assert bool(overrides) != bool(patches)
