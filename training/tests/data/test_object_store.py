"""`s3:` sources, from a small S3 on this machine: what a connection's Secret says, slow answers, a 403, a cut connection."""

import json
import os
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from ports import Handler, serve_in_thread
from tiny import make_phase
from trainlab import files
from trainlab.config import SftPhase
from trainlab.data import chat_rows, object_store, table_files, table_rows
from trainlab.errors import UserError

LISTED = (
    "<?xml version='1.0' encoding='UTF-8'?><ListBucketResult xmlns='http://s3.amazonaws.com/doc/2006-03-01/'><Name>lab</Name>"
    "<Prefix>{prefix}</Prefix><KeyCount>{count}</KeyCount><MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated>{contents}"
    "</ListBucketResult>"
)
OBJECT = (
    "<Contents><Key>{key}</Key><LastModified>2026-11-29T00:00:00.000Z</LastModified><ETag>&quot;x&quot;</ETag><Size>{size}</Size>"
    "<StorageClass>STANDARD</StorageClass></Contents>"
)
FAULT = "<?xml version='1.0' encoding='UTF-8'?><Error><Code>{code}</Code><Message>{code}</Message><RequestId>1</RequestId></Error>"
ROWS = "".join(json.dumps({"question": f"What is {n}?", "answer": f"It is {n}."}) + "\n" for n in range(60)).encode()


class Bucket:
    """Answers for bucket lab. Faults are `denied`, `withheld` (denied keys), `silent` (seconds before each answer), `slow` (seconds
    before each quarter of a body) and `cut` (bytes of a body, so many times)."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.denied, self.silent, self.slow, self.cut, self.cuts = False, 0.0, 0.0, 0, 0
        self.withheld: set[str] = set()
        self.seen: list[str] = []
        bucket = self

        class Requests(Handler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                bucket.answer(self)

            do_HEAD = do_GET

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Requests)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        parts, query = urlsplit(request.path), parse_qs(urlsplit(request.path).query)
        name, _, key = unquote(parts.path).strip("/").partition("/")
        self.seen.append(f"{request.command} {request.path}")
        time.sleep(self.silent)
        if self.denied or (key in self.withheld and request.command == "GET"):
            self.send(request, 403, FAULT.format(code="AccessDenied").encode())
        elif name != "lab":
            self.send(request, 404, FAULT.format(code="NoSuchBucket").encode())
        elif key:
            body = self.objects.get(key)
            self.send(request, *((200, body) if body is not None else (404, FAULT.format(code="NoSuchKey").encode())))
        else:
            prefix = query.get("prefix", [""])[0]
            found = [
                OBJECT.format(key=key, size=len(body)) for key, body in self.objects.items() if key.startswith(prefix)
            ]
            self.send(request, 200, LISTED.format(prefix=prefix, count=len(found), contents="".join(found)).encode())

    def send(self, request: BaseHTTPRequestHandler, status: int, body: bytes) -> None:
        first = (
            int(request.headers.get("Range", "bytes=0-").removeprefix("bytes=").split("-")[0]) if status == 200 else 0
        )
        last = request.headers.get("Range", "-").split("-")[1] if status == 200 else ""
        part = body[first : int(last) + 1 if last else None]
        request.send_response(206 if "Range" in request.headers and status == 200 else status)
        if "Range" in request.headers and status == 200:
            request.send_header("Content-Range", f"bytes {first}-{first + len(part) - 1}/{len(body)}")
        request.send_header("Content-Length", str(len(part)))
        request.send_header("Content-Type", "application/xml" if status >= 400 else "application/octet-stream")
        request.send_header("Last-Modified", "Sun, 29 Nov 2026 00:00:00 GMT")
        request.send_header("ETag", '"x"')
        request.end_headers()
        if request.command == "HEAD":
            return
        if self.cut and self.cuts and status < 300 and len(part) > self.cut:
            self.cuts -= 1
            request.wfile.write(part[: self.cut])
            request.close_connection = True
            return
        step = len(part) // 4 + 1
        for begin in range(0, len(part), step):
            time.sleep(self.slow)
            request.wfile.write(part[begin : begin + step])


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    made = Bucket()
    secret = {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_S3_ENDPOINT": made.url,
        "AWS_S3_BUCKET": "lab",
        "AWS_DEFAULT_REGION": "eu-1",
    }
    for name, value in secret.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(object_store, "SILENT_SECONDS", 1.0)
    monkeypatch.setattr(object_store, "ATTEMPTS", 2)
    serve_in_thread(made.server)
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def phase(phase_dict: dict[str, Any]) -> SftPhase:
    made = make_phase(
        phase_dict, data={"source": "s3:team/faq", "table": {"heldout_fraction": 0.3}}, model={"max_length": 256}
    )
    assert isinstance(made, SftPhase)
    return made


def test_a_folder_of_a_bucket_becomes_questions(
    bucket: Bucket, phase: SftPhase, tmp_path: Path, tiny_model: Path
) -> None:
    bucket.objects = {"team/faq/a.jsonl": ROWS, "team/faq/notes.md": b"no table", "team/other.jsonl": b"{}"}
    folder = table_rows.fetch(phase, tmp_path, tiny_model)
    assert (
        folder and len(chat_rows.load_train(phase.data, folder)) + len(chat_rows.load_heldout(phase.data, folder)) == 60
    )
    seen = len(bucket.seen)
    table_rows.fetch(phase, tmp_path, tiny_model)
    assert len(bucket.seen) == seen, "what is here is asked for again"
    (record,) = (path.parent / "source.json" for path in tmp_path.glob("data-s3*/objects"))
    assert "secret" not in record.read_text("utf-8") and files.read_json(record)["bucket"] == "lab"


def test_one_object_and_a_large_one_in_pieces(bucket: Bucket, tmp_path: Path) -> None:
    bucket.objects = {"text/large.txt": b"line of text\n" * 800_000}
    folder = object_store.fetch("s3:text/large.txt", tmp_path, (".txt",))
    assert (folder / "large.txt").read_bytes() == bucket.objects["text/large.txt"]


def test_another_bucket_is_fetched_anew(bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket.objects = {"a.jsonl": ROWS}
    object_store.fetch("s3:a.jsonl", tmp_path, table_files.TABLES)
    monkeypatch.setenv("AWS_S3_BUCKET", "another")
    with pytest.raises(UserError, match=r"there is no bucket another|bucket another"):
        object_store.fetch("s3:a.jsonl", tmp_path, table_files.TABLES)


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (
            {"denied": True},
            r"bucket lab at http://.* refuses these keys \(403\); correct the connection's Secret, which site.envSecrets",
        ),
        (
            {"silent": 4.0},
            r"bucket lab at http://.* does not answer as it should .*check address, certificates and network",
        ),
        (
            {"objects": {}},
            r"bucket lab has no object there that ends in .jsonl, .json, .csv, .parquet; correct the path",
        ),
        ({"cut": 1000, "cuts": 99}, r"bucket lab at http://.* does not answer as it should"),
    ],
)
def test_a_bucket_that_does_not_serve_is_one_sentence(
    bucket: Bucket, tmp_path: Path, fault: dict[str, Any], expected: str
) -> None:
    bucket.objects = {"faq/a.jsonl": ROWS}
    for name, value in fault.items():
        setattr(bucket, name, value)
    with pytest.raises(UserError, match=f"phase.data.source is s3:faq: {expected}") as caught:
        object_store.fetch("s3:faq", tmp_path, table_files.TABLES)
    assert len(str(caught.value).splitlines()) == 1
    assert not list(tmp_path.rglob("a.jsonl")) and not list(tmp_path.rglob("source.json"))


def test_a_secret_that_is_not_there_names_the_key(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_S3_BUCKET")
    with pytest.raises(
        UserError, match=r"AWS_S3_BUCKET missing; set it in the connection's Secret, which site.envSecrets names"
    ):
        object_store.fetch("s3:a.jsonl", tmp_path, table_files.TABLES)


def test_a_slow_bucket_is_waited_for(bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What counts is the next byte, and not the whole."""
    monkeypatch.setattr(object_store, "SILENT_SECONDS", 60.0)
    bucket.objects, bucket.slow = {"faq/a.jsonl": ROWS}, 0.2
    folder = object_store.fetch("s3:faq", tmp_path, table_files.TABLES)
    assert (folder / "a.jsonl").read_bytes() == ROWS


