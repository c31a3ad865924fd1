"""ask: columns, narrow terminals, hostile text, unreachable servers."""

import httpx
import pytest
from trainlab.errors import UserError
from trainlab.serve import ask, client
from trainlab.serve.client import Answer


def test_side_by_side_and_stacked() -> None:
    answers = [Answer("base", "Some words that say little. " * 6, 40), Answer("tuned", "Boil it for 1 minute.", 7)]
    wide = ask.render("How?", answers, 100).splitlines()
    assert "base (40 tokens)" in wide[2] and "| tuned (7 tokens)" in wide[2]
    assert all(len(line) <= 100 for line in wide) and "| Boil it for 1 minute." in wide[4]
    narrow = ask.render("How?", answers, 60)
    assert "|" not in narrow and narrow.index("base") < narrow.index("tuned (7 tokens)\nBoil it")
    assert "|" not in ask.render("How?", answers[1:], 100)


def test_terminal_codes_are_not_printed() -> None:
    text = ask.render("q", [Answer("base", "a\x1b[31mb\nc", 0)], 80)
    assert "\x1b" not in text and text.endswith("a[31mb\nc")
    assert "(empty answer)" in ask.render("q", [Answer("base", "", 0)], 80)


def test_asks_what_is_served_or_the_one_that_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    served = ["tuned", "run-2"]

    def get(address: str, timeout: float, trust_env: bool) -> httpx.Response:
        assert address == "http://h:1/v1/models"
        return httpx.Response(200, json={"data": [{"id": name} for name in served]})

    def post(address: str, json: dict[str, str], timeout: float, trust_env: bool) -> httpx.Response:
        assert address == "http://h:1/v1/chat/completions"
        return httpx.Response(200, json={"choices": [{"message": {"content": f"I am {json['model']}"}}]})

    monkeypatch.setattr(httpx, "get", get)
    monkeypatch.setattr(httpx, "post", post)
    assert ask.ask("Who?", "http://h:1/v1/") == 0
    out = capsys.readouterr().out
    assert "I am tuned" in out and "I am run-2" in out and "base" not in out
    assert ask.ask("Who?", "http://h:1", "base") == 0
    assert "I am base" in (out := capsys.readouterr().out) and "tuned" not in out
    served.clear()
    with pytest.raises(client.Unreachable, match="no model is served yet"):
        ask.ask("Who?", "http://h:1")


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
        ask.ask("q", url)


def test_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    def answering(reply: httpx.Response) -> None:
        monkeypatch.setattr(httpx, "post", lambda *_, **__: reply)

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
