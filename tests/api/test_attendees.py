"""playbooks/attendees.yml against a real API server that serves the real CRDs of training operator, Trainer, KServe and Kueue."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml
from api_server.attendee import allowed, helm, may, user
from api_server.harness import Cluster
from api_server.training_api import KUEUE, free_claims
from charts.rendering import IMAGE
from waiting import until

pytestmark = pytest.mark.usefixtures("training")
TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists"}
SHARED = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "shared", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
    "provisioner": "nfs.csi.k8s.io",
}
"""The default class, which the chart looks for, as attendees may list classes."""
NO_PROMETHEUS = ("--set", "site.monitoring.enabled=false")


def test_two_attendees_from_nothing_to_nothing(cluster: Cluster, tmp_path: Path) -> None:
    """Each may install the chart in their own namespace and nothing elsewhere; runs repeat; nothing stays."""
    nothing = cluster.objects()
    cluster.client.apply(SHARED)
    pool(cluster)
    bare, dest = cluster.objects(), tmp_path / "handed" / "out"
    wanted: dict[str, Any] = {
        "attendees_names": ["ada", "grace"],
        "attendees_dest": str(dest),
        "attendees_cluster_queue": "trainlab-pool",
        "attendees_timeout": 60,
        # what is the presenter's alone stays there
        "trainlab_site": {
            "images": {"trainer": IMAGE, "pullSecret": "hub"},
            "tolerations": [TOLERATION],
            "storage": {"runs": {"size": "2Gi", "existing": "mine"}},
            "queue": "presenter",
            "hfTokenSecret": "mine",
            "expose": {"enabled": True, "host": "models.example.com"},
            # what all may have
            "monitoring": {"enabled": True},
        },
    }
    planned = cluster.playbook("attendees", "--check", **wanted)
    assert planned.code == 0, planned.text
    assert planned.changed > 0
    assert cluster.objects() == bare
    assert not dest.exists()

    first = cluster.playbook("attendees", **wanted)
    assert first.code == 0, first.text
    assert f"2 kubeconfigs in {dest}" in first.text
    (line,) = re.findall(r"^ *(helm install .*)$", first.text, re.MULTILINE)
    assert line == "helm install quick charts/trainjob -f values/quick.yaml -f site.yaml", (
        "what a quota of one GPU admits"
    )
    ada = dest / "ada.kubeconfig"
    assert ada.stat().st_mode & 0o777 == 0o600
    assert dest.stat().st_mode & 0o777 == 0o700
    written = ada.read_text(encoding="utf-8")
    made = cluster.objects()
    labels = cluster.client.look("v1", "Namespace", "trainlab-ada")["metadata"]["labels"]  # type: ignore[index]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    assert labels["opendatahub.io/dashboard"] == "true"
    error = cluster.playbook("platform_teardown").error
    assert (
        "is in use by ClusterQueue trainlab-attendee-trainlab-ada, ClusterQueue trainlab-attendee-trainlab-grace"
        in error
    )
    assert cluster.objects() == made
    until(lambda: "hard" in (cluster.client.look("v1", "ResourceQuota", "trainlab", "trainlab-grace") or {})["status"])
    untouched = beside_ada(cluster, made - bare)
    assert len(untouched) > 6

    second = cluster.playbook("attendees", "-v", **wanted)
    assert (second.code, second.changed) == (0, 0), second.text
    assert ada.read_text(encoding="utf-8") == written
    assert beside_ada(cluster, made - bare) == untouched
    planned = cluster.playbook("attendees", "--check", **wanted)
    assert (planned.code, planned.changed) == (0, 0), planned.text

    borrowed(cluster)
    rights(ada)
    refused = cluster.playbook("drill", kubeconfig=ada, phase="quick", trainlab_namespace="trainlab-ada").error
    assert "namespace trainlab-ada: you may not get pods/exec, create pods/exec, by which" in refused
    assert "attendees_transfer: true (playbooks/attendees.yml); nothing was struck" in refused
    admission(cluster, ada)
    life_of_a_release(cluster, ada, dest / "site.yaml", line)
    until(lambda: cluster.objects() == made)

    evening = wanted | {
        "attendees_names": ["ada"],
        "attendees_prefix": "evening-",
        "attendees_dest": str(tmp_path / "evening"),
    }
    assert cluster.playbook("attendees", **evening).code == 0
    both = cluster.objects() - made
    one_gone = cluster.playbook("attendees", **wanted | {"attendees_names": ["ada"], "attendees_state": "absent"})
    assert one_gone.code == 0, one_gone.text
    assert cluster.objects() - made == both, "another workshop's ada"
    evening_gone = cluster.playbook("attendees", **evening | {"attendees_names": [], "attendees_state": "absent"})
    assert evening_gone.code == 0, evening_gone.text
    assert [each.name for each in sorted(dest.iterdir())] == ["grace.kubeconfig", "site.yaml"]
    assert not any("ada" in each for each in cluster.objects())
    assert beside_ada(cluster, made - bare) == untouched
    again = cluster.playbook("attendees", **wanted)
    assert again.code == 0, again.text
    assert ada.read_text(encoding="utf-8") != written, "the token of a ServiceAccount that is gone is not kept"
    assert may(ada, "create", "kubeflow.org", "pytorchjobs", "trainlab-ada")
    assert beside_ada(cluster, made - bare) == untouched
    fewer = cluster.playbook(
        "attendees",
        **wanted | {"attendees_preflight": False, "attendees_cluster_queue": "", "attendees_transfer": True},
    )
    assert fewer.code == 0, fewer.text
    assert may(ada, "create", "", "pods/exec", "trainlab-ada")
    assert not may(ada, "create", "", "pods/exec", "trainlab-grace")
    left_out = sorted(each.split(" ")[1] for each in made - cluster.objects())
    assert left_out == sorted(("ClusterQueue", "ClusterRoleBinding", "LocalQueue") * 2)
    assert allowed(ada, "trainlab-grace") == ABOUT_ONESELF

    gone = {"attendees_state": "absent", "attendees_dest": str(dest), "attendees_timeout": 60}
    undone = cluster.playbook("attendees", **gone)
    assert undone.code == 0, undone.text
    assert cluster.objects() == bare
    assert not dest.exists()
    again = cluster.playbook("attendees", **gone)
    assert (again.code, again.changed) == (0, 0), again.text
    undone = cluster.playbook("platform_teardown")
    assert undone.code == 0, undone.text
    cluster.client.delete(SHARED)
    assert cluster.objects() == nothing


def pool(cluster: Cluster) -> None:
    """Our own ClusterQueue, without any operator: what the node offers, but for what the inventory says, and the same again."""
    wanted: dict[str, Any] = {
        "platform_queue": "trainlab-pool",
        "platform_queue_quota": {"memory": "32Gi"},
        # without a kubelet no node becomes ready
        "trainlab_site": {"tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]},
    }
    for _run in range(2):
        run = cluster.playbook("platform", **wanted)
        assert run.code == 0, run.text
    assert run.changed == 0, run.text
    made = cluster.client.look(KUEUE, "ClusterQueue", "trainlab-pool")
    assert made and made["metadata"]["labels"] == {"trainlab.dev/owner": "platform"}
    (flavor,) = made["spec"]["resourceGroups"][0]["flavors"]
    assert flavor["name"] == "trainlab-pool"
    assert {each["name"]: each["nominalQuota"] for each in flavor["resources"]} == {
        "cpu": "8",
        "memory": "32Gi",
        "nvidia.com/gpu": "4",
    }


def borrowed(cluster: Cluster) -> None:
    """Each has a queue of their own, which borrows as many GPUs as their quota allows, and owns none."""
    for name in ("trainlab-ada", "trainlab-grace"):
        local = cluster.client.look(KUEUE, "LocalQueue", "trainlab", name)
        assert local and local["spec"]["clusterQueue"] == f"trainlab-attendee-{name}"
        queue = cluster.client.look(KUEUE, "ClusterQueue", f"trainlab-attendee-{name}")
        assert queue and queue["spec"]["cohortName"] == "trainlab-pool"
        assert queue["spec"]["namespaceSelector"] == {"matchLabels": {"kubernetes.io/metadata.name": name}}
        (flavor,) = queue["spec"]["resourceGroups"][0]["flavors"]
        gpus = {"name": "nvidia.com/gpu", "nominalQuota": "0", "borrowingLimit": "1"}
        assert flavor["name"] == "trainlab-pool" and gpus in flavor["resources"]


def beside_ada(cluster: Cluster, made: set[str]) -> dict[str, tuple[str, str]]:
    """Return uid and resourceVersion of what the play made for the others, or for all: one that changes was written."""
    kinds = {tuple(each.split(" ")[:2]) for each in made}
    result = {}
    for api_version, kind in sorted(kinds):
        for one in cluster.client.items(api_version, kind, labelSelector="trainlab.dev/owner=attendees"):
            metadata = one["metadata"]
            key = f"{kind} {metadata.get('namespace', '')}/{metadata['name']}"
            if "trainlab-ada" not in key:
                result[key] = (metadata["uid"], metadata["resourceVersion"])
    return result


ABOUT_ONESELF = {
    *(("create", "authorization.k8s.io", f"selfsubject{kind}reviews") for kind in ("access", "rules")),
    ("create", "authentication.k8s.io", "selfsubjectreviews"),
}
PREFLIGHT = {("list", "", "nodes"), ("list", "storage.k8s.io", "storageclasses")}


def rights(ada: Path) -> None:
    """Own namespace: what a release needs. Elsewhere, and beyond: nothing."""
    for group, resource in (
        ("kubeflow.org", "pytorchjobs"),
        ("trainer.kubeflow.org", "trainjobs"),
        ("serving.kserve.io", "servingruntimes"),
        ("batch", "jobs"),
        ("monitoring.coreos.com", "podmonitors"),
    ):
        assert may(ada, "create", group, resource, "trainlab-ada"), resource
        assert ("create", group, resource) in allowed(ada, "trainlab-ada"), resource
    # every verb of every resource, the wildcards included: what everybody may ask about themselves, and what the chart checks
    assert allowed(ada, "trainlab-grace") == ABOUT_ONESELF | PREFLIGHT
    for verb, group, resource, namespace in (
        ("list", "", "secrets", ""),
        ("list", "", "namespaces", ""),
        ("create", "", "namespaces", ""),
        ("delete", "", "namespaces", "trainlab-ada"),
        ("get", "", "nodes", ""),
        ("patch", "", "resourcequotas", "trainlab-ada"),
        ("delete", "", "resourcequotas", "trainlab-ada"),
        ("patch", "networking.k8s.io", "networkpolicies", "trainlab-ada"),
        ("create", "", "pods/exec", "trainlab-ada"),
        ("create", "apps", "deployments", "trainlab-ada"),
        ("create", KUEUE.split("/")[0], "localqueues", "trainlab-ada"),
    ):
        assert not may(ada, verb, group, resource, namespace), f"{verb} {resource} {namespace}"
    client = user(ada)
    assert client.send("GET", "/apis/kubeflow.org/v1/namespaces/trainlab-ada/pytorchjobs")["items"] == []
    with pytest.raises(requests.HTTPError, match="403"):
        client.send("GET", "/apis/kubeflow.org/v1/namespaces/trainlab-grace/pytorchjobs")
    more = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "more", "namespace": "trainlab-ada"},
        "rules": [{"apiGroups": [""], "resources": ["resourcequotas"], "verbs": ["delete"]}],
    }
    with pytest.raises(requests.HTTPError, match="attempting to grant RBAC permissions not currently held"):
        client.send("POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/trainlab-ada/roles", more)


def admission(cluster: Cluster, ada: Path) -> None:
    """A pod with more GPUs than the quota, or more rights than `restricted`, is rejected; a compliant one is not."""
    until(lambda: "hard" in (cluster.client.look("v1", "ResourceQuota", "trainlab", "trainlab-ada") or {})["status"])
    container: dict[str, Any] = {
        "name": "c",
        "image": "none",
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    decent = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    client, path = user(ada), "/api/v1/namespaces/trainlab-ada/pods"

    def pod(security: dict[str, Any], gpus: str) -> dict[str, Any]:
        wanted = container | {"resources": {"limits": {"nvidia.com/gpu": gpus}}}
        spec = {"securityContext": security, "containers": [wanted], "automountServiceAccountToken": False}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}

    with pytest.raises(requests.HTTPError, match=r"exceeded quota: trainlab.*requests\.nvidia\.com/gpu"):
        client.send("POST", path, pod(decent, "2"))
    with pytest.raises(requests.HTTPError, match="violates PodSecurity"):
        client.send("POST", path, pod({"runAsUser": 0}, "1"))
    made = client.send("POST", path, pod(decent, "1"))
    assert made["spec"]["containers"][0]["resources"]["limits"]["memory"] == "1Gi", "the LimitRange's default"
    assert "cpu" not in made["spec"]["containers"][0]["resources"]["limits"]
    client.send("DELETE", f"{path}/p", gracePeriodSeconds=0)


def life_of_a_release(cluster: Cluster, ada: Path, site: Path, line: str) -> None:
    """Install by the printed line, upgrade and uninstall with the attendee's kubeconfig, by both training APIs."""
    release, *rest = [str(site) if word == site.name else word for word in shlex.split(line)[2:]]
    done = helm(ada, "install", release, *rest, *NO_PROMETHEUS)
    assert done.returncode == 0, done.stderr
    assert yaml.safe_load(site.read_text(encoding="utf-8"))["site"] == {
        "images": {"trainer": IMAGE},
        "tolerations": [TOLERATION],
        "storage": {"runs": {"size": "2Gi"}},
        "queue": "trainlab",
        "monitoring": {"enabled": True},
        "preflight": True,
    }
    (job,) = cluster.client.items("kubeflow.org/v1", "PyTorchJob", "trainlab-ada")
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "trainlab"
    assert not cluster.client.items("kubeflow.org/v1", "PyTorchJob", "trainlab-grace")
    elsewhere = helm(ada, "install", release, *rest, "-n", "trainlab-grace")
    assert elsewhere.returncode != 0
    assert "forbidden" in elsewhere.stderr
    trainjob = (*NO_PROMETHEUS, "--set", "site.trainingApi=trainjob", "--set", "phase.seed=7")
    done = helm(ada, "upgrade", release, *rest, *trainjob)
    assert done.returncode == 0, done.stderr
    assert cluster.client.items("trainer.kubeflow.org/v1alpha1", "TrainJob", "trainlab-ada")
    done = helm(ada, "uninstall", release)
    assert done.returncode == 0, done.stderr
    client = user(ada)
    for volume in ("models", "runs"):  # as the chart's notes say
        client.send("DELETE", f"/api/v1/namespaces/trainlab-ada/persistentvolumeclaims/{release}-{volume}")
    for claim in cluster.client.items("v1", "PersistentVolumeClaim", "trainlab-ada"):
        # the controller that removes this finalizer does not run here
        cluster.client.merge(claim, {"metadata": {"finalizers": None}})


