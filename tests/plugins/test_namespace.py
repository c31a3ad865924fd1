"""plugins/action/namespace.py: which namespace it deletes; the rest of it is in tests/api."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.trainlab.rhoai.plugins.action import namespace
from ansible_collections.trainlab.rhoai.plugins.plugin_utils.losses import Losses, left_in
from ansible_collections.trainlab.rhoai.plugins.plugin_utils.platform_api import PlatformApi


@pytest.mark.parametrize("ours", [True, False])
def test_a_namespace_that_somebody_else_made_is_never_deleted(ours: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    removed: list[dict[str, Any]] = []
    monkeypatch.setattr(namespace.ActionModule, "remove", lambda _action, objects, *_: removed.extend(objects))
    action = object.__new__(namespace.ActionModule)
    action.api, action._name = SimpleNamespace(oc="oc"), "lab"
    monkeypatch.setattr(namespace, "left_in", lambda *_: Losses(set()))
    monkeypatch.setattr(namespace.ActionModule, "check", False)
    labels = namespace.MARK if ours else {"team": "theirs"}
    said = action._absent({"metadata": {"name": "lab", "labels": labels}}, 1.0, "")
    assert (said["changed"], [each["metadata"]["name"] for each in removed]) == (ours, ["lab"] if ours else [])


SPACE = "/api/v1/namespaces/lab"
KINDS = {
    "/api/v1": {
        "Pod": "pods",
        "Secret": "secrets",
        "ConfigMap": "configmaps",
        "PersistentVolumeClaim": "persistentvolumeclaims",
    },
    "/apis/apps/v1": {"Deployment": "deployments"},
    "/apis/kubeflow.org/v1": {"PyTorchJob": "pytorchjobs"},
}


def thing(name: str, kind: str = "", /, **labels: str) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "uid": name,
            "labels": {key.replace("__", "/").replace("_", "."): value for key, value in labels.items()},
        },
        "type": kind,
    }


THINGS: dict[str, tuple[list[dict[str, Any]], str]] = {
    "nothing": ([], ""),
    "a token": ([thing("hf-token")], "1 Secret (hf-token)"),
    "a release without pods": (
        [thing("sh.helm.release.v1.other.v1", "helm.sh/release.v1", name="other")],
        "1 Secret (of Helm release other)",
    ),
    "the cluster's own": ([thing("default-dockercfg-1", "kubernetes.io/dockercfg")], ""),
    "ours": ([thing("made", trainlab_dev__owner="workspace")], ""),
}


@pytest.mark.parametrize("found", THINGS, ids=str)
def test_what_keeps_a_namespace(found: str, cluster: Any) -> None:
    """Secrets as well: those of people, and of Helm releases whose job waits in a queue."""
    for group, kinds in KINDS.items():
        resources = [{"name": name, "kind": kind, "namespaced": True} for kind, name in kinds.items()]
        cluster.objects[group] = {"resources": resources}
        base = group.replace("/api/v1", SPACE) if group == "/api/v1" else f"{group}/namespaces/lab"
        for name in kinds.values():
            cluster.objects[f"{base}/{name}"] = {"items": []}
    secrets, words = THINGS[found]
    cluster.objects[f"{SPACE}/secrets"] = {"items": secrets}
    cluster.objects[f"{SPACE}/configmaps"] = {"items": [thing("kube-root-ca.crt")]}
    said = left_in(PlatformApi(str(cluster.kubeconfig)), "lab").sentence("oc", "lab")
    assert said == (f"{words} (`oc get secret -n lab` lists them)" if words else "")


def test_of_a_suspended_job_its_pods_need_no_other_word_and_others_keep_the_namespace_as_it_is() -> None:
    """What is left of the release that goes, its volumes, needs no rights; in a namespace of somebody else their things need none of ours."""
    volume = {"kind": "PersistentVolumeClaim", **thing("runs", app_kubernetes_io__instance="mine")}
    job = {"kind": "PyTorchJob", **thing("job", app_kubernetes_io__instance="other")}
    secret = {"kind": "Secret", **thing("hf-token")}
    release = {"kind": "Secret", **thing("x", "helm.sh/release.v1", name="mine")}
    assert [namespace._needs(one, "mine", True) for one in (volume, job, secret, release)] == [False, True, True, False]
    assert [namespace._needs(one, "mine", False) for one in (volume, job, secret, release)] == [
        False,
        True,
        False,
        False,
    ]


def test_kinds_that_this_user_may_not_list(cluster: Any) -> None:
    """Secrets may be anybody's; jobs of an operator are not theirs, or they could list them."""
    for group, kinds in KINDS.items():
        cluster.objects[group] = {"resources": [{"name": n, "kind": k, "namespaced": True} for k, n in kinds.items()]}
    cluster.objects["/apis/kubeflow.org/v1/namespaces/lab/pytorchjobs"] = 403
    cluster.objects[f"{SPACE}/secrets"] = 403
    said = left_in(PlatformApi(str(cluster.kubeconfig)), "lab").sentence("oc", "lab")
    assert said.startswith("1 Secret (unknown, as this user may not list them)") and "PyTorchJob" not in said
