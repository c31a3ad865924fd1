"""How a cluster is reached: by the options and variables of kubernetes.core, so that our plugins and its modules agree.

In this order, which is theirs and oc's: K8S_AUTH_HOST with a token (what a credential of Ansible Automation Platform
injects), a kubeconfig, the service account of the pod in which the playbook runs. trainlab_kubeconfig carries the
second; role phase fills it from the environment.
"""

from __future__ import annotations

import base64
import os
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import getproxies

from ansible.errors import AnsibleActionFail

from .playbooks import embedded_words

DEFAULT_FILE = "~/.kube/config"
TOKEN, HOST, PROXY = "K8S_AUTH_API_KEY", "K8S_AUTH_HOST", "K8S_AUTH_PROXY"
HELM = {
    "context": "kube-context",
    "server": "kube-apiserver",
    "certificate-authority": "kube-ca-file",
    "insecure-skip-tls-verify": "kube-insecure-skip-tls-verify",
    "as": "kube-as-user",
    "as-group": "kube-as-group",
}
"""Helm's names for kubectl's options."""
PROGRAMS = Path("cache") / "bin"
"""Folder of the embedded cluster's kubectl and Helm, beside that of its kubeconfig."""


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
    """Of oc, kubectl and helm; a value is shell text, which names a secret and does not contain it."""
    options: tuple[tuple[str, str], ...]
    """Of oc and kubectl; a value is shell text."""
    files: tuple[Path, ...] = ()
    """The kubeconfig."""

    def command(self, program: str, path: str = "") -> str:
        """Return the beginning of a shell command that reaches this cluster with oc, kubectl or helm; `path` is the program's."""
        words, options = [f"{key}={value}" for key, value in self.environment.items()], self.options
        if program == "helm":  # a token stays out of the list of processes, as with the module
            words += [f"HELM_KUBETOKEN={value}" for key, value in options if key == "token"]
            options = tuple((HELM.get(key, key), value) for key, value in options if key != "token")
        words.append(shlex.quote(path or self._installed(program)))
        return " ".join([*words, *(f"--{key}={value}" for key, value in options)])

    def _installed(self, program: str) -> str:
        """Return the program's name or, if it is not in the PATH, the path of the embedded cluster's own."""
        places = [str(file.parent.parent / PROGRAMS) for file in self.files]
        return program if shutil.which(program) else shutil.which(program, path=os.pathsep.join(places)) or program

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
        from ansible_collections.kubernetes.core.plugins.module_utils import args_common
        from kubernetes import client, config
    except ImportError as error:
        raise AnsibleActionFail(
            f"the Python that runs ansible-playbook lacks the package kubernetes or the collection kubernetes.core ({error}); "
            "run `make venv` or `pip install -r requirements.lock` and use the ansible-playbook of that environment"
        ) from error
    auth = _auth(args_common, {"kubeconfig": kubeconfig, "context": context})
    both = {"trainlab_kubeconfig": kubeconfig, "trainlab_kube_context": context}
    for variable, value in both.items():
        if auth.get("host") and value:  # its own modules would silently use the host
            raise AnsibleActionFail(
                f"{variable}: {value}: the environment also sets {HOST}={auth['host']}, which "
                f"kubernetes.core prefers; unset {HOST}, or leave {variable} out"
            )
    if auth.get("host") and not auth.get("api_key"):
        raise AnsibleActionFail(
            f"{HOST}: {auth['host']}: without a token; Helm takes no other credentials from the environment: set {TOKEN}, "
            f"or unset {HOST} and set trainlab_kubeconfig to a kubeconfig"
        )
    origin, files, environment, options = _source(auth)
    try:
        settings = client.Configuration()
        if not auth.get("host"):
            _load(config, auth, settings)
        for name, value in auth.items():
            setattr(settings, name, {"authorization": f"Bearer {value}"} if name == "api_key" else value)
    except Exception as error:  # the loaders raise their own, yaml's and plain TypeErrors
        plain = isinstance(error, TypeError)  # Ansible prints a cause
        reason = "this is no kubeconfig" if plain else " ".join(str(error).split())
        raise AnsibleActionFail(
            f"{origin}: {reason}; set trainlab_kubeconfig to a file with which `kubectl get --raw /version` works"
        ) from (None if plain else error)
    if auth.get("proxy"):  # kubectl and Helm know only the general variables
        scheme = "HTTP" if settings.host.startswith("http:") else "HTTPS"
        environment = {f"{scheme}_PROXY": f'"${PROXY}"', **environment}
    headers = _impersonated()
    return Connection(
        settings, headers, origin, environment, (*options, *_trust(auth), *_impersonation(headers)), files
    )


