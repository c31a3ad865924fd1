"""plugins/plugin_utils/connection.py: each way to a cluster that oc, kubernetes.core and Automation Platform know."""

from __future__ import annotations

import base64
import json
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleActionFail
from ansible_collections.trainlab.rhoai.plugins.action.attendees_kubeconfigs import kubeconfig_text
from ansible_collections.trainlab.rhoai.plugins.plugin_utils import connection, kube
from api_server import printed
from api_server.loopback_tls import self_signed

from .conftest import Cluster

WORDS = ("K8S_AUTH", "KUBE", "HTTP", "http", "NO_PROXY", "no_proxy")


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An environment that names no cluster, and a home without one."""
    for name in [name for name in os.environ if name.startswith(WORDS)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Key and certificate of 127.0.0.1."""
    certificate, key = self_signed(tmp_path_factory.mktemp("certificate") / "api", "IP:127.0.0.1")
    certificate.write_text(key.read_text() + certificate.read_text(), encoding="ascii")
    return certificate


@pytest.fixture
def secure(tmp_path: Path, certificate: Path) -> Iterator[Any]:
    """An https server: kubectl sends no token to any other."""
    made = Cluster(tmp_path, certificate)
    made.trust = {"certificate-authority": str(certificate)}
    yield made
    made.server.shutdown()
    made.server.server_close()


def entries(server: Any, name: str = "test", **user: Any) -> dict[str, Any]:
    """A kubeconfig's entries of one name, for an address or for a server of the tests."""
    where = {"server": server} if isinstance(server, str) else {"server": server.url} | server.trust
    return {
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "clusters": [{"name": name, "cluster": where}],
        "users": [{"name": name, "user": user or {"token": f"token-of-{name}"}}],
    }


def write(file: Path, *parts: dict[str, Any], current: str = "") -> Path:
    """Write a kubeconfig of these entries."""
    config: dict[str, Any] = {"apiVersion": "v1", "kind": "Config", "current-context": current}
    for key in ("contexts", "clusters", "users"):
        config[key] = [one for part in parts for one in part[key]]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    return file


