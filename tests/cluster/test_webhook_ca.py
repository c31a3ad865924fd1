"""Each webhook server has a CA of its own: the key in one operator's Secret signs nothing for another one's webhook."""

from __future__ import annotations

import base64
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from embedded_cluster.base import paths
from embedded_cluster.builds import rootfs
from embedded_cluster.nodes import webhook_ca

MANIFESTS = """apiVersion: v1
kind: Namespace
metadata:
  name: theirs
---
apiVersion: v1
kind: Secret
metadata:
  name: {secret}
---
kind: ValidatingWebhookConfiguration
webhooks:
  - clientConfig: {{caBundle: Cg==}}
---
kind: Deployment
metadata:
  name: manager"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cluster's folder, and the machine's openssl instead of the one in the nodes' root folder."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl on this machine")
    monkeypatch.setattr(paths, "CLUSTER", tmp_path / "cluster")
    monkeypatch.setattr(rootfs, "base", lambda: Path("/"))

    def run(_root: Path, argv: list[str], *, cwd: str) -> str:
        return subprocess.run(argv, cwd=cwd, check=True, capture_output=True, text=True).stdout

    monkeypatch.setattr(rootfs, "run", run)
    return tmp_path


def _signed(operator: str) -> tuple[dict[str, bytes], bytes]:
    """The operator's Secret, and what the API server trusts."""
    text = MANIFESTS.format(secret=webhook_ca.SERVERS[operator].secret)
    documents: list[dict[str, Any]] = list(yaml.safe_load_all(webhook_ca.sign(operator, text)))
    kinds = [document["kind"] for document in documents]
    assert kinds == ["Namespace", "ValidatingWebhookConfiguration", "Secret", "Deployment"]
    bundle = base64.b64decode(documents[1]["webhooks"][0]["clientConfig"]["caBundle"])
    return {key: base64.b64decode(value) for key, value in documents[2]["data"].items()}, bundle


def _verified(authority: bytes, certificate: bytes, host: str, where: Path) -> bool:
    for name, content in (("authority", authority), ("certificate", certificate)):
        (where / name).write_bytes(content)
    command = ["openssl", "verify", "-CAfile", str(where / "authority"), "-verify_hostname", host]
    done = subprocess.run([*command, str(where / "certificate")], capture_output=True, check=False)
    return done.returncode == 0


def test_a_certificate_holds_for_its_own_server_and_no_ca_for_another(folder: Path) -> None:
    found = {name: _signed(name) for name in webhook_ca.SERVERS}
    for name, (secret, bundle) in found.items():
        host = webhook_ca.SERVERS[name].host
        assert secret["ca.crt"] == bundle
        trusting = [other for other, (_, theirs) in found.items() if _verified(theirs, secret["tls.crt"], host, folder)]
        assert trusting == [name]
        assert ("ca.key" in secret) is bool(webhook_ca.SERVERS[name].ca)
    keys = [secret["ca.key"] for secret, _ in found.values() if "ca.key" in secret]
    assert len(set(keys)) == len(keys) == 4 and all(b"BEGIN RSA PRIVATE KEY" in key for key in keys)


def test_an_operator_that_renews_finds_the_name_of_its_ca(folder: Path) -> None:
    """And its certificates are made once."""
    for name, server in webhook_ca.SERVERS.items():
        secret, _ = _signed(name)
        (folder / "ca").write_bytes(secret["ca.crt"])
        said = subprocess.run(
            ["openssl", "x509", "-in", str(folder / "ca"), "-noout", "-text"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        assert re.findall(r"DNS:(\S+)", said) == ([server.ca] if server.ca else [])
        assert _signed(name)[0]["tls.crt"] == secret["tls.crt"]
