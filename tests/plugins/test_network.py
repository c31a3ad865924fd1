"""What the NetworkPolicies of roles/workspace allow, evaluated for pods with the labels that the chart gives them.

The rules are evaluated as Kubernetes defines them: a pod that a policy selects for a direction may only do what some policy
allows in that direction; both ends have to allow it. (networking.k8s.io/v1, NetworkPolicySpec.)
"""

from __future__ import annotations

import ipaddress
import json
from pathlib import Path
from typing import Any

import jinja2
import jinja2.nativetypes
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
TEMPLATES = ROOT / "roles/workspace/templates"
GOLDEN = yaml.load((ROOT / "tests/charts/golden.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader)
Json = dict[str, Any]
Peer = tuple[Json, Json] | str | None
HERE: Json = {"kubernetes.io/metadata.name": "demo"}
OUTSIDE = "203.0.113.7"
"""An address that is no pod of the cluster: the API server, the registry of an external host, a model hub."""
API_SERVER = "192.0.2.11"
SPACE: Json = {
    "namespace": "demo",
    "egress_ports": [443],
    "ingress_namespaces": ["shop"],
    "ingress_blocks": [f"{API_SERVER}/32"],
    "dns_blocks": ["169.254.0.0/16", "10.96.0.10/32"],
    "builds": True,
    "api_ports": [],
    "auth": False,
}


def rendered(**more: Any) -> list[Json]:
    """Return the policies of a namespace."""
    world = jinja2.Environment(loader=jinja2.FileSystemLoader(TEMPLATES), trim_blocks=True)
    world.filters["to_json"] = json.dumps
    text = world.get_template("network.yaml.j2").render(space=SPACE | more)
    return [each for each in yaml.safe_load_all(text) if each]


def golden(name: str, kind: str) -> list[Json]:
    """Return the objects of a kind in a rendering of the chart."""
    return [each for each in GOLDEN[f"survival-{name}"] if each["kind"] == kind]


(MASTER,) = [
    each["spec"]["pytorchReplicaSpecs"]["Master"]["template"] for each in golden("local-pytorchjob", "PyTorchJob")
]
(WORKER,) = [
    each["spec"]["pytorchReplicaSpecs"]["Worker"]["template"] for each in golden("local-pytorchjob", "PyTorchJob")
]
(NODE,) = [
    each["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    for each in golden("full-trainjob", "TrainingRuntime")
]
(PREPARE,) = [each["spec"]["template"] for each in GOLDEN["staged-pretrain-full-prepare"] if each["kind"] == "Job"]
(PROMOTE,) = [each["spec"]["template"] for each in golden("local-pytorchjob", "Job")]
PODS: dict[str, Json] = {
    "master": MASTER["metadata"]["labels"],
    "worker": WORKER["metadata"]["labels"],
    "node": NODE["metadata"]["labels"],
    "prepare": PREPARE["metadata"]["labels"],
    "promote": PROMOTE["metadata"]["labels"],
    "server": {"serving.kserve.io/inferenceservice": "survival"},  # set by KServe
    "tensorboard": {"app.kubernetes.io/component": "tensorboard"},
    "room": {"app.kubernetes.io/component": "room"},
    "build": {"openshift.io/build.name": "trainlab-trainer-1"},  # set by OpenShift
    "other": {},
}
PEERS: dict[str, Json | str | None] = {
    "hub": OUTSIDE,
    "API server of Kubernetes": API_SERVER,
    "router": {"network.openshift.io/policy-group": "ingress"},
    "router (OVN)": {"policy-group.network.openshift.io/ingress": ""},
    "monitoring": {"network.openshift.io/policy-group": "monitoring"},
    "API server's proxy": {"policy-group.network.openshift.io/host-network": ""},
    "OpenShift AI": {"kubernetes.io/metadata.name": "redhat-ods-applications"},
    "gateway": {"kubernetes.io/metadata.name": "openshift-ingress"},
    "DNS": {"kubernetes.io/metadata.name": "openshift-dns"},
    "DNS of the node": "169.254.25.10",
    "DNS by its Service": "10.96.0.10",
    "shop": {"kubernetes.io/metadata.name": "shop"},
    "neighbor": {"kubernetes.io/metadata.name": "trainlab-grace"},
}


def selects(selector: Json, labels: Json) -> bool:
    """Tell whether a label selector matches these labels."""
    if any(labels.get(key) != value for key, value in selector.get("matchLabels", {}).items()):
        return False
    for each in selector.get("matchExpressions", []):
        assert each["operator"] in ("In", "Exists")
        there = each["key"] in labels
        if not (there if each["operator"] == "Exists" else labels.get(each["key"]) in each["values"]):
            return False
    return True


def passes(rule: Json, side: str, peer: Peer, port: int) -> bool:
    """Tell whether a rule allows a peer (labels of its namespace, of its pod; else an address) on a TCP port."""
    if "ports" in rule and port not in {each["port"] for each in rule["ports"] if each["protocol"] == "TCP"}:
        return False
    if side not in rule:
        return True
    if not isinstance(peer, tuple):
        blocks = [ipaddress.ip_network(each["ipBlock"]["cidr"]) for each in rule[side] if "ipBlock" in each]
        assert not [each for each in rule[side] if "except" in each.get("ipBlock", {})], "not evaluated here"
        return any(ipaddress.ip_address(peer) in block for block in blocks)
    space, pod = peer
    return any(
        (selects(each["namespaceSelector"], space) if "namespaceSelector" in each else space == HERE)
        and selects(each.get("podSelector", {}), pod)
        for each in rule[side]
        if "ipBlock" not in each
    )


def one_way(policies: list[Json], way: str, pod: Json, peer: Peer, port: int) -> bool:
    """Tell whether a pod of the namespace may do this in one direction."""
    mine = [
        each["spec"]
        for each in policies
        if way in each["spec"]["policyTypes"] and selects(each["spec"]["podSelector"], pod)
    ]
    side = {"Egress": "to", "Ingress": "from"}[way]
    return not mine or any(passes(rule, side, peer, port) for each in mine for rule in each.get(way.lower(), []))


def inside(source: str, target: str, port: int) -> bool:
    """Tell whether one pod of the namespace reaches another."""
    policies, ends = rendered(), (PODS[source], PODS[target])
    out = one_way(policies, "Egress", ends[0], (HERE, ends[1]), port)
    return out and one_way(policies, "Ingress", ends[1], (HERE, ends[0]), port)


def out(source: str, peer: str, port: int, **more: Any) -> bool:
    """Tell whether a pod reaches something outside of the namespace."""
    return one_way(rendered(**more), "Egress", PODS[source], whole(PEERS[peer]), port)


def into(peer: str, target: str, port: int) -> bool:
    """Tell whether something outside of the namespace reaches a pod."""
    return one_way(rendered(), "Ingress", PODS[target], whole(PEERS[peer]), port)


def whole(peer: Json | str | None) -> Peer:
    """A peer of the table, a namespace with a pod without labels."""
    return (peer, {}) if isinstance(peer, dict) else peer


@pytest.mark.parametrize("pair", [("worker", "master"), ("master", "worker"), ("node", "node"), ("other", "server")])
def test_pods_of_a_namespace_reach_each_other_on_every_port(pair: tuple[str, str]) -> None:
    assert all(inside(*pair, port) for port in (29500, 23456, 41234, 8080))


@pytest.mark.parametrize("pod", PODS)
def test_names_are_resolved(pod: str) -> None:
    assert out(pod, "DNS", 53) and out(pod, "DNS", 5353)
    for cached in ("DNS of the node", "DNS by its Service"):
        assert out(pod, cached, 53) and not out(pod, cached, 80), "a cloud's metadata is there, too"


def test_what_leaves_the_namespace() -> None:
    first, *_ = PREPARE["spec"].get("initContainers", []) + PREPARE["spec"]["containers"]
    assert first["command"][:2] == ["trainlab", "fetch"], "so it leaves the namespace, too"
    for pod in ("master", "worker", "node", "prepare"):
        assert out(pod, "hub", 443)
        assert not out(pod, "hub", 443, egress_ports=[])
        assert not out(pod, "hub", 25)
        assert out(pod, "hub", 3128, egress_ports=[443, 3128])
    assert out("promote", "hub", 6443) and out("promote", "hub", 443)
    assert out("build", "hub", 443) and out("build", "hub", 5000) and not out("build", "hub", 25)
    for pod in ("server", "tensorboard", "other"):
        assert not out(pod, "hub", 443), "neither answers of a model nor anything else has to leave"
    assert out("server", "hub", 6443, auth=True), "site.auth: the API server judges each token"
    assert not out("tensorboard", "hub", 6443, auth=True)
    for pod in ("promote", "room"):
        assert not out(pod, "hub", 16443) and out(pod, "hub", 16443, api_ports=[16443]), "where the API server listens"
    assert out("room", "hub", 8000, egress_ports=[443, 8000]) and not out("room", "hub", 8000), "engines elsewhere"
    for pod in PODS:
        assert not out(pod, "neighbor", 8080), pod


def test_what_comes_in() -> None:
    proxies = ("API server's proxy", "API server of Kubernetes")
    for peer in ("router", "router (OVN)", "monitoring", *proxies, "OpenShift AI", "gateway", "shop"):
        assert into(peer, "server", 8080), peer
        assert into(peer, "tensorboard", 8080) and not into(peer, "tensorboard", 6006), peer
        assert not into(peer, "server", 22), peer
        assert not into(peer, "promote", 8080), peer
        assert not into(peer, "other", 8080), peer
    for pod in ("master", "node"):
        assert all(into(peer, pod, 28080) for peer in ("OpenShift AI", *proxies))
        assert not into("OpenShift AI", pod, 23456)
        assert not into("router", pod, 28080)
    for pod in PODS:
        assert not any(into(peer, pod, port) for peer in ("neighbor", "hub") for port in (8080, 28080, 23456)), pod


@pytest.mark.parametrize(("network", "limits"), [(True, False), (False, True)])
def test_policies_are_made_unless_they_are_switched_off(network: bool, limits: bool) -> None:
    world = jinja2.nativetypes.NativeEnvironment()
    world.filters["bool"] = bool
    text = yaml.safe_load((ROOT / "roles/workspace/vars/main.yml").read_text(encoding="utf-8"))["__workspace_asked"]
    proxy = {"proxy": {"site": {}}}
    switches = {"workspace_access": False, "workspace_network": network, "workspace_limits": limits}
    asked = world.from_string(text).render(**switches, __workspace_quota={}, trainlab_resolved=proxy)
    assert ("network" in asked, "limits" in asked) == (network, limits)


def test_attendees_have_no_builds() -> None:
    assert [each["metadata"]["name"] for each in rendered(builds=False)] == [
        each["metadata"]["name"] for each in rendered() if each["metadata"]["name"] != "build"
    ]


def test_ports_are_those_of_the_chart() -> None:
    """Progress and server listen on ports that the policies allow."""
    (container,) = MASTER["spec"]["containers"]
    assert [each["containerPort"] for each in container["ports"]] == [28080]
    held = [each.get("data", {}) for each in golden("local-pytorchjob", "ConfigMap")]
    (runtime,) = [each["servingruntime.yaml"] for each in held if "servingruntime.yaml" in each]
    assert [each["containerPort"] for each in runtime["spec"]["containers"][0]["ports"]] == [8080]


@pytest.mark.parametrize(("namespace", "port"), [("kube-system", 53), ("openshift-dns", 5353)])
def test_names_are_asked_for_by_udp_and_by_tcp(namespace: str, port: int) -> None:
    (policy,) = [each for each in rendered() if each["metadata"]["name"] == "inside"]
    (rule, cached) = [each for each in policy["spec"]["egress"] if "ports" in each]
    assert {(each["protocol"], each["port"]) for each in cached["ports"]} == {("UDP", 53), ("TCP", 53)}
    assert selects(rule["to"][0]["namespaceSelector"], {"kubernetes.io/metadata.name": namespace})
    assert {each["protocol"] for each in rule["ports"] if each["port"] == port} == {"UDP", "TCP"}


@pytest.mark.parametrize("component", ["promote", "lease"])
def test_jobs_that_talk_to_the_api_server_reach_it(component: str) -> None:
    labels = {"app.kubernetes.io/component": component}
    assert all(one_way(rendered(), "Egress", labels, OUTSIDE, port) for port in (443, 6443))
