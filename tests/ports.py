"""A test's own server: a port for it, a thread, a handler and a kubeconfig."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import socket
import tempfile
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import BaseServer
from typing import TextIO

RANGE = range(20000, 30000)
"""Below those that the kernel gives to clients (ip_local_port_range), so that no connection takes one meanwhile."""
WITH_ITS_WORKER = ("setpriv", "--pdeathsig", "TERM")
"""The prefix of a server that has to end with the test process: Ctrl-C kills pytest's workers before they take anything down."""
_held: list[TextIO] = []


def free_port(address: str = "127.0.0.1") -> int:
    """Return a port of this address that nothing listens on and that no other test process gets before this one ends."""
    folder = Path(tempfile.gettempdir()) / f"trainlab-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    first = os.getpid() * 7 % len(RANGE)  # each process begins elsewhere
    for port in itertools.chain(RANGE[first:], RANGE[:first]):
        lock = (folder / str(port)).open("w", encoding="ascii")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((address, port))
        except OSError:
            lock.close()
            continue
        _held.append(lock)
        return port
    raise AssertionError(f"no free port of {address} in {RANGE}")


def serve_in_thread(server: BaseServer) -> None:
    """Answer until the server's `shutdown`, which waits for the next look at its request: by default one in 0.5 s, in every test's end."""
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()


class Handler(BaseHTTPRequestHandler):
    """Prints no line for a request, and answers in one call."""

    def answer(self, status: int, content: bytes, form: str = "application/json") -> None:
        """Send the answer to the request."""
        self.send_response(status)
        self.send_header("Content-Type", form)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing: pytest prints what matters."""


def write_kubeconfig(path: Path, url: str) -> Path:
    """Write a kubeconfig with a token for this address."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "clusters": [{"name": "test", "cluster": {"server": url}}],
        "users": [{"name": "test", "user": {"token": "test"}}],
    }
    path.write_text(json.dumps(config), encoding="utf-8")
    return path
