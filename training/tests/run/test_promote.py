"""promote and verify-run against a fake API server and a fake model server that speak real HTTP(S)."""

import json
import ssl
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from trainlab import files
from trainlab.errors import UserError
from trainlab.run import kube, promote, verify_run

MANIFEST = """
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: survival, labels: {a: "1"}}
spec: {predictor: {minReplicas: 1}}
"""


class Fake:
    """A server that answers with the prepared (status, body) pairs, the last one for ever, and notes what was asked."""

    def __init__(self, *replies: tuple[int, Any]) -> None:
        self.replies, self.asked = list(replies), list[tuple[str, str, Any, str]]()
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def _reply(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                fake.asked.append((self.command, self.path, json.loads(body or "null"), str(self.headers)))
                status, value = fake.replies.pop(0) if len(fake.replies) > 1 else fake.replies[0]
                data = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_PATCH = do_POST = _reply

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]

    def __enter__(self) -> "Fake":
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture(scope="session")
def account(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A service account folder with the CA of the fake API server, whose key lies beside it."""
    folder = tmp_path_factory.mktemp("account")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=fake"]
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(folder / "key"), "-out", str(folder / "ca.crt")]
    subprocess.run([*command, *names], check=True, capture_output=True)
    (folder / "token").write_text("secret\n")
    return folder


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, account: Path) -> Iterator[Path]:
    (tmp_path / "service.yaml").write_text(MANIFEST)
    monkeypatch.setattr(kube, "PAUSE", 0.01)
    monkeypatch.setattr(promote, "POLL", 0.01)
    monkeypatch.setattr(verify_run, "PAUSE", 0.01)
    monkeypatch.setattr(kube.Kube.in_cluster.__func__, "__defaults__", (account,))
    yield tmp_path


def write_gate(run_dir: Path, promoted: bool) -> None:
    files.write_json(run_dir / "gate.json", {"promoted": promoted, "reasons": ["Because of numbers."]})


def api(account: Path, *replies: tuple[int, Any]) -> Fake:
    fake = Fake(*replies)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(account / "ca.crt", account / "key")
    fake.server.socket = context.wrap_socket(fake.server.socket, server_side=True)
    return fake


def run(run_dir: Path, fake: Fake | None, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> int:
    if fake:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(fake.port))
    values = {"namespace": "demo", "owner": "ServingRuntime/run-1", "timeout": 0.01} | changes
    return promote.promote(run_dir, run_dir / "service.yaml", **values)


def test_applies_with_owner_after_retries(run_dir: Path, account: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_gate(run_dir, True)
    runtime = {"metadata": {"uid": "u-1"}}
    with api(account, (503, {"message": "busy"}), (200, runtime), (500, {}), (201, {})) as fake:
        assert run(run_dir, fake, monkeypatch) == 0
    assert [entry[0] for entry in fake.asked] == ["GET", "GET", "PATCH", "PATCH"]
    _, path, body, headers = fake.asked[-1]
    assert path == (
        "/apis/serving.kserve.io/v1beta1/namespaces/demo/inferenceservices/survival?fieldManager=trainlab-promote&force=true"
    )
    assert "Bearer secret" in headers and "application/apply-patch+yaml" in headers
    assert body["metadata"]["ownerReferences"] == [
        {"apiVersion": "serving.kserve.io/v1alpha1", "kind": "ServingRuntime", "name": "run-1", "uid": "u-1"}
    ]
    assert body["metadata"]["namespace"] == "demo" and body["spec"] == {"predictor": {"minReplicas": 1}}


def test_not_promoted_touches_nothing(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_gate(run_dir, False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert run(run_dir, None, monkeypatch) == 0
    out = capsys.readouterr().out
    assert "Because of numbers." in out and "not promoted" in out


def test_waits_for_the_gate(run_dir: Path, account: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threading.Timer(0.2, write_gate, (run_dir, True)).start()
    with api(account, (200, {"metadata": {"uid": "u"}})) as fake:
        assert run(run_dir, fake, monkeypatch, timeout=1) == 0
    assert len(fake.asked) == 2


def test_errors_are_sentences(run_dir: Path, account: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"gate.json: not there after 0.001 minutes"):
        run(run_dir, None, monkeypatch, timeout=0.001)
    write_gate(run_dir, True)
    with (
        api(account, (403, {"message": "no right"})) as fake,
        pytest.raises(UserError, match="no right; the Job's Role"),
    ):
        run(run_dir, fake, monkeypatch)
    with pytest.raises(UserError, match="--owner is Pod/x"):
        run(run_dir, None, monkeypatch, owner="Pod/x")
    monkeypatch.setattr(kube, "PATIENCE", 0.1)
    with pytest.raises(UserError, match=r"gave up after 0 s; last: ConnectError"):
        run(run_dir, fake, monkeypatch)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    with pytest.raises(UserError, match="only inside a cluster"):
        run(run_dir, None, monkeypatch)
    (run_dir / "service.yaml").write_text(MANIFEST.replace("survival,", "survival, namespace: other,"))
    with pytest.raises(UserError, match="must be demo"):
        run(run_dir, None, monkeypatch)
    (run_dir / "service.yaml").write_text("kind: Pod\n")
    with pytest.raises(UserError, match="must be an InferenceService"):
        run(run_dir, None, monkeypatch)


def test_verify_run(run_dir: Path, phase_dict: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    (run_dir / "phase.json").write_text(json.dumps({"phase": phase_dict}))
    said = {"choices": [{"message": {"content": "Call for help."}}], "usage": {"completion_tokens": 4}}
    write_gate(run_dir, True)
    with Fake((503, {"error": {"message": "loading"}}), (200, said)) as fake:
        assert verify_run.command(run_dir, f"http://127.0.0.1:{fake.port}") == 0
    assert fake.asked[-1][2]["model"] == "tuned" and "Call for help." in capsys.readouterr().out
    with Fake((404, {"error": {"message": "no such model"}})) as fake, pytest.raises(UserError, match="no such model"):
        verify_run.command(run_dir, f"http://127.0.0.1:{fake.port}")
    with pytest.raises(verify_run.NotServed, match="cannot be reached"):
        verify_run.command(run_dir, "http://127.0.0.1:1", timeout=0.002)
    write_gate(run_dir, False)
    with pytest.raises(verify_run.NotServed, match=r"not promoted. Because of numbers."):
        verify_run.command(run_dir, "http://127.0.0.1:1")
