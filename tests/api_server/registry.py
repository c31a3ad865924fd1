"""A registry as somebody runs it: CNCF Distribution with TLS by an authority of its own, and a login.

with Registry(folder, "127.0.0.1") as one: ...
"""

from __future__ import annotations

import base64
import json
import os
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType

from embedded_cluster.base import programs
from embedded_cluster.builds import build
from embedded_cluster.containers import oci
from ports import free_port

USER, PASSWORD = "pusher", "not-a-secret"
HTPASSWD = f"{USER}:$2b$05$6ubsTu3Gh6bNKAFVRq9ml.x.Yyjl10ZBH4gJ0s58MG.RCfC55WRIi\n"
"""The password's bcrypt, the only kind that Distribution takes."""
SECONDS = 30.0
CONFIG = """\
version: 0.1
log: {{level: warn}}
storage:
  filesystem: {{rootdirectory: {folder}/blobs}}
http:
  addr: "{listen}"
  tls: {{certificate: {folder}/server.crt, key: {folder}/server.key}}
auth:
  htpasswd: {{realm: test, path: {folder}/htpasswd}}
"""


class Registry:
    """Runs until `close`, or until the test's process ends."""

    def __init__(self, folder: Path, address: str, listen: str = "") -> None:
        """Start it in `folder`, with a certificate for the IP `address`, and return when it answers."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self.authority = folder, folder / "ca.crt"
        port = free_port(listen or address)
        self.host = f"{address}:{port}"
        certificates(folder, address)
        (folder / "htpasswd").write_text(HTPASSWD, encoding="ascii")
        config = CONFIG.format(folder=folder, listen=f"{listen or address}:{port}")
        (folder / "config.yml").write_text(config, encoding="utf-8")
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start it again where it was, with what it has."""
        command = [*programs.with_us(), str(build.binary("registry")), "serve", str(self._folder / "config.yml")]
        environment = {"PATH": os.environ["PATH"], "OTEL_TRACES_EXPORTER": "none"}
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        end = time.monotonic() + SECONDS
        while True:
            try:
                self.get("")
                return
            except OSError:
                said = (self._folder / "log").read_text(encoding="utf-8")
                assert self._process.poll() is None and time.monotonic() < end, said
                time.sleep(0.05)

    def get(self, path: str, method: str = "GET", accept: str = oci.MANIFEST) -> tuple[bytes, dict[str, str]]:
        """Return body and headers of what is below /v2/; Distribution has no manifest for a client that accepts anything."""
        pair = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        headers = {"Authorization": f"Basic {pair}", "Accept": accept}
        request = urllib.request.Request(f"https://{self.host}/v2/{path}", headers=headers, method=method)
        context = ssl.create_default_context(cafile=str(self.authority))
        context.verify_flags |= ssl.VERIFY_X509_STRICT  # Python's default from 3.13 on
        trusts = urllib.request.HTTPSHandler(context=context)
        with urllib.request.build_opener(urllib.request.ProxyHandler({}), trusts).open(request) as answer:
            return answer.read(), dict(answer.headers)

    def login(self, file: Path, password: str = PASSWORD, name: str = "") -> Path:
        """Write what `podman login` writes."""
        pair = base64.b64encode(f"{USER}:{password}".encode()).decode()
        file.write_text(json.dumps({"auths": {name or self.host: {"auth": pair}}}), encoding="ascii")
        return file

    def close(self) -> None:
        """End it; its images stay in the folder."""
        if self._process:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Registry:
        """Return the registry."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End it."""
        self.close()


def certificates(folder: Path, address: str) -> None:
    """Make ca.crt and, signed by it, server.crt and server.key for an IP."""
    for name in ("ca", "server"):
        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", f"{name}.key")
        signs = ("-x509", "-days", "30", "-addext", "keyUsage=critical,keyCertSign,cRLSign", "-out", "ca.crt")
        kind = signs if name == "ca" else ("-out", "server.csr")
        _openssl(folder, "req", *key, "-subj", f"/CN={name} of the test registry", *kind)
    extensions = f"subjectAltName=IP:{address}\nextendedKeyUsage=serverAuth\nauthorityKeyIdentifier=keyid\n"
    (folder / "server.ext").write_text(extensions, encoding="ascii")
    authority = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "30", "-extfile", "server.ext")
    _openssl(folder, "x509", "-req", "-in", "server.csr", *authority, "-out", "server.crt")


def _openssl(folder: Path, *argv: str) -> None:
    subprocess.run(["openssl", *argv], cwd=folder, check=True, capture_output=True)
