"""A model hub on this machine: enough of the Hugging Face hub's HTTP interface to fetch models and data sets; used by tests.

As the hub, it redirects what git-lfs stores to another host, with X-Linked-Etag and X-Linked-Size. With `xet` it also announces
Xet, the hub's own protocol, whose host takes no connections here: as behind a mirror, a proxy or certificates of one's own.
"""

import hashlib
import json
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from ports import Handler, serve_in_thread

LFS = (".safetensors", ".bin", ".gguf", ".parquet")
NOBODY = "http://127.0.0.1:9"  # nobody listens there


class Hub:
    """Serves ROOT/OWNER/NAME/* as models and data sets in every revision; `token`, if any, is asked for. `seen` are the requests.

    With `certificate`, a PEM file with its key, it speaks TLS. What can go wrong, to be set by a test: `revisions`, if
    any, are all that exist; of `cut`, {file: bytes}, each answer ends after so many, the first `cuts` times; of
    `broken` files other content is sent than is listed; with `strange` every page is that of another website; `sizes` of files are listed
    instead of the true ones; `xet`, if any, is the host of Xet where large files are announced to be stored.
    """

    def __init__(self, root: Path, token: str = "", certificate: Path | None = None) -> None:
        self.root, self.token = root, token
        self.seen: list[str] = []
        self.given: list[str] = []  # requests of the other host that carry a token
        self.revisions: set[str] = set()
        self.cut: dict[str, int] = {}
        self.cuts = 0
        self.broken: set[str] = set()
        self.strange = False
        self.xet = ""
        self.sizes: dict[str, int] = {}
        hub = self

        class Requests(Handler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                hub.answer(self)

            do_HEAD = do_POST = do_GET

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Requests)
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        port = self.server.server_address[1]
        self.url = f"http{'s' * bool(certificate)}://127.0.0.1:{port}"
        other = (
            "127.0.0.1" if certificate else "localhost"
        )  # another host, as the client sees it; certificates name one
        self.storage = f"http{'s' * bool(certificate)}://{other}:{port}/storage"

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """Answer one request: /api/{models,datasets}/.../{revision,tree,paths-info}/REV and .../resolve/REV/FILE."""
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        path = unquote(urlsplit(request.path).path).strip("/").split("/")
        self.seen.append(f"{request.command} {request.path} {request.headers.get('Range', '')}".strip())
        given = request.headers.get("Authorization")
        if path[0] == "storage":
            self.given += [request.path] if given else []
            self._file(request, self.root / "/".join(path[1:]), "")
            return
        api = path[0] == "api" and path[1:2] in (["models"], ["datasets"]) and len(path) >= 6
        name, rest = (
            (path[2:4], path[4:]) if api else (path[1:3], path[3:]) if path[0] == "datasets" else (path[:2], path[2:])
        )
        folder = self.root / "/".join(name)
        if self.strange:
            self._send(request, 200, b"<html>Welcome</html>", {"Content-Type": "text/html"})
        elif self.token and not given:
            self._send(request, 401, b"", {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access is restricted"})
        elif self.token and given != f"Bearer {self.token}":
            self._send(request, 401, b"", {"X-Error-Message": "Invalid credentials in Authorization header"})
        elif len(rest) < 2 or not folder.is_dir() or not (api or rest[0] == "resolve"):
            self._send(request, 404, b"", {"X-Error-Code": "RepoNotFound"})
        elif self.revisions and rest[1] not in self.revisions:
            self._send(request, 404, b"", {"X-Error-Code": "RevisionNotFound"})
        elif api:
            self._api(request, folder, rest, body)
        else:
            self._file(request, folder / "/".join(rest[2:]), rest[1])

    def _api(self, request: BaseHTTPRequestHandler, folder: Path, what: list[str], body: bytes) -> None:
        kind, revision, inside = what[0], what[1], "/".join(what[2:])
        if kind == "xet-read-token":
            expires = {"X-Xet-Access-Token": "xet", "X-Xet-Token-Expiration": str(int(time.time()) + 3600)}
            self._send(request, 200, b"{}", {"X-Xet-Cas-Url": self.xet, **expires})
            return
        entries = [_entry(folder, path) for path in sorted(folder.rglob("*"))]
        entries = [entry | {"size": self.sizes.get(entry["path"], entry["size"])} for entry in entries]
        if kind == "revision":
            names = [{"rfilename": entry["path"]} for entry in entries if entry["type"] == "file"]
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
        data, code, head = path.read_bytes(), 200, {"Accept-Ranges": "bytes"}
        if revision:  # asked of the hub, not of its storage
            head |= {"ETag": f'"{git_sha1(data)}"', "X-Repo-Commit": revision}
            if path.suffix in LFS:
                head |= {"X-Linked-Etag": f'"{hashlib.sha256(data).hexdigest()}"', "X-Linked-Size": str(len(data))}
                if self.xet:
                    name = path.relative_to(self.root).parts
                    route = f"{self.url}/api/models/{name[0]}/{name[1]}/xet-read-token/{revision}"
                    head |= {"X-Xet-Hash": hashlib.sha256(data).hexdigest(), "X-Xet-Refresh-Route": route}
                where = {"Location": f"{self.storage}/{path.relative_to(self.root).as_posix()}"}
                self._send(request, 302, b"", {**head, **where})
                return
        if path.name in self.broken:
            data = bytes(reversed(data))
        given = request.headers.get("Range", "")
        if given.startswith("bytes="):
            first, _, last = given[6:].partition("-")
            end = int(last) + 1 if last else len(data)
            head["Content-Range"] = f"bytes {first}-{min(end, len(data)) - 1}/{len(data)}"
            data, code = data[int(first) : end], 206
        most = None
        if request.command == "GET" and path.name in self.cut and self.cuts:
            self.cuts -= 1
            most = self.cut[path.name]
        self._send(request, code, data, head, most)

    def _send(
        self, request: BaseHTTPRequestHandler, code: int, data: bytes, head: dict[str, str], most: int | None = None
    ) -> None:
        request.send_response(code)
        for name, value in {**head, "Content-Length": str(len(data))}.items():
            request.send_header(name, value)
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(data[:most])
        if most is not None:
            request.close_connection = True


def git_sha1(data: bytes) -> str:
    """Return the name that git gives to a file's content."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def _entry(folder: Path, path: Path) -> dict[str, Any]:
    name = path.relative_to(folder).as_posix()
    if path.is_dir():
        return {"type": "directory", "path": name, "oid": hashlib.sha1(name.encode()).hexdigest(), "size": 0}
    data = path.read_bytes()
    entry = {"type": "file", "path": name, "oid": git_sha1(data), "size": len(data)}
    if path.suffix in LFS:
        entry["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
    return entry


@contextmanager
def serving(root: Path, token: str = "", certificate: Path | None = None) -> Iterator[Hub]:
    """Yield a hub that answers until the block ends."""
    hub = Hub(root, token, certificate)
    serve_in_thread(hub.server)
    try:
        yield hub
    finally:
        hub.server.shutdown()
        hub.server.server_close()
