"""Stands between the playbooks and the test API server and injects faults on demand; started by server.py.

Fault `api-server` in faults.json:
    busy   for 1.5 s of each 5 s all requests are answered with 429, 500 or 503, as by an overloaded or starting server
    cut    every fourth connection ends early: before the request is forwarded, after it, or within the response
Prints a line for each request; only plain requests are forwarded, no watches.
"""

from __future__ import annotations

import itertools
import json
import socket
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import requests
import yaml

FAULT = "api-server"
PERIOD_SECONDS, BUSY_SECONDS = 5.0, 1.5
EACH = 4
SECONDS = 60
ENDS = ("before", "after", "half")
PASSED_ON = ("Authorization", "Content-Type", "Accept")
STATUSES = {429: "too many requests, please try again later", 500: "etcdserver: leader changed", 503: "starting"}


class Trouble:
    """Decides what goes wrong with the next request."""

    def __init__(self, folder: Path) -> None:
        """`folder` holds faults.json."""
        self._file = folder / "faults.json"
        self._count, self._ends = itertools.count(1), itertools.cycle(ENDS)
        self._statuses = itertools.cycle(STATUSES)

    def next(self) -> int | str:
        """Return a status, one of ENDS, or an empty text when nothing goes wrong."""
        fault = json.loads(self._file.read_text(encoding="ascii")).get(FAULT, "")
        if fault == "busy" and time.monotonic() % PERIOD_SECONDS < BUSY_SECONDS:
            return next(self._statuses)
        if fault == "cut" and next(self._count) % EACH == 0:
            return next(self._ends)
        return ""


class Handler(BaseHTTPRequestHandler):
    """One connection of a client, with one of its own to the API server."""

    protocol_version = "HTTP/1.1"
    trouble: Trouble
    upstream: str
    certificate: str

    def setup(self) -> None:
        """Open a session."""
        super().setup()
        self._session = requests.Session()
        self._session.trust_env = False  # loopback

    def finish(self) -> None:
        """Close it."""
        self._session.close()
        super().finish()

    def do_GET(self) -> None:
        """Forward a request, or not."""
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else None
        what = self.trouble.next()
        print(what or "passed", self.command, self.path, flush=True)
        if what == "before":
            self._cut()
        elif isinstance(what, int):
            status = {"kind": "Status", "apiVersion": "v1", "code": what, "message": STATUSES[what]}
            self._answer(what, "application/json", json.dumps(status).encode())
        else:
            answer = self._session.request(
                self.command,
                f"{self.upstream}{self.path}",
                data=body,
                headers={key: self.headers[key] for key in PASSED_ON if key in self.headers},
                verify=self.certificate,
                timeout=SECONDS,
            )
            if what == "after":
                self._cut()
            else:
                self._answer(
                    answer.status_code,
                    answer.headers.get("Content-Type", "text/plain"),
                    answer.content,
                    half=what == "half",
                )

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def _answer(self, status: int, kind: str, content: bytes, half: bool = False) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if half else content)
        if half:
            self._cut()

    def _cut(self) -> None:
        self.wfile.flush()
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet: do_GET prints."""


def main(folder: Path, port: int) -> None:
    """Serve until killed."""
    cluster = yaml.safe_load((folder / "kubeconfig").read_text(encoding="utf-8"))["clusters"][0]["cluster"]
    Handler.trouble = Trouble(folder)
    Handler.upstream, Handler.certificate = cluster["server"], cluster["certificate-authority"]
    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
