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
from api_server.attendee import build
from api_server.client import Json, condition
from api_server.harness import REPO, Cluster, Run
from charts.rendering import IMAGE
from waiting import until

pytestmark = pytest.mark.usefixtures("training")
SPACE = "trainlab-demo"
INVENTORY = REPO / "inventory" / "kubernetes"
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds its token: client-go's rest.InClusterConfig."""


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
        (job,) = jobs(cluster)
    end(job, cluster, "Failed")
    with training_api.trainer(cluster.server.kubeconfig):
        # the failed job is removed, and Helm itself installs it anew
        anew = play("train", **credential, K8S_AUTH_SSL_CA_CERT=entry["certificate-authority"])
        assert anew.code == 0 and token not in anew.text, anew.text
        assert [each["metadata"]["uid"] for each in jobs(cluster)] != [job["metadata"]["uid"]]
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


def jobs(cluster: Cluster) -> list[Json]:
    """The PyTorchJobs of the namespace."""
    return cluster.client.items(training_api.KUBEFLOW, "PyTorchJob", SPACE)


def end(job: Json, cluster: Cluster, how: str) -> None:
    """Set the end of a job, as the training operator does."""
    cluster.client.status(job, {"conditions": [condition(how, True)], "replicaStatuses": {}})


def test_a_context_of_two_files_holds_for_every_task(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The current context is another cluster's, where nobody answers; the folder's name has a space."""
    for name in [name for name in os.environ if name.startswith(("K8S_AUTH", "KUBE"))]:
        monkeypatch.delenv(name)
    folder = tmp_path / "my clusters"
    folder.mkdir()
    there: dict[str, Any] = yaml.safe_load(cluster.server.kubeconfig.read_text(encoding="utf-8"))
    there["contexts"][0]["name"] = "the right one"
    del there["current-context"]
    wrong: dict[str, Any] = {"apiVersion": "v1", "kind": "Config", "current-context": "wrong"}
    wrong["contexts"] = [{"name": "wrong", "context": {"cluster": "wrong", "user": "wrong"}}]
    wrong["clusters"] = [{"name": "wrong", "cluster": {"server": "https://127.0.0.1:9"}}]
    wrong["users"] = [{"name": "wrong", "user": {"token": "wrong"}}]
    for name, content in (("a", wrong), ("b", there)):
        (folder / name).write_text(yaml.safe_dump(content), encoding="utf-8")
    bare = cluster.objects()
    given = {"trainlab_kubeconfig": f"{folder / 'a'}:{folder / 'b'}", "trainlab_helm": str(build.binary("helm"))}
    given |= {"trainlab_site": {"images": {"trainer": IMAGE}}, "image_site_file": ""}

    def play(name: str, *options: str, **environment: str) -> Run:
        return cluster.run(name, INVENTORY, "-e", json.dumps(given), *options, environment=environment)

    chosen = ("-e", "trainlab_kube_context='the right one'")
    assert play("workspace", *chosen).code == 0
    with training_api.trainer(cluster.server.kubeconfig, ends=False):
        assert "it resumes at the last checkpoint" in play("train", *chosen).error
    with training_api.trainer(cluster.server.kubeconfig):
        repaired = play("train", K8S_AUTH_CONTEXT="the right one")
        assert repaired.code == 0, repaired.text
        # the variable wins over the environment, for Helm too
        undone = play("teardown", *chosen, "-e", "teardown_volumes=true", K8S_AUTH_CONTEXT="wrong")
        assert undone.code == 0, undone.text
        until(lambda: cluster.objects() == bare)