def test_shared_models_and_image(cluster: Cluster, tmp_path: Path) -> None:
    """A read-only volume on the storage of one claim, the right to pull, and the undo of both."""
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "models", "namespace": "shared"},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "",
            "volumeName": "nfs1",
            "resources": {"requests": {"storage": "20Gi"}},
        },
    }
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "nfs1"},
        "spec": {
            "capacity": {"storage": "20Gi"},
            "accessModes": ["ReadWriteMany"],
            "mountOptions": ["nfsvers=4.1"],
            "nfs": {"server": "10.0.0.1", "path": "/models"},
        },
    }
    wanted: dict[str, Any] = {
        "attendees_count": 2,
        "attendees_dest": str(tmp_path / "out"),
        "attendees_models_claim": "shared/models",
        "attendees_image_namespace": "shared",
        "attendees_preflight": False,
        "attendees_cluster_queue": "nvidia-pool",
        "attendees_quota": {"requests.cpu": 8, "requests.memory": "1024Mi"},
    }
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shared"}}
    before = cluster.objects()
    cluster.client.apply(space)
    assert "attendees_models_claim is shared/models" in cluster.playbook("attendees", **wanted).error
    for thing in (volume, claim):
        cluster.client.apply(thing)
    run = cluster.playbook("attendees", **wanted)
    assert run.code == 0, run.text
    mine = cluster.client.look("v1", "PersistentVolume", "trainlab-models-trainlab-user2")
    assert mine and mine["spec"]["nfs"] == {"server": "10.0.0.1", "path": "/models", "readOnly": True}
    assert mine["spec"]["mountOptions"] == ["nfsvers=4.1", "ro"]
    assert mine["spec"]["claimRef"]["namespace"] == "trainlab-user2"
    assert cluster.client.look("rbac.authorization.k8s.io/v1", "RoleBinding", "trainlab-pull-trainlab-user1", "shared")
    assert not may(tmp_path / "out" / "user1.kubeconfig", "list", "", "nodes")
    site = yaml.safe_load((tmp_path / "out" / "site.yaml").read_text(encoding="utf-8"))
    images = {"trainer": IMAGE}
    models = {"existing": "models"}
    assert site == {"site": {"images": images, "storage": {"models": models}, "queue": "trainlab", "preflight": False}}
    local = cluster.client.look(KUEUE, "LocalQueue", "trainlab", "trainlab-user1")
    assert local and local["spec"]["clusterQueue"] == "nvidia-pool", "somebody else's is used as it is"
    assert {each["metadata"]["name"] for each in cluster.client.items(KUEUE, "ClusterQueue")} == {"nvidia-pool"}
    second = cluster.playbook("attendees", **wanted)
    assert (second.code, second.changed) == (0, 0), second.text
    quota = cluster.client.look("v1", "ResourceQuota", "trainlab", "trainlab-user1")
    assert quota and quota["spec"]["hard"]["requests.memory"] == "1Gi"
    assert quota["spec"]["hard"]["requests.nvidia.com/gpu"] == "1"
    fewer = cluster.playbook("attendees", **wanted | {"attendees_quota": {}})
    assert (fewer.code, fewer.changed) == (0, 1), fewer.text
    quota = cluster.client.look("v1", "ResourceQuota", "trainlab", "trainlab-user1")
    assert quota and "requests.memory" not in quota["spec"]["hard"], "a limit that was taken out is gone"
    one_less = wanted | {"attendees_quota": {}, "attendees_count": 1}
    refused = cluster.playbook("attendees", **one_less)
    assert "would end the access of user2" in refused.error and (tmp_path / "out" / "user2.kubeconfig").exists()
    ended = cluster.playbook("attendees", **one_less, attendees_end=True)
    assert ended.code == 0 and "user2 has no place any more" in ended.text, ended.text
    assert not (tmp_path / "out" / "user2.kubeconfig").exists()
    assert cluster.client.look("v1", "ServiceAccount", "attendee", "trainlab-user2") is None
    assert cluster.client.look("v1", "Namespace", "trainlab-user2"), "what they made stays"

    free_claims(cluster.client)
    undone = cluster.playbook("attendees", **wanted | {"attendees_state": "absent", "attendees_timeout": 60})
    assert undone.code == 0, undone.text
    for thing in (claim, volume):
        cluster.client.delete(thing)
    free_claims(cluster.client)
    cluster.client.delete(space)
    until(lambda: cluster.objects() == before)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "neither": ({}, "set one of them"),
    "both": ({"attendees_count": 2, "attendees_names": ["ada"]}, "set only one of them"),
    "case": ({"attendees_names": ["Ada"]}, "trainlab-Ada is not a valid namespace name"),
    "length": ({"attendees_names": ["a" * 60]}, "up to 63"),
    "twice": ({"attendees_names": ["ada", "ada"]}, "a name twice"),
    "image": (
        {"attendees_count": 1, "trainlab_site": {}},
        "site.images.trainer is empty in trainlab_site",
    ),
    "phase": (
        {"attendees_count": 1, "attendees_phase": "poems"},
        "attendees_phase is poems, but values/poems.yaml is not there; name one of",
    ),
    "cluster queue": (
        {"attendees_count": 1, "attendees_cluster_queue": "gpus"},
        "no such ClusterQueue (there: nvidia-pool)",
    ),
    "queue": (
        {"attendees_count": 1, "attendees_cluster_queue": "nvidia-pool", "attendees_queue": "default"},
        "hold every pod of the namespace",
    ),
    "prefix": (
        {"attendees_names": ["system"], "attendees_prefix": "kube-"},
        "is missing: namespace kube-system; choose other names",
    ),
}


def test_wrong_input_applies_nothing(cluster: Cluster, tmp_path: Path) -> None:
    """Each error names the variable and the remedy."""
    bare = cluster.objects()
    given = {what: variables | {"attendees_dest": str(tmp_path / what)} for what, (variables, _) in WRONG.items()}
    errors = cluster.refusals("attendees", given)
    assert {what: error for what, error in errors.items() if WRONG[what][1] not in error} == {}
    assert cluster.objects() == bare