def test_an_object_that_is_withheld_leaves_no_data_set_and_the_next_fetch_goes_on(
    bucket: Bucket, tmp_path: Path
) -> None:
    bucket.objects = {"faq/a.jsonl": ROWS, "faq/b.jsonl": ROWS.replace(b"What", b"Who")}
    bucket.withheld = {"faq/b.jsonl"}
    with pytest.raises(
        UserError, match=r"phase.data.source is s3:faq: bucket lab at .* refuses these keys \(403\)"
    ) as caught:
        object_store.fetch("s3:faq", tmp_path, table_files.TABLES)
    assert len(str(caught.value).splitlines()) == 1
    assert not list(tmp_path.rglob("source.json")) and not list(tmp_path.rglob("*b.jsonl*"))
    bucket.withheld.clear()
    bucket.seen.clear()
    folder = object_store.fetch("s3:faq", tmp_path, table_files.TABLES)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        name.removeprefix("faq/"): body for name, body in bucket.objects.items()
    }
    assert not [line for line in bucket.seen if line.startswith("GET") and line.endswith("/a.jsonl")], "fetched again"


def test_a_volume_that_is_full_keeps_no_part_of_an_object(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: Any) -> None:
        raise OSError(28, "No space left on device")

    bucket.objects = {"faq/a.jsonl": ROWS}
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(UserError, match=r"the volume is full \(.* MB free\); enlarge it"):
            object_store.fetch("s3:faq", tmp_path, table_files.TABLES)
    assert not list(tmp_path.rglob("*.jsonl*")) and not list(tmp_path.rglob("source.json"))