def reached(cluster: Any, kubeconfig: str = "", context: str = "") -> kube.Api:
    """Connect; kubectl and Helm reach the same server with the printed commands, and send the same token."""
    api, version = kube.connect(kubeconfig, context)
    assert version["gitVersion"] == "v1.34.4" and api.server == cluster.url
    token = cluster.headers["Authorization"]
    cluster.headers = {}
    done = subprocess.run(f"{api.kubectl} get --raw /version", shell=True, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{api.kubectl}: {done.stderr}"
    assert cluster.headers["Authorization"] == token
    cluster.headers = {}
    cluster.objects["/api/v1/namespaces/none/secrets"] = {"kind": "SecretList", "apiVersion": "v1", "items": []}
    listing = f"{api.connection.command('helm')} -n none list"
    done = subprocess.run(listing, shell=True, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{listing}: {done.stderr}"
    assert cluster.headers["Authorization"] == token
    return api


@pytest.fixture(scope="module", autouse=True)
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The embedded cluster's kubectl and Helm in the PATH."""
    folder = printed.programs(tmp_path_factory.mktemp("bin"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(folder), prepend=os.pathsep)
        yield folder


@pytest.mark.parametrize("check", [("K8S_AUTH_VERIFY_SSL", "False"), ("K8S_AUTH_SSL_CA_CERT", "")])
def test_what_automation_platform_puts_into_the_environment(
    secure: Any, monkeypatch: pytest.MonkeyPatch, check: tuple[str, str]
) -> None:
    monkeypatch.setenv("K8S_AUTH_HOST", secure.url)
    monkeypatch.setenv("K8S_AUTH_API_KEY", "of-the-credential")
    monkeypatch.setenv(*check)
    if check[0] == "K8S_AUTH_SSL_CA_CERT":
        monkeypatch.setenv("K8S_AUTH_SSL_CA_CERT", secure.trust["certificate-authority"])
    api = reached(secure)
    assert "of-the-credential" not in api.kubectl + api.connection.origin
    assert api.connection.command("helm", "/my tools/helm").startswith(
        "HELM_KUBETOKEN=\"$K8S_AUTH_API_KEY\" '/my tools/helm' "
    )
    secure.objects["/api"] = 401
    with pytest.raises(AnsibleActionFail, match=r"^K8S_AUTH_HOST: http.*refuses these credentials"):
        kube.connect("")


@pytest.mark.parametrize("of", ["variable", "KUBECONFIG", "K8S_AUTH_KUBECONFIG"])
def test_several_files_and_spaces_in_their_names(
    secure: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of: str
) -> None:
    first = write(tmp_path / "my team" / "a", entries("http://127.0.0.1:9", "a"))
    second = write(tmp_path / "my team" / "b", entries(secure, "b"), current="b")
    given = os.pathsep.join(map(str, (first, tmp_path / "absent", second)))
    if of == "variable":
        reached(secure, given)
    else:
        monkeypatch.setenv(of, given)
        reached(secure, given if of == "KUBECONFIG" else "")  # as role phase passes it
    assert secure.headers["Authorization"] == ["Bearer token-of-b"]


def test_a_context_and_a_path_with_a_space_and_a_tilde(secure: Any, tmp_path: Path) -> None:
    parts = (entries("http://127.0.0.1:9", "a"), entries(secure, "b b"))
    write(tmp_path / "home" / "my clusters" / "config", *parts, current="a")
    api = reached(secure, "~/my clusters/config", "b b")
    assert api.kubectl.endswith("my clusters/config' --context='b b'")


def test_the_usual_file_needs_no_option(secure: Any, tmp_path: Path) -> None:
    write(tmp_path / "home" / ".kube" / "config", entries(secure), current="test")
    assert reached(secure, "~/.kube/config").kubectl == "kubectl"
    assert reached(secure, "").kubectl == "kubectl"


def test_an_exec_plugin(secure: Any, tmp_path: Path) -> None:
    """As aws, gcloud and oc's own logins provide tokens."""
    said = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "minted"}}
    script = tmp_path / "login"
    script.write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps(said)}\nEND\n", encoding="utf-8")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    run = {"apiVersion": said["apiVersion"], "command": str(script), "interactiveMode": "Never"}
    reached(secure, str(write(tmp_path / "config", entries(secure, exec=run), current="test")))
    assert secure.headers["Authorization"] == ["Bearer minted"]


