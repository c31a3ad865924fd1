"""An HTTPS server that answers the API server's requests of admission; used by profiles.py and e2e/scc.py."""

from __future__ import annotations

import base64
import json
import tempfile
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from ports import Handler, serve_in_thread

from api_server.client import Json
from api_server.loopback_tls import secure


class Reviews:
    """Answers from now on, each request in a thread of its own."""

    def __init__(self, answer: Callable[[str, Json], Json], address: str = "127.0.0.1") -> None:
        """`answer` returns the response to a request, given the last part of its path; `address` is one that the API server reaches."""
        self._answer = answer
        self._http = ThreadingHTTPServer((address, 0), self._handler())
        with tempfile.TemporaryDirectory() as folder:
            certificate = secure(self._http, Path(folder) / "reviews", address)
            self._authority = base64.b64encode(certificate.read_bytes()).decode("ascii")
        serve_in_thread(self._http)
        self._url = f"https://{address}:{self._http.server_address[1]}"

    def client_config(self, name: str) -> Json:
        """Return how a webhook's configuration names this server, for requests whose path ends with `name`."""
        return {"url": f"{self._url}/{name}", "caBundle": self._authority}

    def close(self) -> None:
        """Answer no more."""
        self._http.shutdown()
        self._http.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        answer = self._answer

        class Review(Handler):
            def do_POST(self) -> None:
                review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                kept = {key: review[key] for key in ("apiVersion", "kind")}
                said = answer(self.path.partition("?")[0].removeprefix("/"), review["request"])
                content = json.dumps(kept | {"response": said}).encode()
                self.answer(200, content)

        return Review
