"""Certificate of KServe's webhooks, from a CA of our own; called by operators.

Upstream wants cert-manager for this one Secret: three more pods, and no release of it that the Go proxy can build.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from pathlib import Path

import paths
from say import LabError

NAMESPACE = "kserve"
SECRET = "kserve-webhook-server-cert"
SERVER = "kserve-webhook-server-service.kserve.svc"
PLACEHOLDER = "caBundle: Cg=="
"""What cluster/manifests/kserve/ca_bundle.yaml puts where the CA's certificate has to be."""
DAYS = "3650"


def sign(manifests: str) -> str:
    """Return the manifests with the CA in every webhook and with the server's Secret at the end.

    The certificates are made once per cluster. Raises LabError when openssl fails or nothing is there to sign.
    """
    if PLACEHOLDER not in manifests:
        raise LabError(f"the manifests of KServe have no {PLACEHOLDER!r}; see {paths.MANIFESTS}/kserve/ca_bundle.yaml")
    folder = _certificates()
    bundle = _base64(folder / "ca.crt")
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": SECRET, "namespace": NAMESPACE},
        "data": {"tls.crt": _base64(folder / "tls.crt"), "tls.key": _base64(folder / "tls.key")},
    }
    signed = manifests.replace(PLACEHOLDER, f"caBundle: {bundle}")
    return f"{signed.rstrip()}\n---\n{json.dumps(secret)}\n"


def _certificates() -> Path:
    """Make CA and server certificate where there are none yet; return their folder."""
    folder = paths.CLUSTER / "webhook-ca"
    if folder.exists():
        return folder
    part = folder.with_name("webhook-ca.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True, mode=0o700)
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    _openssl(part, "req", "-x509", *key, "-days", DAYS, "-subj", "/CN=trainlab webhook CA", "-keyout", "ca.key",
             "-out", "ca.crt")  # fmt: skip
    _openssl(part, "req", *key, "-subj", f"/CN={SERVER}", "-keyout", "tls.key", "-out", "tls.csr")
    (part / "san").write_text(f"subjectAltName=DNS:{SERVER}\nextendedKeyUsage=serverAuth\n", encoding="ascii")
    _openssl(part, "x509", "-req", "-in", "tls.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
             "-days", DAYS, "-extfile", "san", "-out", "tls.crt")  # fmt: skip
    part.replace(folder)
    return folder


def _openssl(folder: Path, *arguments: str) -> None:
    try:
        done = subprocess.run(["openssl", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise LabError("openssl: command not found; install the package openssl") from error
    if done.returncode != 0:
        raise LabError(f"openssl {' '.join(arguments)} in {folder}: {done.stderr.strip()}")


def _base64(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode("ascii")
