"""A served model on the cluster's own addresses is asked directly, whatever proxy the machine has."""

import http.server

import pytest
from ports import serve_in_thread
from trainlab.serve import client, proxy

PROXY = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def _behind_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, PROXY)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "10.97.0.0/16,127.0.0.0/8")


def test_subnets_of_no_proxy_are_read() -> None:
    assert not proxy.asked("http://10.97.3.4/v1/models")
    assert proxy.asked("http://models.example/v1/models")


def test_the_client_reaches_a_server_past_a_dead_proxy() -> None:
    class Answers(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = b'{"choices": [{"message": {"content": "hello"}}]}'
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        serve_in_thread(server)
        answer = client.chat(f"http://127.0.0.1:{server.server_port}", "tuned", "hi", timeout=10)
        server.shutdown()
    assert answer.text == "hello"


def test_a_server_elsewhere_is_asked_by_way_of_the_proxy() -> None:
    with pytest.raises(client.Unreachable, match="refused"):
        client.chat("http://models.example", "tuned", "hi", timeout=10)
