"""The webhooks that deny a workload whose HardwareProfile is not there, as admission webhooks that policies.py registers.

Which of them a release has, with whose name, words and HTTP status, is in statuses/rhoai-RELEASE.yaml. The real ones write what the
profile says into the workload, too; these only deny.
"""

from __future__ import annotations

import base64
import json
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from api_server.client import Client, Json
from api_server.loopback_tls import secure

WHAT = "a hardware profile that is not there"
API = "infrastructure.opendatahub.io"
NAME, NAMESPACE = "opendatahub.io/hardware-profile-name", "opendatahub.io/hardware-profile-namespace"


class Profiles:
    """One HTTPS server for the webhooks of a release, started with the first of them."""

    def __init__(self, client: Client) -> None:
        """Deny nothing before it is asked for a webhook."""
        self._client = client
        self._denials: dict[str, Json] = {}
        self._url, self._authority = "", ""

    def webhook(self, denial: Json) -> Json:
        """Return the configuration that makes the API server ask here; `denial` is an entry of the file."""
        if not self._url:
            self._start()
        name = denial["webhook"]
        self._denials[f"/{name}"] = denial
        group, version, resource = denial["resource"].split("/")
        rule = {"apiGroups": [group], "apiVersions": [version], "resources": [resource]}
        hook = {
            "name": name,
            "clientConfig": {"url": f"{self._url}/{name}", "caBundle": self._authority},
            "rules": [rule | {"operations": denial["operations"]}],
            # the real one allows what names no profile; asked for nothing else, as no node of the embedded cluster reaches loopback
            "matchConditions": [
                {"name": "named", "expression": f"'{NAME}' in object.metadata.?annotations.orValue({{}})"}
            ],
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": name},
            "webhooks": [hook],
        }

    def _start(self) -> None:
        http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        with tempfile.TemporaryDirectory() as folder:
            certificate = secure(http, Path(folder) / "profiles")
            self._authority = base64.b64encode(certificate.read_bytes()).decode("ascii")
        threading.Thread(target=http.serve_forever, daemon=True).start()
        self._url = f"https://127.0.0.1:{http.server_address[1]}"

    def _answer(self, denial: Json, request: Json) -> Json:
        """Return the response to a request of admission."""
        metadata, allowed = request["object"]["metadata"], {"uid": request["uid"], "allowed": True}
        annotations = metadata.get("annotations") or {}
        name = annotations.get(NAME)
        if not name or metadata.get("deletionTimestamp"):
            return allowed
        space = annotations.get(NAMESPACE) or request["namespace"]
        if any(self._client.look(f"{API}/{one}", "HardwareProfile", name, space) for one in ("v1", "v1alpha1")):
            return allowed
        status = {key: denial[key] for key in ("code", "reason") if key in denial}
        said = denial["message"].format(name=name, namespace=space)
        return allowed | {"allowed": False, "status": status | {"message": said}}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        profiles = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                answer = profiles._answer(profiles._denials[self.path.partition("?")[0]], review["request"])
                kept = {key: review[key] for key in ("apiVersion", "kind")}
                content = json.dumps(kept | {"response": answer}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:
                """Quiet."""

        return Handler
