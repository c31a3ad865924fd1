"""A model hub on this machine: enough of the Hugging Face hub's HTTP interface to read data sets from; used by tests."""

import hashlib
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


class Hub:
    """Serves ROOT/OWNER/NAME/* as data sets in every revision; `token`, if any, is asked for. `seen` are the requests.

    With `certificate`, a PEM file with its key, it speaks TLS.
    """

    def __init__(self, root: Path, token: str = "", certificate: Path | None = None) -> None:
        self.root, self.token = root, token
        self.seen: list[str] = []
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                hub.answer(self)

            do_HEAD = do_POST = do_GET

            def log_message(self, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.url = f"http{'s' * bool(certificate)}://127.0.0.1:{self.server.server_address[1]}"

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """Answer one request: /api/datasets/.../{revision,tree,paths-info}/REV and /datasets/.../resolve/REV/FILE."""
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        path = unquote(urlsplit(request.path).path).strip("/").split("/")
        self.seen.append(f"{request.command} {request.path}")
        if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            self._send(request, 401, b"", {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access is restricted"})
        elif path[:2] == ["api", "datasets"] and len(path) >= 6 and (self.root / path[2] / path[3]).is_dir():
            self._api(request, self.root / path[2] / path[3], path[4:], body)
        elif path[0] == "datasets" and path[3:4] == ["resolve"]:
            self._file(request, self.root / path[1] / path[2] / "/".join(path[5:]), path[4])
        else:
            self._send(request, 404, b"", {"X-Error-Code": "RepoNotFound"})

    def _api(self, request: BaseHTTPRequestHandler, folder: Path, what: list[str], body: bytes) -> None:
        kind, revision, inside = what[0], what[1], "/".join(what[2:])
        entries = [_entry(folder, path) for path in sorted(folder.rglob("*"))]
        if kind == "revision":
            names = [{"rfilename": one["path"]} for one in entries if one["type"] == "file"]
            name = f"{folder.parent.name}/{folder.name}"
            value: Any = {"id": name, "sha": revision, "siblings": names, "private": False, "tags": []}
        elif kind == "tree":
            deep = parse_qs(urlsplit(request.path).query).get("recursive", ["false"])[0].lower() == "true"
            start = f"{inside}/" if inside else ""
            value = [e for e in entries if e["path"].startswith(start) and (deep or "/" not in e["path"][len(start) :])]
            if inside and not value:
                self._send(request, 404, b"", {"X-Error-Code": "EntryNotFound"})
                return
        else:  # paths-info
            form = parse_qs(body.decode())
            wanted = form.get("paths") or json.loads(body or b"{}").get("paths", [])
            value = [e for e in entries if e["path"] in wanted]
        self._send(request, 200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _file(self, request: BaseHTTPRequestHandler, path: Path, revision: str) -> None:
        if not path.is_file():
            self._send(request, 404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": revision})
            return
        data, code = path.read_bytes(), 200
        head = {"ETag": f'"{hashlib.sha1(data).hexdigest()}"', "X-Repo-Commit": revision, "Accept-Ranges": "bytes"}
        given = request.headers.get("Range", "")
        if given.startswith("bytes="):
            first, _, last = given[6:].partition("-")
            end = int(last) + 1 if last else len(data)
            head["Content-Range"] = f"bytes {first}-{min(end, len(data)) - 1}/{len(data)}"
            data, code = data[int(first) : end], 206
        self._send(request, code, data, head)

    def _send(self, request: BaseHTTPRequestHandler, code: int, data: bytes, head: dict[str, str]) -> None:
        request.send_response(code)
        for name, value in {**head, "Content-Length": str(len(data))}.items():
            request.send_header(name, value)
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(data)


def _entry(folder: Path, path: Path) -> dict[str, Any]:
    name = path.relative_to(folder).as_posix()
    oid = hashlib.sha1(name.encode()).hexdigest()
    if path.is_dir():
        return {"type": "directory", "path": name, "oid": oid, "size": 0}
    return {"type": "file", "path": name, "oid": oid, "size": path.stat().st_size}


@contextmanager
def serving(root: Path, token: str = "", certificate: Path | None = None) -> Iterator[Hub]:
    """Yield a hub that answers until the block ends."""
    hub = Hub(root, token, certificate)
    thread = threading.Thread(target=hub.server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.server.shutdown()
        hub.server.server_close()
