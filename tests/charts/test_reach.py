"""How others reach the served model, and for how long: Prometheus, clients outside of the cluster, with a token."""

import json
import os

import pytest

from charts.rendering import CHART, REAL_CLUSTER, SITE, VALUES, Document, documents, one, run_of, template, with_service
from charts.test_notes import helm
from charts.test_policy import assert_restricted

LOCAL = (str(VALUES / "survival.yaml"), str(VALUES / "local" / "survival.yaml"))
ROUTES = "route.openshift.io/v1"
MONITORS = "monitoring.coreos.com/v1/PodMonitor"
NAMED = ("site.expose.enabled=true", "site.expose.host=survival.example.com")


def objects(*sets: str, served: tuple[str, ...] = ()) -> list[Document]:
    """Return the objects of the release `demo`."""
    return documents(template(LOCAL, *sets, served=served))


def refusal(*sets: str, served: tuple[str, ...] = ()) -> str:
    """Return the words with which Helm refuses."""
    done = template(LOCAL, *sets, served=served)
    assert done.returncode != 0
    return done.stderr


def test_a_pod_monitor_finds_the_servers_port_where_its_api_is_served() -> None:
    on = ("site.monitoring.enabled=true", "site.monitoring.labels.release=prometheus")
    monitor = one(objects(*on, served=(*REAL_CLUSTER, MONITORS)), "PodMonitor")
    assert monitor["spec"]["selector"]["matchLabels"] == {"serving.kserve.io/inferenceservice": "demo"}
    assert monitor["spec"]["podMetricsEndpoints"] == [{"port": "http", "path": "/metrics"}]
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert one(objects(*on), "PodMonitor") == monitor  # GitOps
    assert "serves no monitoring.coreos.com/v1 PodMonitor; install" in refusal(*on, served=REAL_CLUSTER)
    assert not {"PodMonitor", "Route", "Ingress"} & {each["kind"] for each in objects()}


@pytest.mark.parametrize(
    ("platform", "served", "kind"),
    [
        ("auto", (*REAL_CLUSTER, ROUTES), "Route"),
        ("auto", REAL_CLUSTER, "Ingress"),
        ("openshift", (), "Route"),
        ("auto", (), "Ingress"),
    ],
)
def test_a_route_where_the_cluster_has_them_else_an_ingress(platform: str, served: tuple[str, ...], kind: str) -> None:
    found = objects(*NAMED, f"site.platform={platform}", served=served)
    assert {each["kind"] for each in found} & {"Route", "Ingress"} == {kind}
    assert one(found, kind)["metadata"]["name"] == "demo-model"  # demo is OpenShift AI's, which deletes it


def test_both_lead_to_the_service_that_outlives_runs() -> None:
    more = ("site.expose.tlsSecret=tls", "site.expose.ingressClass=nginx", "site.expose.annotations.a=b")
    ingress = one(objects(*NAMED, *more), "Ingress")
    (rule,) = ingress["spec"].pop("rules")
    backend = {"service": {"name": "demo-predictor", "port": {"number": 80}}}
    assert rule["host"] == "survival.example.com"
    assert rule["http"]["paths"] == [{"path": "/", "pathType": "Prefix", "backend": backend}]
    assert ingress["spec"].pop("tls") == [{"hosts": ["survival.example.com"], "secretName": "tls"}]
    assert ingress["spec"] == {"ingressClassName": "nginx"} and ingress["metadata"]["annotations"] == {"a": "b"}
    on = ("site.expose.enabled=true", "site.platform=openshift", "site.expose.annotations.a=b")
    route = one(objects(*on), "Route")
    assert route["spec"]["to"]["name"] == "demo-predictor" and "host" not in route["spec"]
    assert route["spec"]["port"] == {"targetPort": 8080}  # also that of a headless Service's endpoints
    assert route["spec"]["tls"] == {"termination": "edge", "insecureEdgeTerminationPolicy": "Redirect"}
    assert route["metadata"]["annotations"] == {"a": "b", "haproxy.router.openshift.io/timeout": "5m"}


def test_an_exposure_that_cannot_work_is_refused() -> None:
    assert "site.expose.host: empty; an Ingress needs" in refusal("site.expose.enabled=true")
    for key in ("ingressClass", "tlsSecret"):
        said = refusal(*NAMED, f"site.expose.{key}=x", "site.platform=openshift")
        assert f"site.expose.{key}: x, but OpenShift exposes by a Route, which has none; remove it" in said


@pytest.mark.parametrize(
    ("sets", "says"),
    [
        (NAMED, "http://survival.example.com/v1/models"),
        ((*NAMED, "site.expose.tlsSecret=x"), "https://survival.example.com/v1/models"),
        (
            ("site.expose.enabled=true", "site.platform=openshift"),
            "https://$(kubectl -n lab get route demo-model -o jsonpath='{.spec.host}')/v1/models",
        ),
    ],
)
def test_notes_name_the_address(sets: tuple[str, ...], says: str) -> None:
    given = [word for file in (*LOCAL, str(SITE)) for word in ("-f", file)]
    given += [word for each in sets for word in ("--set", each)]
    out = helm("helm4", os.devnull, "install", "demo", str(CHART), *given, "--dry-run=client", "-o", "json")
    assert f"\n  curl -s {says}\n" in json.loads(out)["info"]["notes"]


OPENSHIFT_AI = (*REAL_CLUSTER, ROUTES, "security.openshift.io/v1", "datasciencecluster.opendatahub.io/v2")


