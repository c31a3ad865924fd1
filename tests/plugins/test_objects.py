"""plugins/action/objects_info.py and objects_remove.py: reading and deleting as every other plugin does, with the same retries."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.trainlab.rhoai.plugins.action import objects_info, objects_remove
from ansible_collections.trainlab.rhoai.plugins.plugin_utils import kube
from ansible_collections.trainlab.rhoai.plugins.plugin_utils.platform_api import PlatformApi

PODS = "/api/v1/namespaces/demo/pods"
POD: dict[str, Any] = {"metadata": {"name": "p", "uid": "1", "namespace": "demo"}}


def run(module: Any, cluster: Any, check: bool = False, **args: Any) -> dict[str, Any]:
    """Run a plugin as Ansible does."""
    cluster.objects["/api/v1"] = {"resources": [{"name": "pods", "kind": "Pod", "namespaced": True}]}
    action = module.ActionModule.__new__(module.ActionModule)
    action._task = SimpleNamespace(check_mode=check)
    action.api = PlatformApi(str(cluster.kubeconfig))
    result: dict[str, Any] = action.run_on_cluster(args)
    return result


READ: dict[str, Any] = {
    "api_version": "v1",
    "kind": "Pod",
    "namespace": "demo",
    "name": "",
    "selector": "",
    "rights": [],
}


@pytest.mark.parametrize(("name", "path"), [("", PODS), ("p", f"{PODS}/p")])
def test_what_an_overloaded_server_refused_is_asked_again(
    name: str, path: str, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kube, "PAUSES", (0.0,) * 4)
    cluster.objects[path] = [504, -1, POD if name else {"items": [POD]}]
    found = run(objects_info, cluster, **READ | {"name": name, "selector": "a=b"})["resources"]
    assert found == [POD | {"apiVersion": "v1", "kind": "Pod"}]
    assert ("labelSelector=a%3Db" in cluster.asked[-1][1]) is not bool(name)


def test_what_is_not_there_is_no_error(cluster: Any) -> None:
    """Neither an object nor a kind."""
    assert run(objects_info, cluster, **READ | {"name": "p"})["resources"] == []
    queue = {"api_version": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue"}
    assert run(objects_info, cluster, **READ | queue)["resources"] == []
    document = POD | {"apiVersion": "v1", "kind": "Pod"}
    assert run(objects_remove, cluster, documents=[document], wait=True, timeout=1.0)["changed"] is False


@pytest.mark.parametrize("check", [True, False])
def test_a_removal_is_told_and_in_check_mode_only_told(check: bool, cluster: Any) -> None:
    cluster.objects[f"{PODS}/p"] = POD
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "demo"}}
    told = run(objects_remove, cluster, check, documents=[document], wait=False, timeout=1.0)
    assert (told["changed"], told["removed"]) == (True, ["Pod demo/p"])
    assert [method for method, _path in cluster.asked].count("DELETE") == (not check)
