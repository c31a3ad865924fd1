"""Clients of served models: columns, hostile text, unreachable servers; token, certificates and proxy."""

import http.server
from pathlib import Path
from typing import Any

import httpx
import pytest
from ports import Handler, serve_in_thread
from trainlab.errors import UserError
from trainlab.serve import client
from trainlab.serve.client import Answer, request_options


def test_side_by_side_and_stacked() -> None:
    answers = [Answer("base", "Some words that say little. " * 6, 40), Answer("tuned", "Boil it for 1 minute.", 7)]
    wide = client.render("How?", answers, 100).splitlines()
    assert "base (40 tokens)" in wide[2] and "| tuned (7 tokens)" in wide[2]
    assert all(len(line) <= 100 for line in wide) and "| Boil it for 1 minute." in wide[4]
    narrow = client.render("How?", answers, 60)
    assert "|" not in narrow and narrow.index("base") < narrow.index("tuned (7 tokens)\nBoil it")
    assert "|" not in client.render("How?", answers[1:], 100)
    assert "|" not in client.render("How?", answers * 13, 80), "columns of no width"


def test_terminal_codes_are_not_printed() -> None:
    text = client.render("q", [Answer("base", "a\x1b[31mb\nc", 0)], 80)
    assert "\x1b" not in text and text.endswith("a[31mb\nc")
    assert "(empty answer)" in client.render("q", [Answer("base", "", 0)], 80)


def test_asks_what_is_served_or_the_one_that_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    served = ["tuned", "run-2"]

    def request(method: str, address: str, json: Any, timeout: float, trust_env: bool) -> httpx.Response:
        if method == "GET":
            assert address == "http://h:1/v1/models" and json is None
            return httpx.Response(200, json={"data": [{"id": name} for name in served]})
        assert (method, address) == ("POST", "http://h:1/v1/chat/completions")
        return httpx.Response(200, json={"choices": [{"message": {"content": f"I am {json['model']}"}}]})

    monkeypatch.setattr(httpx, "request", request)
    assert client.ask("Who?", "http://h:1/v1/") == 0
    out = capsys.readouterr().out
    assert "I am tuned" in out and "I am run-2" in out and "base" not in out
    assert client.ask("Who?", "http://h:1", "base") == 0
    assert "I am base" in (out := capsys.readouterr().out) and "tuned" not in out
    served.clear()
    with pytest.raises(client.Unreachable, match="no model is served yet"):
        client.ask("Who?", "http://h:1")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://127.0.0.1:1", "cannot be reached"),
        ("localhost", "must begin with http"),
        ("http://a:b", "not a valid address"),
    ],
)
def test_bad_addresses(url: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        client.ask("q", url)


def test_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    def answering(reply: httpx.Response) -> None:
        monkeypatch.setattr(httpx, "request", lambda *_, **__: reply)

    answering(httpx.Response(404, json={"error": {"message": "no model x"}}))
    with pytest.raises(UserError, match="HTTP 404: no model x") as found:
        client.chat("http://h", "x", "q")
    assert not isinstance(found.value, client.Unreachable)
    answering(httpx.Response(503, text="<html>starting"))
    with pytest.raises(client.Unreachable, match="starting"):
        client.chat("http://h", "x", "q")
    answering(httpx.Response(200, text="<html>"))
    with pytest.raises(UserError, match="not a chat completion"):
        client.chat("http://h", "x", "q")


def test_the_token_is_sent_over_https_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(request_options("https://models.example/v1")) == {"trust_env"}
    (tmp_path / "token").write_text("secret\n", encoding="utf-8")
    monkeypatch.setenv(client.TOKEN, str(tmp_path / "token"))
    assert request_options("https://models.example/v1")["headers"] == {"Authorization": "Bearer secret"}
    assert "headers" not in request_options("http://models.example/v1")


def test_files_that_cannot_be_read_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(client.TOKEN, str(tmp_path / "token"))
    with pytest.raises(UserError, match=r"TRAINLAB_TOKEN_FILE is .*token: No such file or directory; name a file"):
        request_options("https://models.example/v1")
    monkeypatch.delenv(client.TOKEN)
    (tmp_path / "ca").write_text("no certificate", encoding="utf-8")
    monkeypatch.setenv(client.CA, str(tmp_path / "ca"))
    with pytest.raises(UserError, match=r"TRAINLAB_CA_FILE is .*ca: holds no certificate; name a file of PEM"):
        request_options("https://models.example/v1")


PROXY = "http://127.0.0.1:9"


@pytest.fixture
def _behind_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, PROXY)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "10.97.0.0/16,127.0.0.0/8")


@pytest.mark.usefixtures("_behind_a_proxy")
def test_subnets_of_no_proxy_are_read() -> None:
    assert not request_options("http://10.97.3.4/v1/models")["trust_env"]
    assert request_options("http://models.example/v1/models")["trust_env"]


@pytest.mark.usefixtures("_behind_a_proxy")
def test_the_client_reaches_a_server_past_a_dead_proxy() -> None:
    class Answers(Handler):
        def do_POST(self) -> None:
            self.answer(200, b'{"choices": [{"message": {"content": "hello"}}]}')

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        serve_in_thread(server)
        answer = client.chat(f"http://127.0.0.1:{server.server_port}", "tuned", "hi", timeout=10)
        server.shutdown()
    assert answer.text == "hello"


@pytest.mark.usefixtures("_behind_a_proxy")
def test_a_server_elsewhere_is_asked_by_way_of_the_proxy() -> None:
    with pytest.raises(client.Unreachable, match="refused"):
        client.chat("http://models.example", "tuned", "hi", timeout=10)
