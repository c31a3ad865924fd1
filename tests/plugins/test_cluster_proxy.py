"""plugins/action/resolve_phase.py: what a release takes over of OpenShift's Proxy `cluster`."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.trainlab.rhoai.plugins.action import resolve_phase
from ansible_collections.trainlab.rhoai.plugins.plugin_utils.kube import Api

ADDRESS = "http://proxy.example.com:3128"
STATUS = {"httpProxy": ADDRESS, "httpsProxy": "https://proxy.example.com", "noProxy": ".cluster.local,.svc,10.0.0.0/16"}
ENV = {"HTTP_PROXY": ADDRESS, "HTTPS_PROXY": "https://proxy.example.com", "NO_PROXY": STATUS["noProxy"]}


def seen(cluster: Any, found: Any, **site: Any) -> dict[str, Any]:
    """What is taken over of that answer of the API server."""
    cluster.objects[resolve_phase.PROXY] = found
    return resolve_phase.cluster_proxy(Api(str(cluster.kubeconfig)), site)


@pytest.mark.parametrize("found", [404, {}, {"spec": {"trustedCA": {"name": ""}}, "status": {}}])
def test_no_proxy_changes_nothing(cluster: Any, found: Any) -> None:
    """No OpenShift, and the empty Proxy that every OpenShift has."""
    assert seen(cluster, found) == {"site": {}, "ports": []}


def test_addresses_ca_and_ports(cluster: Any) -> None:
    found = {"spec": {"trustedCA": {"name": "user-ca-bundle"}}, "status": STATUS}
    assert seen(cluster, found) == {"site": {"env": ENV, "caConfigMap": resolve_phase.CA}, "ports": [443, 3128]}
    assert "caConfigMap" not in seen(cluster, {"spec": {"trustedCA": {"name": ""}}, "status": STATUS})["site"]


def test_what_the_inventory_says_stays(cluster: Any) -> None:
    found = {"spec": {"trustedCA": {"name": "user-ca-bundle"}}, "status": STATUS}
    got = seen(
        cluster, found, env={"HTTPS_PROXY": "http://other:8080", "HF_ENDPOINT": "https://hub"}, caConfigMap="own"
    )
    assert got["site"] == {"env": {name: ENV[name] for name in ("HTTP_PROXY", "NO_PROXY")}}


def test_a_password_and_missing_rights_are_refused(cluster: Any) -> None:
    with pytest.raises(
        AnsibleActionFail, match=r"a password, .*set trainlab_cluster_proxy: false.*nothing was applied"
    ) as raised:
        seen(cluster, {"status": {"httpsProxy": "http://user:hidden@proxy:3128"}})
    assert "hidden" not in str(raised.value)
    with pytest.raises(AnsibleActionFail, match=r"cannot be read: .*said no; set trainlab_cluster_proxy: false"):
        seen(cluster, 403)
