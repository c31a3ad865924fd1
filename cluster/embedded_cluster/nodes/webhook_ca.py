"""Certificates of the operators' webhooks, each from a CA of its own; called by operators.

Some operators get their CA's key, as they renew their certificate: it is worth nothing to the webhooks of the others.

KServe wants cert-manager for one Secret: three more pods, and no recent release that can be built from the Go proxy.
The others make their own certificate, but start with an empty Secret, which the kubelet refreshes only after more
than a minute: with a valid one in place they are ready in seconds, and keep it.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from embedded_cluster.base import paths
from embedded_cluster.builds import rootfs

PLACEHOLDER = "caBundle: Cg=="
"""An overlay's placeholder for the CA's certificate; operators that rotate theirs fill in their own webhooks."""
DAYS = "3650"


@dataclass(frozen=True)
class Server:
    """Where a webhook server is reached, the Secret it reads, and the name it expects of its CA."""

    namespace: str
    service: str
    secret: str
    ca: str | None = None

    @property
    def host(self) -> str:
        return f"{self.service}.{self.namespace}.svc"


SERVERS = {
    "jobset": Server("jobset-system", "jobset-webhook-service", "jobset-webhook-server-cert", "jobset-ca"),
    "kserve": Server("kserve", "kserve-webhook-server-service", "kserve-webhook-server-cert"),
    "kueue": Server("kueue-system", "kueue-webhook-service", "kueue-webhook-server-cert", "kueue-ca"),
    "trainer": Server(
        "kubeflow-system",
        "kubeflow-trainer-controller-manager",
        "kubeflow-trainer-webhook-cert",
        "kubeflow-trainer-ca",
    ),
    "training-operator": Server(
        "kubeflow", "training-operator", "training-operator-webhook-cert", "training-operator-ca"
    ),
}


def make() -> Path:
    """Make a CA and a certificate for each webhook server of this cluster where there are none; return their folder."""
    folder = paths.CLUSTER / "webhook-cas"
    if folder.exists():
        return folder
    part = folder.with_name("webhook-cas.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True, mode=0o700)
    for name, server in SERVERS.items():
        _make(part, name, server)
    part.replace(folder)
    return folder


def _make(folder: Path, name: str, server: Server) -> None:
    """Make NAME-ca.key and NAME-ca.crt, and NAME.key and NAME.crt, which that CA has signed."""
    ca = f"{name}-ca"
    # The rotator in the operators (cert-controller) reads PKCS #1 only, and looks for its CA's name in the SAN.
    _openssl(folder, "genrsa", "-traditional", "-out", f"{ca}.key", "2048")
    alternative = ("-addext", f"subjectAltName=DNS:{server.ca}") if server.ca else ()
    subject = ("-subj", f"/CN=trainlab webhook CA of {name}", *alternative)
    _openssl(folder, "req", "-x509", "-new", "-key", f"{ca}.key", "-days", DAYS, *subject, "-out", f"{ca}.crt")
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", f"{name}.key")
    _openssl(folder, "req", *key, "-subj", f"/CN={server.service}", "-out", f"{name}.csr")
    extensions = f"subjectAltName=DNS:{server.host}\nextendedKeyUsage=serverAuth\n"
    (folder / f"{name}.ext").write_text(extensions, encoding="ascii")
    authority = ("-CA", f"{ca}.crt", "-CAkey", f"{ca}.key", "-CAcreateserial", "-days", DAYS)
    request = ("-in", f"{name}.csr", "-extfile", f"{name}.ext", "-out", f"{name}.crt")
    _openssl(folder, "x509", "-req", *authority, *request)


def sign(operator: str, manifests: str) -> str:
    """Return the manifests with the operator's Secret filled and the CA in those webhooks that ask for it."""
    server = SERVERS.get(operator)
    if server is None:
        return manifests
    folder = make()
    data = {"tls.crt": _base64(folder / f"{operator}.crt"), "tls.key": _base64(folder / f"{operator}.key")}
    data |= {"ca.crt": _base64(folder / f"{operator}-ca.crt")}
    if server.ca:
        data |= {"ca.key": _base64(folder / f"{operator}-ca.key")}
    metadata = {"name": server.secret, "namespace": server.namespace}
    secret = json.dumps({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})
    # Upstream's own Secret would briefly empty ours.
    documents = [text for text in manifests.split("\n---\n") if not _is_secret(text, server.secret)]
    # After the Namespace, which kustomize puts first, and before the Deployment.
    last = next(place for place, text in enumerate(documents) if re.search(r"^kind: Deployment$", text, re.MULTILINE))
    documents.insert(last, secret)
    return "\n---\n".join(documents).replace(PLACEHOLDER, f"caBundle: {_base64(folder / f'{operator}-ca.crt')}")


def _is_secret(document: str, name: str) -> bool:
    return bool(
        re.search(r"^kind: Secret$", document, re.MULTILINE)
        and re.search(rf"^  name: {re.escape(name)}$", document, re.MULTILINE)
    )


def _openssl(folder: Path, *arguments: str) -> None:
    """Run openssl from the nodes' root folder: the machine needs none."""
    rootfs.run(rootfs.base(), ["openssl", *arguments], cwd=str(folder))


def _base64(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode("ascii")
