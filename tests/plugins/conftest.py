"""Makes the checkout importable as trainlab.rhoai, and gives tests an API server that speaks real HTTP."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from ansible.utils.collection_loader._collection_finder import _AnsibleCollectionFinder
from ports import Handler, serve_in_thread, write_kubeconfig

ROOT = Path(__file__).resolve().parents[2]
_AnsibleCollectionFinder(paths=[str(ROOT / ".collections")])._install()

Objects = dict[str, Any]


class Cluster:
    """Objects by API path, served over HTTP; a number instead of an object is answered as that HTTP status.

    A list is answered one entry after the other, its last one forever; a function gets what was sent. -1 ends the connection
    before the answer, -2 in the middle of it.
    """

    def __init__(self, folder: Path, certificate: Path | None = None) -> None:
        """`certificate` contains key and certificate of an https server."""
        self.objects: Objects = {"/version": {"gitVersion": "v1.34.4"}, "/api": {"versions": ["v1"]}}
        self.asked: list[tuple[str, str]] = []
        self.headers: dict[str, list[str]] = {}
        """Of the last request."""
        self.trust: dict[str, str] = {}
        """A kubeconfig's entry for an https server's certificate."""
        cluster = self

        class Requests(Handler):
            def do_GET(self) -> None:
                path = urlsplit(self.path).path
                cluster.asked.append((self.command, self.path))
                cluster.headers = {name: self.headers.get_all(name) or [] for name in self.headers}
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                found = cluster.objects.get(path, 404)
                if callable(found):
                    found = found(json.loads(body))
                if isinstance(found, list):
                    found = found.pop(0) if len(found) > 1 else found[0]
                if found == -1:
                    self.close_connection = True
                    return
                half = found == -2
                status = found if isinstance(found, int) and found > 0 else 200
                if isinstance(found, int):
                    found = {"kind": "Status", "message": f"{path}: said no"}
                content = found.encode() if isinstance(found, str) else json.dumps(found).encode()
                self.send_response(status)
                self.send_header("Content-Type", "text/plain" if isinstance(found, str) else "application/json")
                self.send_header("Content-Length", str(len(content) * (2 if half else 1)))
                self.end_headers()
                self.wfile.write(content)

            do_POST = do_DELETE = do_GET

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Requests)
        if certificate:
            tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            tls.load_cert_chain(certificate)
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        self.url = f"http{'s' if certificate else ''}://127.0.0.1:{self.server.server_address[1]}"
        self.kubeconfig = write_kubeconfig(folder / "kubeconfig", self.url)
        serve_in_thread(self.server)

    def items(self, path: str, *objects: Any) -> None:
        """Serve a list."""
        self.objects[path] = {"items": list(objects)}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """An API server with nothing in it."""
    made = Cluster(tmp_path)
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def kubeconfig_for(tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that writes a kubeconfig for an address."""
    return lambda url: write_kubeconfig(tmp_path / "other", url)