@pytest.mark.parametrize("way", ["HTTP_PROXY", "K8S_AUTH_PROXY", "proxy-url"])
def test_a_proxy(cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """The address is one that only the proxy knows; our server acts as the proxy, which gets absolute URLs."""
    there = "http://api.cluster.example:6443"
    part = entries(there)
    if way == "proxy-url":
        part["clusters"][0]["cluster"]["proxy-url"] = cluster.url
    else:
        monkeypatch.setenv(way, cluster.url)
    api, _version = kube.connect(str(write(tmp_path / "config", part, current="test")))
    assert cluster.asked[0] == ("GET", f"{there}/version")
    assert ("proxy-url" in api.connection.cluster_entry()) == (way != "HTTP_PROXY")
    assert cluster.url not in api.kubectl, "it may contain a password"
    for program in ("kubectl", "helm"):
        cluster.asked.clear()
        ask = {"kubectl": "get --raw /version", "helm": "-n none list"}[program]
        printed_line(f"{api.connection.command(program)} {ask}", ok=program == "kubectl")
        assert cluster.asked[0][1].startswith(there), program


def printed_line(line: str, ok: bool = True) -> None:
    """Run a printed command, in the environment of the playbook that printed it."""
    done = subprocess.run(line, shell=True, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == ok, f"{line}: {done.stderr}"


def test_impersonation(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("K8S_AUTH_IMPERSONATE_USER", "ann")
    monkeypatch.setenv("K8S_AUTH_IMPERSONATE_GROUPS", "blue,dark green")
    api, _version = kube.connect(str(cluster.kubeconfig))
    for line in ("", f"{api.kubectl} get --raw /version", f"{api.connection.command('helm')} -n none list"):
        if line:
            cluster.headers = {}
            printed_line(line, ok="helm" not in line)  # there is nothing to list
        assert cluster.headers["Impersonate-User"] == ["ann"], line
        assert list(dict.fromkeys(cluster.headers["Impersonate-Group"])) == ["blue", "dark green"], (
            "Helm sends each twice"
        )


def test_a_certificate_that_is_not_checked(secure: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the environment says of the certificate holds for a kubeconfig's server as well."""
    secure.trust = {}
    monkeypatch.setenv("K8S_AUTH_VERIFY_SSL", "no")
    reached(secure, str(write(tmp_path / "config", entries(secure), current="test")))


def test_programs_of_the_embedded_cluster(
    cluster: Any, tmp_path: Path, kubectl: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its kubectl and Helm are in no PATH, so printed commands name them in full."""
    home = tmp_path / "train lab"
    (home / "cache").mkdir(parents=True)
    (home / "cache" / "bin").symlink_to(kubectl)
    file = write(home / "cluster" / "admin.conf", entries(cluster), current="test")
    monkeypatch.setenv("PATH", str(tmp_path))
    api, _version = kube.connect(str(file))
    assert "train lab/cache/bin/kubectl' " in api.kubectl
    printed_line(f"{api.kubectl} get --raw /version")


def test_two_ways_at_once_are_refused(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """kubernetes.core would take the host, and the file that the inventory names would not be read."""
    monkeypatch.setenv("K8S_AUTH_HOST", "https://elsewhere:6443")
    with pytest.raises(AnsibleActionFail, match="unset K8S_AUTH_HOST, or leave trainlab_kubeconfig out"):
        kube.connect(str(cluster.kubeconfig))
    with pytest.raises(AnsibleActionFail, match=r"^trainlab_kube_context: there: .*unset K8S_AUTH_HOST"):
        kube.connect("", "there")
    with pytest.raises(AnsibleActionFail, match=r"without a token; .* set K8S_AUTH_API_KEY, or unset K8S_AUTH_HOST"):
        kube.connect("")


def test_an_entry_for_others_carries_the_certificate(tmp_path: Path) -> None:
    authority = tmp_path / "ca.crt"
    authority.write_text("a certificate", encoding="utf-8")
    part = entries("https://127.0.0.1:9")
    part["clusters"][0]["cluster"] |= {"certificate-authority": "ca.crt", "tls-server-name": "api"}
    found = connection.find(str(write(tmp_path / "config", part, current="test")))
    data = base64.b64encode(b"a certificate").decode()
    wanted = {"server": "https://api:6443", "tls-server-name": "api", "certificate-authority-data": data}
    assert found.cluster_entry("https://api:6443") == wanted
    assert yaml.safe_load(kubeconfig_text(wanted, "a", "b", "c"))["clusters"][0]["cluster"] == wanted


@pytest.mark.parametrize(("content", "reason"), [("a note", "this is no kubeconfig"), ("", ""), ("{users: [", "")])
def test_a_file_that_is_no_kubeconfig(tmp_path: Path, content: str, reason: str) -> None:
    """File, reason and remedy, whatever is in it."""
    file = tmp_path / "admin.conf"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(AnsibleActionFail) as refused:
        connection.find(str(file))
    said = str(refused.value)
    assert said.startswith(f"trainlab_kubeconfig: {file}: {reason}") and "set trainlab_kubeconfig to a file" in said
    assert "'str' object" not in said
