"""A phase is trained and removed over each kind of connection that needs the real API server, Helm included.

Those that a kubeconfig describes are in tests/plugins/test_connection.py; every run on the embedded cluster uses a
client certificate.
"""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from api_server import training_api
from api_server.attendee import build, until
from api_server.harness import REPO, Cluster, Run
from api_server.server import Server
from charts.rendering import IMAGE

SPACE = "trainlab-demo"
INVENTORY = REPO / "inventory" / "kubernetes"
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds its token: client-go's rest.InClusterConfig."""


@pytest.fixture(scope="module")
def server(training: Server) -> Server:
    """Not the bare OpenShift."""
    return training


def test_trained_by_a_credential_and_removed_from_a_pod(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith(("K8S_AUTH", "KUBE"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    config: dict[str, Any] = yaml.safe_load(cluster.server.kubeconfig.read_text(encoding="utf-8"))
    entry, token = config["clusters"][0]["cluster"], config["users"][0]["user"]["token"]
    bare = cluster.objects()
    site = tmp_path / "made" / "site.yaml"
    given = {"trainlab_helm": str(build.binary("helm")), "teardown_volumes": True, "image_site_file": str(site)}
    given["trainlab_site"] = {"images": {"trainer": IMAGE}}

    def play(name: str, *within: str, **environment: str) -> Run:
        return cluster.run(name, INVENTORY, "-e", json.dumps(given), within=within, environment=environment)

    credential = {"K8S_AUTH_HOST": entry["server"], "K8S_AUTH_API_KEY": token}
    with training_api.trainer(cluster.server.kubeconfig):
        untrusted = play("workspace", **credential)
        assert "K8S_AUTH_HOST" in untrusted.error and "certificate" in untrusted.error
        for playbook, check in (
            ("workspace", {"K8S_AUTH_VERIFY_SSL": "no"}),
            ("train", {"K8S_AUTH_SSL_CA_CERT": entry["certificate-authority"]}),
        ):
            done = play(playbook, **credential, **check)
            assert done.code == 0, done.text
            assert token not in done.text
        assert len(cluster.client.items(training_api.KUBEFLOW, "PyTorchJob", SPACE)) == 1
    assert yaml.safe_load(site.read_text(encoding="utf-8")) == {"site": given["trainlab_site"]}

    (tmp_path / "token").write_text(token, encoding="ascii")
    pod = (
        f"mkdir -p {ACCOUNT} && mount -t tmpfs none {ACCOUNT} && cp {shlex.quote(str(tmp_path / 'token'))} {ACCOUNT}/token && "
        f'cp {shlex.quote(entry["certificate-authority"])} {ACCOUNT}/ca.crt && exec "$@"'
    )
    within = ("unshare", "--mount", "sh", "-c", f"mount -t tmpfs none /var/run && {pod}", "sh")
    host, _, port = entry["server"].removeprefix("https://").partition(":")
    undone = play("teardown", *within, KUBERNETES_SERVICE_HOST=host, KUBERNETES_SERVICE_PORT=port)
    assert undone.code == 0, undone.text
    until(lambda: cluster.objects() == bare)


def test_two_hosts_of_one_cluster_are_refused(cluster: Cluster) -> None:
    """`hosts: all` would train twice at once."""
    bare = cluster.objects()
    inventory = cluster.inventory(hosts={"one": {}, "two": {}}, trainlab_namespace=SPACE)
    refused = cluster.run("workspace", inventory)
    assert "hosts one and two of the inventory are the same cluster" in refused.error
    assert "--limit one" in refused.error
    assert cluster.objects() == bare
    one = cluster.run("workspace", inventory, "--limit", "two", "--check")
    assert one.code == 0, one.text
