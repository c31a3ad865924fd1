"""playbooks/workspace.yml against a real API server: create, repeat, shrink, undo; also as a user with few rights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import requests
import yaml
from api_server import crds
from api_server.harness import Cluster
from api_server.selfservice import Projects
from api_server.training_api import KUEUE
from waiting import until

pytestmark = pytest.mark.usefixtures("training")
SPACE = "trainlab-demo"
RBAC, NET = "rbac.authorization.k8s.io/v1", "networking.k8s.io/v1"
REVIEW = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
WANTED: dict[str, Any] = {
    "trainlab_namespace": SPACE,
    "trainlab_release": "survival",
    "trainlab_values": ["values/survival.yaml"],
    "trainlab_site": {"queue": "gpus"},
}
FULL: dict[str, Any] = WANTED | {
    "trainlab_cluster_queue": "nvidia-pool",
    "workspace_users": ["ada"],
    "workspace_groups": ["team"],
    "workspace_gpus": 4,
    "workspace_ingress_blocks": ["198.51.100.0/24"],
}
SERVERS: dict[str, Any] = {
    "apiVersion": "discovery.k8s.io/v1",
    "kind": "EndpointSlice",
    "metadata": {"name": "kubernetes", "namespace": "default", "labels": {"kubernetes.io/service-name": "kubernetes"}},
    "addressType": "IPv4",
    "endpoints": [{"addresses": ["192.0.2.12"]}, {"addresses": ["192.0.2.11"]}],
}
"""As API servers write it; those of the tests do not."""
POLICIES = {"build", "deny", "fetch", "inside", "progress", "promote", "room", "serve", "tensorboard"}


def names(cluster: Cluster, api: str, kind: str) -> set[str]:
    """Names of the objects of a kind in the namespace."""
    return {each["metadata"]["name"] for each in cluster.client.items(api, kind, SPACE)}


def let_in(cluster: Cluster, policy: str) -> list[str]:
    """Address blocks from which a policy lets in."""
    (rule,) = cluster.client.look(NET, "NetworkPolicy", policy, SPACE)["spec"]["ingress"]  # type: ignore[index]
    return sorted(each["ipBlock"]["cidr"] for each in rule["from"] if "ipBlock" in each)


def user_may(cluster: Cluster, user: str, group: str, resource: str, namespace: str, *groups: str) -> bool:
    """Ask the API server whether a user may create this."""
    asked = {"verb": "create", "group": group, "resource": resource, "namespace": namespace}
    spec = {"user": user, "groups": list(groups), "resourceAttributes": asked}
    answer = cluster.client.send(
        "POST", REVIEW, {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    )
    return bool(answer["status"]["allowed"])


def test_from_nothing_to_nothing(cluster: Cluster) -> None:
    """Check mode touches nothing, the second run changes nothing, what is no longer requested goes, then the rest."""
    servers = cluster.client.apply(SERVERS)
    bare = cluster.objects()
    planned = cluster.playbook("workspace", "--check", **FULL)
    assert planned.code == 0 and planned.changed > 0, planned.text
    assert cluster.objects() == bare

    first = cluster.playbook("workspace", **FULL)
    assert first.code == 0, first.text
    assert names(cluster, NET, "NetworkPolicy") == POLICIES
    assert (
        let_in(cluster, "serve")
        == let_in(cluster, "room")
        == let_in(cluster, "progress")
        == ["192.0.2.11/32", "192.0.2.12/32", "198.51.100.0/24"]
    )
    assert names(cluster, KUEUE, "LocalQueue") == {"gpus"}
    labels = cluster.client.look("v1", "Namespace", SPACE)["metadata"]["labels"]  # type: ignore[index]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    assert labels["opendatahub.io/dashboard"] == "true"
    assert labels["kueue.openshift.io/managed"] == "true"
    for group, resource in (("kubeflow.org", "pytorchjobs"), ("trainer.kubeflow.org", "trainjobs")):
        assert user_may(cluster, "ada", group, resource, SPACE)
        assert user_may(cluster, "bob", group, resource, SPACE, "team")
        assert user_may(cluster, f"system:serviceaccount:{SPACE}:trainlab", group, resource, SPACE)
        assert not user_may(cluster, "ada", group, resource, "default")
        assert not user_may(cluster, "bob", group, resource, SPACE)
    assert not user_may(cluster, "ada", "", "pods/exec", SPACE)
    admission(cluster)

    second = cluster.playbook("workspace", "-v", **FULL)
    assert (second.code, second.changed) == (0, 0), second.text
    planned = cluster.playbook("workspace", "--check", **FULL)
    assert (planned.code, planned.changed) == (0, 0), planned.text
    opened = cluster.playbook("workspace", **FULL | {"workspace_members_transfer": True})
    assert opened.code == 0, opened.text
    assert user_may(cluster, "ada", "", "pods/exec", SPACE) and not user_may(cluster, "bob", "", "pods/exec", SPACE)

    less = WANTED | {
        "workspace_network": False,
        "workspace_access": False,
        "workspace_limits": {},
        "workspace_quota": {},
    }
    fewer = cluster.playbook("workspace", **less)
    assert (fewer.code, fewer.changed) == (0, 1), fewer.text
    for api, kind in ((NET, "NetworkPolicy"), (KUEUE, "LocalQueue"), (RBAC, "Role"), ("v1", "ResourceQuota")):
        assert names(cluster, api, kind) == set(), kind

    undone = cluster.playbook("workspace", workspace_state="absent", **WANTED)
    assert undone.code == 0, undone.text
    assert cluster.objects() == bare
    again = cluster.playbook("workspace", workspace_state="absent", **WANTED)
    assert (again.code, again.changed) == (0, 0), again.text
    cluster.client.delete(servers)


def test_one_release_goes_and_the_namespace_stays_as_the_others_need_it(cluster: Cluster) -> None:
    """Another release whose job waits without pods, a token, a stopped Deployment: nothing of it goes, and all of it is named."""
    bare = cluster.objects()
    assert cluster.playbook("workspace", **FULL).code == 0
    metadata = {"namespace": SPACE}
    pods = {"metadata": {"labels": {"app": "tool"}}, "spec": {"containers": [{"name": "c", "image": "none"}]}}
    kept: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "Secret", "metadata": metadata | {"name": "hf-token"}},
        {"apiVersion": "v1", "kind": "Secret", "type": "helm.sh/release.v1"}
        | {
            "metadata": metadata | {"name": "sh.helm.release.v1.other.v1", "labels": {"owner": "helm", "name": "other"}}
        },
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata | {"name": "tool"}}
        | {"spec": {"replicas": 0, "selector": {"matchLabels": {"app": "tool"}}, "template": pods}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata | {"name": "notes"}},
    ]
    for thing in kept:
        cluster.client.apply(thing, manager="somebody")
    before = cluster.objects()
    undone = cluster.playbook("workspace", workspace_state="absent", **WANTED)
    assert undone.code == 0, undone.text
    assert cluster.objects() == before
    told = " ".join(undone.text.split())
    assert "stays, with its rights, limits, policies and queue" in told
    assert "1 ConfigMap (notes); 1 Deployment (tool); 2 Secret (hf-token, of Helm release other)" in told
    for thing in kept:
        cluster.client.delete(thing)
    assert cluster.playbook("workspace", workspace_state="absent", **WANTED).code == 0
    until(lambda: cluster.objects() == bare)


def admission(cluster: Cluster) -> None:
    """Five GPUs are more than the quota, four are not; a container without resources gets a request, and no limit."""
    until(lambda: "hard" in (cluster.client.look("v1", "ResourceQuota", "trainlab", SPACE) or {}).get("status", {}))
    path = f"/api/v1/namespaces/{SPACE}/pods"

    def pod(gpus: str) -> dict[str, Any]:
        container: dict[str, Any] = {
            "name": "c",
            "image": "none",
            "resources": {"limits": {"nvidia.com/gpu": gpus}},
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        }
        security = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
        spec = {"containers": [container], "securityContext": security, "automountServiceAccountToken": False}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}

    with pytest.raises(requests.HTTPError, match=r"exceeded quota: trainlab.*requests\.nvidia\.com/gpu"):
        cluster.client.send("POST", path, pod("5"))
    made = cluster.client.send("POST", path, pod("4"))
    assert made["spec"]["containers"][0]["resources"]["requests"] == {
        "cpu": "100m",
        "memory": "256Mi",
        "nvidia.com/gpu": "4",
    }
    assert made["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "4"}, (
        "a build must not be bounded"
    )
    cluster.client.send("DELETE", f"{path}/p", gracePeriodSeconds=0)


def test_a_namespace_of_somebody_else(cluster: Cluster) -> None:
    """It gets rights and queue; network and limits stay theirs; what is theirs by our names is refused; the undo leaves it."""
    theirs = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "trainlab", "namespace": SPACE}},
    ]
    bare = cluster.objects()
    for thing in theirs:
        cluster.client.apply(thing, manager="somebody")
    before = cluster.objects()
    error = cluster.playbook("workspace", **FULL).error
    assert f"ServiceAccount {SPACE}/trainlab is there without label" in error
    assert "nothing was applied" in error
    assert cluster.objects() == before

    cluster.client.delete(theirs[1])
    before = cluster.objects()
    run = cluster.playbook("workspace", **FULL)
    assert run.code == 0, run.text
    assert "is not managed by trainlab: its limits and network are left to its owner" in " ".join(run.text.split())
    assert names(cluster, NET, "NetworkPolicy") == names(cluster, "v1", "LimitRange") == set()
    assert names(cluster, KUEUE, "LocalQueue") == {"gpus"}
    undone = cluster.playbook("workspace", workspace_state="absent", **WANTED)
    assert undone.code == 0, undone.text
    assert "made by somebody else" in undone.text
    assert cluster.objects() == before
    cluster.client.delete(theirs[0])
    until(lambda: cluster.objects() == bare)


def test_a_user_who_may_not_create_namespaces(cluster: Cluster, tmp_path: Path) -> None:
    """Gets a Project; what needs an administrator is reported; the undo deletes the Project. Else: whom to ask."""
    bare = cluster.objects()
    error = cluster.playbook("workspace", kubeconfig=cluster.server.nobody, **WANTED).error
    assert f"trainlab_namespace is {SPACE}" in error
    assert "may not create namespaces; ask an administrator" in error

    projects = Projects(cluster.server, tmp_path)
    given = WANTED | {"kubeconfig": projects.kubeconfig}
    planned = cluster.playbook("workspace", "--check", **given)
    assert planned.code == 0 and planned.changed > 0, planned.text
    assert cluster.objects() == bare
    projects.allowed = False
    error = cluster.playbook("workspace", **given).error
    assert "may create neither namespaces nor projects" in error and "nothing was applied" in error
    projects.allowed = True

    first = cluster.playbook("workspace", **given)
    assert first.code == 0, first.text
    said = " ".join(first.text.split())
    assert f"namespace {SPACE} is a Project of this user" in said
    assert (
        "left to an administrator, as this user may not create them: roles.rbac.authorization.k8s.io, resourcequotas"
        in said
    )
    assert names(cluster, NET, "NetworkPolicy") == POLICIES
    second = cluster.playbook("workspace", "-v", **given)
    assert (second.code, second.changed) == (0, 0), second.text
    assert "may not label it; ask an administrator to run: oc label namespace" in " ".join(second.text.split())

    undone = cluster.playbook("workspace", workspace_state="absent", **given)
    assert undone.code == 0, undone.text
    assert cluster.objects() == bare
    again = cluster.playbook("workspace", workspace_state="absent", **given)
    assert (again.code, again.changed) == (0, 0), again.text

    cluster.client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}})
    error = cluster.playbook("workspace", **given).error
    assert "a project of that name belongs to somebody else" in error
    cluster.client.delete({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}})
    until(lambda: cluster.objects() == bare)
    projects.close()


def test_the_proxy_of_the_cluster(cluster: Cluster, tmp_path: Path) -> None:
    """Its port is open, the ConfigMap that OpenShift fills is there, and plain Helm's site names both, for attendees as well; without it
    all is as before.
    """
    kind = crds.reduced("config.openshift.io", "Proxy", ["v1"], False, "proxies")
    proxy: dict[str, Any] = {"apiVersion": "config.openshift.io/v1", "kind": "Proxy", "metadata": {"name": "cluster"}}
    address = "http://proxy.example.com:3128"
    bare = cluster.objects()
    cluster.client.apply(kind)
    until(lambda: cluster.client.path(proxy["apiVersion"], "Proxy", "cluster", "") is not None)
    cluster.client.apply(proxy | {"spec": {"trustedCA": {"name": "user-ca-bundle"}}})
    cluster.client.status(proxy, {"httpsProxy": address, "noProxy": ".svc"})
    site = tmp_path / "site.yaml"
    given = WANTED | {
        "trainlab_cluster_proxy": True,
        "trainlab_site": {"images": {"trainer": "registry.example.com/trainer:1"}, "env": {"NO_PROXY": ".svc,.local"}},
        "image_site_file": str(site),
    }
    made = cluster.playbook("workspace", **given)
    assert made.code == 0, made.text
    for name in ("fetch", "build"):
        policy = cluster.client.look(NET, "NetworkPolicy", name, SPACE)
        assert policy and {"port": 3128, "protocol": "TCP"} in policy["spec"]["egress"][0]["ports"], name
    trust = cluster.client.look("v1", "ConfigMap", "trainlab-trusted-ca", SPACE)
    assert trust and trust["metadata"]["labels"]["config.openshift.io/inject-trusted-cabundle"] == "true"
    filled = {key: trust["metadata"][key] for key in ("name", "namespace", "labels")}
    cluster.client.apply(trust | {"metadata": filled, "data": {"ca-bundle.crt": "CAs"}}, manager="network-operator")
    again = cluster.playbook("workspace", **given)
    assert (again.code, again.changed) == (0, 0), again.text
    kept = cluster.client.look("v1", "ConfigMap", "trainlab-trusted-ca", SPACE)
    assert kept and kept["data"] == {"ca-bundle.crt": "CAs"}, "OpenShift's part is not ours"

    assert cluster.playbook("image", **given).code == 0
    block = yaml.safe_load(site.read_text(encoding="utf-8"))["site"]
    assert block["env"] == {"HTTPS_PROXY": address, "NO_PROXY": ".svc,.local"}
    assert block["caConfigMap"] == "trainlab-trusted-ca"

    places = given | {
        "attendees_names": ["ada"],
        "attendees_dest": str(tmp_path / "out"),
        "image_ref": "registry.example.com/trainer:1",
    }
    handed = cluster.playbook("attendees", **places)
    assert handed.code == 0, handed.text
    theirs = yaml.safe_load((tmp_path / "out" / "site.yaml").read_text(encoding="utf-8"))["site"]
    assert theirs["env"] == block["env"] and theirs["caConfigMap"] == block["caConfigMap"]
    assert cluster.client.look("v1", "ConfigMap", "trainlab-trusted-ca", "trainlab-ada")
    policy = cluster.client.look(NET, "NetworkPolicy", "fetch", "trainlab-ada")
    assert policy and {"port": 3128, "protocol": "TCP"} in policy["spec"]["egress"][0]["ports"]
    assert cluster.playbook("attendees", **places, attendees_state="absent").code == 0

    cluster.client.status(proxy, {"httpsProxy": None, "noProxy": None})
    gone = cluster.playbook("workspace", **given)
    assert gone.code == 0, gone.text
    assert cluster.client.look("v1", "ConfigMap", "trainlab-trusted-ca", SPACE) is None
    undone = cluster.playbook("workspace", workspace_state="absent", **given)
    assert undone.code == 0, undone.text
    cluster.client.delete(kind)
    until(lambda: cluster.objects() == bare)
