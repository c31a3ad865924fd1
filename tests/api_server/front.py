"""A small proxy in front of an API server, for what no CRD can have; base of builds.py and selfservice.py.

It speaks TLS: kubectl and Helm send no token over plain HTTP.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import requests
import yaml
from ports import Handler, serve_in_thread

from api_server.loopback_tls import secure

SECONDS = 120
"""As long as an API server waits for what it forwards itself: a served model's answer."""
SENT = ("Authorization", "Content-Type", "Accept")


class Front(ABC):
    """Answers what `_own` knows and forwards everything else with the caller's own token."""

    def __init__(self, given: Path, written: Path) -> None:
        """Start it; `given` is a kubeconfig of the API server, `written` becomes the same user's for this proxy."""
        config = yaml.safe_load(given.read_text(encoding="utf-8"))
        cluster = config["clusters"][0]["cluster"]
        self._target = cluster["server"]
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.verify = cluster["certificate-authority"]
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        certificate = secure(self._http, written)
        self.url = f"https://127.0.0.1:{self._http.server_address[1]}"
        config["clusters"][0]["cluster"] = {"server": self.url, "certificate-authority": str(certificate)}
        self.kubeconfig = written
        self.kubeconfig.write_text(yaml.safe_dump(config), encoding="utf-8")
        serve_in_thread(self._http)

    def close(self) -> None:
        """Stop it."""
        self._http.shutdown()
        self._http.server_close()

    @abstractmethod
    def _own(self, method: str, path: str, body: bytes) -> tuple[int, bytes] | None:
        """Answer with status and content; None forwards the request."""

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        front = self

        class Request(Handler):
            def _do(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                own, form = front._own(self.command, self.path.split("?")[0], body), "application/json"
                if own is None:
                    kept = {key: self.headers[key] for key in SENT if self.headers[key]}
                    answer = front._session.request(
                        self.command, front._target + self.path, data=body, headers=kept, timeout=SECONDS
                    )
                    own, form = (answer.status_code, answer.content), answer.headers.get("Content-Type", form)
                status, content = own
                self.answer(status, content, form)

            do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _do

        return Request
