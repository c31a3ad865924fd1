"""How a cluster is reached: read by kubernetes.core's own client layer, so that our plugins and its modules agree.

In this order, which is theirs and oc's: K8S_AUTH_HOST with a token (what a credential of Ansible Automation Platform
injects), a kubeconfig, the service account of the pod in which the playbook runs. trainlab_kubeconfig carries the
second; role phase fills it from the environment.
"""

from __future__ import annotations

import base64
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import getproxies

from ansible.errors import AnsibleActionFail

DEFAULT_FILE = "~/.kube/config"
TOKEN, HOST = "K8S_AUTH_API_KEY", "K8S_AUTH_HOST"
HELM = {
    "context": "kube-context",
    "server": "kube-apiserver",
    "token": "kube-token",
    "certificate-authority": "kube-ca-file",
    "insecure-skip-tls-verify": "kube-insecure-skip-tls-verify",
}
"""Helm's names for kubectl's options."""


@dataclass(frozen=True)
class Connection:
    """Settings of the client library, and what people need to do the same by hand."""

    settings: Any
    """kubernetes.client.Configuration; credentials from an exec plugin are renewed by it."""
    headers: Mapping[str, str | list[str]]
    """Impersonation."""
    origin: str
    """Where it came from, as the beginning of a message: variable and value."""
    environment: Mapping[str, str]
    options: Mapping[str, str]
    """Of oc and kubectl; a value is shell text."""

    def command(self, program: str) -> str:
        """Return the beginning of a shell command that reaches this cluster with oc, kubectl or helm."""
        names = HELM if program == "helm" else {}
        words = [f"{key}={shlex.quote(value)}" for key, value in self.environment.items()]
        words += [program, *(f"--{names.get(key, key)}={value}" for key, value in self.options.items())]
        return " ".join(words)

    def cluster_entry(self, server: str = "") -> dict[str, Any]:
        """Return the cluster of a kubeconfig for others, its certificate inside; `server` replaces the address if set."""
        entry: dict[str, Any] = {"server": server or self.settings.host}
        if self.settings.tls_server_name:
            entry["tls-server-name"] = self.settings.tls_server_name
        own = {url for scheme, url in getproxies().items() if scheme in ("http", "https", "all")}
        if self.settings.proxy and self.settings.proxy not in own:  # this machine's need not be theirs
            entry["proxy-url"] = self.settings.proxy
        if not self.settings.verify_ssl:
            entry["insecure-skip-tls-verify"] = True
        elif self.settings.ssl_ca_cert:
            content = Path(self.settings.ssl_ca_cert).read_bytes()
            entry["certificate-authority-data"] = base64.b64encode(content).decode("ascii")
        return entry


def find(kubeconfig: str = "", context: str = "") -> Connection:
    """Return the connection that a kubeconfig (several files joined as in KUBECONFIG; empty: none) and the environment define.

    Nothing is sent. Raises AnsibleActionFail with variable and remedy.
    """
    try:
        from ansible_collections.kubernetes.core.plugins.module_utils.k8s import client
        from kubernetes import client as library
    except ImportError as error:
        raise AnsibleActionFail(
            f"the Python that runs ansible-playbook lacks the package kubernetes or the collection kubernetes.core ({error}); "
            "run `make venv` or `pip install -r requirements.lock` and use the ansible-playbook of that environment"
        ) from error
    auth = client._create_auth_spec(None, kubeconfig=kubeconfig or None, context=context or None)
    if auth.get("host") and kubeconfig:  # its own modules would silently use the host
        raise AnsibleActionFail(
            f"trainlab_kubeconfig: {kubeconfig}: the environment also sets {HOST}={auth['host']}, which "
            f"kubernetes.core prefers; unset {HOST}, or leave trainlab_kubeconfig out"
        )
    if auth.get("host") and not auth.get("api_key"):
        raise AnsibleActionFail(
            f"{HOST}: {auth['host']}: without a token; Helm takes no other credentials from the environment: set {TOKEN}, "
            f"or unset {HOST} and set trainlab_kubeconfig to a kubeconfig"
        )
    library.Configuration.set_default(None)  # the loaders change the process's default, which another task may have set
    origin, environment, options = _told(auth)
    try:
        settings = client._create_configuration(auth)
    except Exception as error:  # the loaders raise their own, yaml's and plain TypeErrors
        raise AnsibleActionFail(
            f"{origin}: {' '.join(str(error).split())}; set trainlab_kubeconfig to a file with which `kubectl get --raw "
            "/version` works"
        ) from error
    return Connection(settings, client._create_headers(), origin, environment, options)


def _told(auth: Mapping[str, Any]) -> tuple[str, dict[str, str], dict[str, str]]:
    """Return origin, environment and options of a connection; AnsibleActionFail when there is none to read."""
    if host := auth.get("host"):
        options = {"server": shlex.quote(host), "token": f'"${TOKEN}"'}
        if auth.get("verify_ssl") is False:
            options["insecure-skip-tls-verify"] = "true"
        elif auth.get("ssl_ca_cert"):
            options["certificate-authority"] = shlex.quote(auth["ssl_ca_cert"])
        return f"{HOST}: {host}", {}, options
    options = {"context": shlex.quote(auth["context"])} if auth.get("context") else {}
    given = auth.get("kubeconfig") or ""
    if not given and not options and "KUBERNETES_SERVICE_HOST" in os.environ:
        return "the service account of this pod", {}, options
    files = _files(given or DEFAULT_FILE)
    origin = f"trainlab_kubeconfig: {given or DEFAULT_FILE}"
    if not any(file.is_file() for file in files):
        raise AnsibleActionFail(
            f"{origin}: no such file; bring the embedded cluster up with `ansible-playbook playbooks/local.yml`, or set "
            "trainlab_kubeconfig to the kubeconfig of your cluster"
        )
    if files == _files(os.environ.get("KUBECONFIG", DEFAULT_FILE)):
        return origin, {}, options
    if len(files) > 1:
        return origin, {"KUBECONFIG": os.pathsep.join(map(str, files))}, options
    return origin, {}, {"kubeconfig": shlex.quote(str(files[0]))} | options


def _files(joined: str) -> list[Path]:
    return [Path(part).expanduser() for part in joined.split(os.pathsep) if part]
