"""plugins/plugin_utils/kube.py against a server that speaks HTTP."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.trainlab.rhoai.plugins.plugin_utils import kube, platform_api
from ansible_collections.trainlab.rhoai.plugins.plugin_utils.kube import Api, ApiError, connect, wrong_cluster
from ansible_collections.trainlab.rhoai.plugins.plugin_utils.platform_api import PlatformApi, failure
from ports import free_port

CUT, HALF = -1, -2
"""Instead of an object: the connection ends before the answer, or in the middle of it."""


def test_reads_objects_lists_and_logs(cluster: Any) -> None:
    cluster.objects["/api/v1/namespaces/a"] = {"metadata": {"name": "a"}}
    cluster.items("/api/v1/nodes", {"metadata": {"name": "n1"}})
    cluster.objects["/api/v1/namespaces/a/pods/p/log"] = "one\ntwo\n"
    api, version = connect(str(cluster.kubeconfig))
    assert version["gitVersion"] == "v1.34.4"
    assert api.get("/api/v1/namespaces/a") == {"metadata": {"name": "a"}}
    assert [each["metadata"]["name"] for each in api.items("/api/v1/nodes", "a=b")] == ["n1"]
    assert ("GET", "/api/v1/nodes?labelSelector=a%3Db") in cluster.asked
    assert api.log("a", "p", "c", tailLines=2) == "one\ntwo\n"


def test_what_is_not_there_is_none_or_empty(cluster: Any) -> None:
    api = Api(str(cluster.kubeconfig))
    assert api.get("/api/v1/namespaces/a") is None
    assert api.items("/apis/kubeflow.org/v1/pytorchjobs") == []
    assert api.log("a", "p", "c") == ""
    assert not api.serves("kubeflow.org/v1", "pytorchjobs")


def test_an_error_carries_the_servers_sentence(cluster: Any) -> None:
    cluster.objects["/api/v1/nodes"] = 403
    with pytest.raises(ApiError, match="said no") as raised:
        Api(str(cluster.kubeconfig)).items("/api/v1/nodes")
    assert raised.value.status == 403


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("nodes is forbidden: User nobody cannot list", True),
        ('admission webhook "w" denied the request: Cannot delete DSCInitialization', False),
        ("dscis is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p' denied request: no", False),
    ],
)
def test_a_denial_by_a_webhook_is_no_lack_of_rights(words: str, remedy: bool) -> None:
    """The API server answers both with 403."""
    assert ("cluster-admin rights" in str(failure(ApiError(403, words), "removing"))) is remedy


def test_refused_credentials_name_the_variable(cluster: Any) -> None:
    cluster.objects["/api"] = 401
    with pytest.raises(
        AnsibleActionFail, match=r"trainlab_kubeconfig: .*refuses these credentials \(401.*log in again"
    ):
        connect(str(cluster.kubeconfig))


def test_nobody_listens(kubeconfig_for: Callable[[str], Path]) -> None:
    with pytest.raises(AnsibleActionFail, match=r"trainlab_kubeconfig: .*cannot be reached .*playbooks/local.yml"):
        connect(str(kubeconfig_for(f"http://127.0.0.1:{free_port()}")))


@pytest.mark.parametrize("content", [None, "", "- a\n", "{", "apiVersion: v1\nkind: Config\n"])
def test_a_kubeconfig_that_is_none(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "config"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(AnsibleActionFail, match=r"trainlab_kubeconfig: .*set trainlab_kubeconfig to"):
        connect(str(path))


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The recorded pauses; they take no time."""
    made: list[float] = []
    monkeypatch.setattr(kube.time, "sleep", made.append)
    return made


@pytest.mark.parametrize("status", [429, 500, 503])
def test_an_overloaded_server_is_asked_again(cluster: Any, pauses: list[float], status: int) -> None:
    cluster.objects["/version"] = [status, status, {"gitVersion": "v1.34.4"}]
    _, version = connect(str(cluster.kubeconfig))
    assert version["gitVersion"] == "v1.34.4"
    assert pauses == [1, 2]


def test_a_server_that_stays_overloaded_is_not_called_a_wrong_one(cluster: Any, pauses: list[float]) -> None:
    cluster.objects["/version"] = 429
    with pytest.raises(AnsibleActionFail, match=r"is overloaded or restarting \(429: .*run the playbook again"):
        connect(str(cluster.kubeconfig))
    assert pauses == [1, 2, 4, 8]


def test_an_upload_waits_until_a_builds_pod_has_read_it(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenShift answers when the pod runs; a client that leaves before has its build cancelled."""
    monkeypatch.setattr(PlatformApi, "read_seconds", 0.2)
    cluster.objects["/upload"] = lambda _: time.sleep(0.6) or {"kind": "Build"}
    api = PlatformApi(str(cluster.kubeconfig))
    assert api.upload("/upload", b"{}") == {"kind": "Build"}
    assert api.read_seconds == kube.READ_SECONDS < platform_api.UPLOAD_SECONDS


def test_a_connection_that_is_cut_is_made_again(cluster: Any, pauses: list[float]) -> None:
    cluster.objects["/version"] = [CUT, {"gitVersion": "v1.34.4"}]
    cluster.objects["/api/v1/nodes"] = [HALF, {"items": [{"metadata": {"name": "n1"}}]}]
    api, _ = connect(str(cluster.kubeconfig), None, PlatformApi)
    assert [each["metadata"]["name"] for each in api.items("/api/v1/nodes")] == ["n1"]
    assert pauses == [1, 1]
    assert api.requests == 2


def test_what_an_operator_made_anew_meanwhile_is_not_deleted(cluster: Any, pauses: list[float]) -> None:
    """The response to the first request was lost, and the second one finds another object of that name."""
    cluster.objects["/things/a"] = [CUT, 409]
    assert PlatformApi(str(cluster.kubeconfig)).delete("/things/a", "the-first")
    with pytest.raises(ApiError):
        PlatformApi(str(cluster.kubeconfig)).delete("/things/a")


@pytest.mark.parametrize(
    ("answer", "expected", "words"),
    [
        ({"metadata": {"uid": "here"}}, "here", ""),
        ({"metadata": {"uid": "here"}}, "", ""),
        ({"metadata": {"uid": "here"}}, "there", "is cluster here; set trainlab_kubeconfig"),
        (404, "there", "is cluster none"),
        (403, "there", "id cannot be read"),
    ],
)
def test_another_cluster_is_named(cluster: Any, answer: Any, expected: str, words: str) -> None:
    cluster.objects["/api/v1/namespaces/kube-system"] = answer
    said = wrong_cluster(Api(str(cluster.kubeconfig)), expected)
    assert words in said
    assert bool(said) == bool(words)
