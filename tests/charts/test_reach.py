"""How others reach the served model: Prometheus, clients outside of the cluster."""

import json
import os

import pytest

from charts.rendering import CHART, REAL_CLUSTER, SITE, VALUES, Document, documents, one, template
from charts.test_notes import helm

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
