"""The pod with TensorBoard: restricted, on the volume of the runs, the same for all runs; where it is reached; and trackers of a run."""

import json
import os

import pytest

from charts.rendering import CHART, SITE, VALUES, Document, documents, one, run_of, template
from charts.test_notes import helm
from charts.test_policy import assert_restricted
from charts.test_site import ONE_NODE, chosen, wanted_beside

FULL = (str(VALUES / "survival.yaml"),)
LOCAL = (*FULL, str(VALUES / "local" / "survival.yaml"))
ON = "site.tensorboard.enabled=true"
ROUTE = ("site.expose.enabled=true", "site.platform=openshift")
INGRESS = ("site.expose.enabled=true", "site.expose.host=survival.example.com")
HOST = "site.tensorboard.host=curves.example.com"


def objects(*sets: str, files: tuple[str, ...] = LOCAL, served: tuple[str, ...] = ()) -> list[Document]:
    """Return the objects of the release `demo`."""
    return documents(template(files, *sets, served=served))


def notes(*sets: str, files: tuple[str, ...] = LOCAL) -> str:
    """Return the notes of the release."""
    given = [word for file in (*files, str(SITE)) for word in ("-f", file)]
    given += [word for each in sets for word in ("--set", each)]
    out = helm("helm4", os.devnull, "install", "demo", str(CHART), *given, "--dry-run=client", "-o", "json")
    return str(json.loads(out)["info"]["notes"])


def test_it_is_off_by_default() -> None:
    assert not {"Deployment", "Service"} & {each["kind"] for each in objects()}
    assert "TensorBoard" not in notes()


def test_one_restricted_pod_reads_the_runs_and_writes_none() -> None:
    found = objects(ON, "site.podLabels.team=red", "site.podAnnotations.a=b", "site.storage.runs.subPath=lab/runs")
    template = one(found, "Deployment")["spec"]["template"]
    spec = template["spec"]
    assert_restricted("tensorboard", spec)
    assert spec["automountServiceAccountToken"] is False and "serviceAccountName" not in spec
    (container,) = spec["containers"]
    assert container["command"] == ["python", "-m", "tensorboard.main"] and "--logdir=/runs" in container["args"]
    assert container["image"] == one(found, "Job")["spec"]["template"]["spec"]["containers"][0]["image"]
    runs, tmp = container["volumeMounts"]
    assert runs == {"name": "runs", "mountPath": "/runs", "subPath": "lab/runs", "readOnly": True}
    assert tmp["mountPath"] == "/tmp"
    assert spec["volumes"][0]["persistentVolumeClaim"]["claimName"] == "demo-runs"
    assert template["metadata"]["labels"]["team"] == "red" and template["metadata"]["annotations"] == {"a": "b"}
    service = one(found, "Service")["spec"]
    assert service["selector"].items() <= template["metadata"]["labels"].items()
    assert service["selector"] == one(found, "Deployment")["spec"]["selector"]["matchLabels"]
    assert service["ports"] == [{"name": "http", "port": 80, "targetPort": "http", "protocol": "TCP"}]
    assert "kubectl -n lab port-forward deployment/demo-tensorboard 6006:8080" in notes(ON)


def test_another_run_leaves_the_pod_as_it_is_and_it_changes_no_run() -> None:
    before, after = (objects(ON, f"phase.train.epochs={epochs}") for epochs in (1, 2))
    assert run_of(before) != run_of(after)
    assert one(before, "Deployment")["spec"] == one(after, "Deployment")["spec"]
    assert one(objects(ON), "PyTorchJob") == one(objects(), "PyTorchJob")


@pytest.mark.parametrize("files", [LOCAL, FULL], ids=["CPU", "GPU"])
def test_with_a_claim_for_one_node_it_goes_where_the_others_are(files: tuple[str, ...]) -> None:
    """In a phase with GPUs it does not find itself: else it could take a node without, and training would have to follow."""
    found = objects(*ONE_NODE, ON, "site.trainingApi=pytorchjob", files=files)
    pod = one(found, "Deployment")["spec"]["template"]
    train = one(found, "PyTorchJob")["spec"]["pytorchReplicaSpecs"]["Master"]["template"]
    selector, labels = wanted_beside(pod["spec"]), pod["metadata"]["labels"]
    assert chosen(selector, train["metadata"]["labels"])
    assert chosen(selector, labels) is (files == LOCAL)
    assert chosen(wanted_beside(train["spec"]), labels), "the next training goes where it holds the volume"
    assert "its pod waits for one that trains or serves" in notes(*ONE_NODE, ON, files=FULL)
    assert "affinity" not in one(objects(ON, "phase.resources.nodes=1"), "Deployment")["spec"]["template"]["spec"]


def test_it_is_exposed_as_the_model_is_at_a_host_of_its_own() -> None:
    routes = {each["metadata"]["name"]: each for each in objects(ON, *ROUTE) if each["kind"] == "Route"}
    assert set(routes) == {"demo-model", "demo-tensorboard"}
    route = routes["demo-tensorboard"]["spec"]
    assert route["to"]["name"] == "demo-tensorboard" and route["port"] == {"targetPort": 8080}
    assert "echo https://$(kubectl -n lab get route demo-tensorboard" in notes(ON, *ROUTE)
    ingresses = {each["metadata"]["name"]: each for each in objects(ON, *INGRESS, HOST) if each["kind"] == "Ingress"}
    assert set(ingresses) == {"demo-model", "demo-tensorboard"}
    (rule,) = ingresses["demo-tensorboard"]["spec"]["rules"]
    assert rule["host"] == "curves.example.com"
    assert rule["http"]["paths"][0]["backend"]["service"] == {"name": "demo-tensorboard", "port": {"number": 80}}
    assert "echo http://curves.example.com\n" in notes(ON, *INGRESS, HOST)
    assert one(objects(ON, *INGRESS), "Ingress")["metadata"]["name"] == "demo-model", "an Ingress needs a host"


def test_where_the_model_asks_for_a_token_it_has_no_address() -> None:
    found = objects(ON, *ROUTE, "site.auth=true")
    assert one(found, "Route")["metadata"]["name"] == "demo-model"
    assert "without a login" not in notes(ON, *ROUTE, "site.auth=true")


def test_it_can_be_exposed_where_nothing_is_served() -> None:
    assert one(objects(ON, *ROUTE, "site.serving=false"), "Route")["metadata"]["name"] == "demo-tensorboard"


def test_trackers_are_named_to_the_job_and_the_run_is_the_same() -> None:
    sets = ('site.reportTo=["mlflow","wandb"]', 'site.envSecrets=["trackers"]', "site.trainingApi=pytorchjob")
    found, plain = objects(*sets), objects("site.trainingApi=pytorchjob")
    assert run_of(found) == run_of(plain) and "TRAINLAB_REPORT_TO" not in str(plain)

    def container(some: list[Document]) -> Document:
        (only,) = one(some, "PyTorchJob")["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"]
        return dict(only)

    env = {each["name"]: each.get("value") for each in container(found)["env"]}
    assert env["TRAINLAB_REPORT_TO"] == "mlflow,wandb" and "SSL_CERT_FILE" not in env
    trusting = container(objects(*sets, "site.caConfigMap=ours"))
    env = {each["name"]: each.get("value") for each in trusting["env"]}
    assert env["SSL_CERT_FILE"] == "/etc/trainlab-ca/ca-bundle.crt"
    assert {"name": "ca", "mountPath": "/etc/trainlab-ca", "readOnly": True} in trusting["volumeMounts"]