def _auth(args_common: Any, settings: Mapping[str, str]) -> dict[str, Any]:
    """Return the client library's settings that are given, or in the environment as K8S_AUTH_*, by their names there."""
    from urllib3.util import make_headers

    auth: dict[str, Any] = {}
    for name, option in args_common.AUTH_ARG_MAP.items():
        variables = (f"K8S_AUTH_{option.upper()}", f"K8S_AUTH_{name.upper()}")
        value = settings.get(option) or next(filter(None, map(os.getenv, variables)), None)
        if value is not None and args_common.AUTH_ARG_SPEC[option].get("type") == "bool":
            auth[name] = value.lower() not in ("0", "false", "no")
        elif value is not None:
            auth[name] = value.rstrip("/") if name == "host" else value
    spec = args_common.AUTH_PROXY_HEADERS_SPEC
    headers = {key: value for key in spec if (value := os.getenv(f"K8S_AUTH_PROXY_HEADERS_{key.upper()}"))}
    return auth | ({"proxy_headers": make_headers(**headers)} if headers else {})


def _load(config: Any, auth: Mapping[str, Any], settings: Any) -> None:
    """Fill in what a kubeconfig says or, without one, the service account of this pod."""
    file, context, persist = auth.get("kubeconfig"), auth.get("context"), auth.get("persist_config", False)
    try:
        if file or context:
            raise config.ConfigException
        config.load_incluster_config(client_configuration=settings)
    except config.ConfigException:
        config.load_kube_config(file, context, client_configuration=settings, persist_config=persist)


def _impersonated() -> dict[str, str | list[str]]:
    """Return the headers of impersonation."""
    user, groups = os.getenv("K8S_AUTH_IMPERSONATE_USER"), os.getenv("K8S_AUTH_IMPERSONATE_GROUPS", "")
    headers = {"Impersonate-User": user, "Impersonate-Group": [group for group in groups.split(",") if group]}
    return {name: value for name, value in headers.items() if value}


def _source(auth: Mapping[str, Any]) -> tuple[str, tuple[Path, ...], dict[str, str], list[tuple[str, str]]]:
    """Return origin, kubeconfig, environment and options of a connection; AnsibleActionFail when there is none to read."""
    if host := auth.get("host"):
        return f"{HOST}: {host}", (), {}, [("server", shlex.quote(host)), ("token", f'"${TOKEN}"')]
    options = [("context", shlex.quote(auth["context"]))] if auth.get("context") else []
    kubeconfig = auth.get("kubeconfig") or ""
    if not kubeconfig and not options and "KUBERNETES_SERVICE_HOST" in os.environ:
        return "the service account of this pod", (), {}, options
    files = _files(kubeconfig or DEFAULT_FILE)
    origin = f"trainlab_kubeconfig: {kubeconfig or DEFAULT_FILE}"
    if not any(file.is_file() for file in files):
        raise AnsibleActionFail(
            f"{origin}: no such file; bring the embedded cluster up with `ansible-playbook {embedded_words()}`, or set "
            "trainlab_kubeconfig to the kubeconfig of your cluster"
        )
    if files == _files(os.environ.get("KUBECONFIG", DEFAULT_FILE)):
        return origin, files, {}, options
    if len(files) > 1:
        return origin, files, {"KUBECONFIG": shlex.quote(os.pathsep.join(map(str, files)))}, options
    return origin, files, {}, [("kubeconfig", shlex.quote(str(files[0]))), *options]


def _trust(auth: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the options for what the environment says about the server's certificate."""
    if auth.get("verify_ssl") is False:
        return [("insecure-skip-tls-verify", "true")]
    return [("certificate-authority", shlex.quote(auth["ssl_ca_cert"]))] if auth.get("ssl_ca_cert") else []


def _impersonation(headers: Mapping[str, str | list[str]]) -> list[tuple[str, str]]:
    """Return the options of impersonation."""
    groups = headers.get("Impersonate-Group", [])
    user = [("as", shlex.quote(str(headers["Impersonate-User"])))] if "Impersonate-User" in headers else []
    return user + [("as-group", shlex.quote(group)) for group in ([groups] if isinstance(groups, str) else groups)]


def _files(joined: str) -> tuple[Path, ...]:
    """Return the files of KUBECONFIG as kubectl takes them: those that do not exist only if none does."""
    named = tuple(Path(part).expanduser().absolute() for part in joined.split(os.pathsep) if part)
    return tuple(file for file in named if file.exists()) or named