def test_with_auth_all_who_ask_go_through_the_proxy_with_a_token() -> None:
    """At 8443, the Service's only port then; the promoter may get the InferenceService, which the proxy asks for."""
    on = ("site.auth=true", "site.expose.enabled=true")
    found = with_service(objects(*on, served=OPENSHIFT_AI))
    annotations = one(found, "InferenceService")["metadata"]["annotations"]
    assert annotations["security.opendatahub.io/enable-auth"] == "true"
    route = one(found, "Route")["spec"]
    assert (route["port"]["targetPort"], route["tls"]["termination"]) == (8443, "reencrypt")
    pod = one(found, "Pod")["spec"]
    assert pod["automountServiceAccountToken"] is True and pod["serviceAccountName"] == "demo-promote"
    (container,) = pod["containers"]
    assert [word for word in container["args"] if "--url" in word] == [
        "--url=https://demo-predictor.lab.svc.cluster.local:8443"
    ]
    assert {"TRAINLAB_TOKEN_FILE", "TRAINLAB_CA_FILE"} < {each["name"] for each in container["env"]}
    (rule,) = [each for each in one(found, "Role")["rules"] if each.get("resourceNames") == ["demo"]]
    assert "get" in rule["verbs"] and rule["resources"] == ["inferenceservices"]
    named = one(objects(*on, "site.serviceAccount=mine", served=OPENSHIFT_AI), "Pod")
    assert named["spec"]["serviceAccountName"] == "mine"
    assert "site.auth: true, but the cluster has no OpenShift AI" in refusal("site.auth=true", served=REAL_CLUSTER)
    assert "site.auth: true with an Ingress, which does not reach" in refusal(*NAMED, "site.auth=true")


def test_a_hardware_profile_is_two_annotations_where_openshift_ai_reads_them() -> None:
    name = "site.hardwareProfile.name=small"
    served = (*REAL_CLUSTER, "infrastructure.opendatahub.io/v1")
    for more, namespace in (((), "lab"), (("site.hardwareProfile.namespace=redhat-ods-applications",), None)):
        found = with_service(objects(name, *more, served=served))
        annotations = one(found, "InferenceService")["metadata"]["annotations"]
        assert annotations["opendatahub.io/hardware-profile-name"] == "small"
        assert annotations["opendatahub.io/hardware-profile-namespace"] == (namespace or "redhat-ods-applications")
    assert "small, but the cluster serves no HardwareProfile of" in refusal(name, served=REAL_CLUSTER)


def test_a_hardware_profile_replaces_neither_what_the_server_asks_for_nor_its_tolerations() -> None:
    """OpenShift AI fills what the InferenceService does not say with the profile's defaults, which win over the runtime's."""
    served = (*REAL_CLUSTER, "infrastructure.opendatahub.io/v1")
    more = ("phase.serve.runtime=vllm", "phase.serve.gpus=1", "phase.serve.dtype=bfloat16", "site.images.vllm=a/b:1")
    found = with_service(objects("site.hardwareProfile.name=small", *more, served=served))
    predictor = one(found, "InferenceService")["spec"]["predictor"]
    (container,) = one(found, "ServingRuntime")["spec"]["containers"]
    asked = container["resources"]
    assert predictor["model"]["resources"]["requests"] == asked["requests"]
    assert predictor["model"]["resources"]["limits"] == {"cpu": asked["requests"]["cpu"], **asked["limits"]}
    assert predictor["tolerations"] == one(found, "ServingRuntime")["spec"]["tolerations"]
    sent = ("phase.resources.gpus_per_node=1", "phase.resources.processes_per_node=1", "site.nodeSelector.gpu=L40S")
    on_cpu = with_service(objects("site.hardwareProfile.name=small", *sent, served=served))
    tolerated = one(on_cpu, "ServingRuntime")["spec"]["tolerations"]
    assert tolerated and one(on_cpu, "InferenceService")["spec"]["predictor"]["tolerations"] == tolerated
    plain = one(with_service(objects(*more, served=served)), "InferenceService")["spec"]["predictor"]
    assert "resources" not in plain["model"] and "tolerations" not in plain


def test_a_model_with_hours_is_taken_down_by_one_who_may_do_nothing_else() -> None:
    assert "CronJob" not in {each["kind"] for each in objects()}
    found = objects("phase.serve.hours=4")
    assert run_of(found) == run_of(objects())
    made = one(found, "CronJob")["spec"]["jobTemplate"]
    assert made["metadata"]["labels"] == {"app.kubernetes.io/component": "lease"}  # or it passes for the promotion
    job = made["spec"]
    served_by = [one(with_service(each), "ServingRuntime")["metadata"]["name"] for each in (found, objects())]
    assert served_by[0] == served_by[1]  # no restart
    spec = job["template"]["spec"]
    assert_restricted("CronJob", spec)
    assert spec["serviceAccountName"] == "demo-lease" and spec["automountServiceAccountToken"] is True
    assert spec["containers"][0]["args"] == ["--namespace=lab", "--name=demo"]
    (role,) = [each for each in found if each["kind"] == "Role" and each["metadata"]["name"] == "demo-lease"]
    assert role["rules"] == [
        {
            "apiGroups": ["serving.kserve.io"],
            "resources": ["inferenceservices"],
            "resourceNames": ["demo"],
            "verbs": ["get", "delete"],
        }
    ]
    (promote,) = one(found, "Job")["spec"]["template"]["spec"]["containers"]
    assert "--hours=4" in promote["args"]
    own = objects("phase.serve.hours=4", "site.serviceAccount=mine")
    assert one(own, "CronJob")["spec"]["jobTemplate"]["spec"]["template"]["spec"]["serviceAccountName"] == "mine"
    assert not {"Role", "ServiceAccount"} & {each["kind"] for each in own}
