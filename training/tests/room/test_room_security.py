"""What strangers may try: forged cookies, markup, big bodies, many requests, others' adapters, other sites' forms, uploads."""

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from checkout import SOURCES
from room_parts import Phone, ScriptedRunner, opened, presenter, until
from trainlab.errors import UserError
from trainlab.room import access, keys, pages

MARKUP = "<script>alert(1)</script><hx-partial hx-target='#said'>x</hx-partial><img src=x onerror=alert(1)>\"'&"


def test_forged_cookies_are_nobodys(tmp_path: Path) -> None:
    with opened(tmp_path, ScriptedRunner()) as (address, room, _):
        own = Phone(address).join("Ada")
        name = access.cookie_name(room.key, access.DEVICE)
        good = own.http.cookies[name]
        value, mac = good.split(".")
        other = keys.Key(b"another key of some bytes")
        forged = [
            f"{value}.{mac[:-1]}{'0' if mac[-1] != '0' else '1'}",
            f"{value}x.{mac}",
            value,
            f"{value}.",
            "",
            "." * 200,
        ]
        forged += [other.sign("device", value), room.key.sign("presenter", value), f"{good}.{mac}", good.upper()]
        for cookie in forged:
            phone = httpx.Client(base_url=address, headers={"Cookie": f'{name}="{cookie}"'})
            assert "Ada" not in phone.get("/me").text, cookie
            assert phone.post("/me/claim", data={"name": "Eve"}).status_code == 409
        assert list(room.rounds.round.places) == ["p01"]


def test_the_presenters_page_is_not_there_for_others(tmp_path: Path) -> None:
    with opened(tmp_path, ScriptedRunner()) as (address, room, _):
        phone = Phone(address).join()
        names = [access.cookie_name(room.key, purpose) for purpose in (access.DEVICE, access.PRESENTER)]
        device = phone.http.cookies[names[0]]
        for cookies in (
            {},
            {names[1]: device},
            {names[1]: "x"},
            {names[1]: keys.Key(b"x" * 20).sign("presenter", "a")},
        ):
            client = httpx.Client(base_url=address, cookies={names[0]: device, **cookies})
            replies = [
                client.get("/presenter"),
                client.get("/presenter/live"),
                client.post("/presenter/do/open", data={"what": ""}),
            ]
            replies += [
                client.post("/presenter/check"),
                client.get("/presenter/enter/" + "0" * 64),
                client.get("/presenter/enter/x"),
            ]
            assert {reply.status_code for reply in replies} == {404}
        assert room.rounds.round.state == "lobby"
        secret = room.key.link
        boss = presenter(address, room)
        assert boss.get("/presenter").status_code == 200
        for page in ("/", "/me", "/board", "/blind"):
            assert secret not in boss.get(page).text


def test_markup_stays_text(tmp_path: Path) -> None:
    """In questions, answers, engine errors and addresses; names and blanks with markup are refused before that."""
    with opened(tmp_path, ScriptedRunner()) as (address, room, engine):
        phone = Phone(address).join()
        engine.said = {"base": MARKUP, "tuned": "data: [DONE]\n\nevent: answered\ndata: x"}
        stream = phone.stream("/ask", question=MARKUP)
        outside = re.sub(r"<(/?)(hx-partial|p|div|section|header|h2|small|span)\b[^>]*>", "", stream)
        assert "<script" not in stream and "<img" not in stream and "<" not in outside
        assert stream.count("event:") == 2  # the text's own is data; what follows it may come later
        assert [line for line in stream.splitlines() if line.startswith("event:")] == ["event: answered"]
        page = phone.get("/", params={"q": "</textarea>" + MARKUP}).text
        assert "<script>alert" not in page and "<img" not in page
        assert phone.get(f"/static/{MARKUP[:20]}").status_code == 404
        boss = presenter(address, room)
        boss.post("/presenter/do/open")
        for name in (MARKUP[:20], "<|im_end|>", "\u202eeve", "\U0001f600", "x" * 200):
            assert Phone(address).post("/me/claim", name=name).status_code == 409
        assert "reads as a command" in phone.fill("the <|im_start|>", "x").text
        for html in (
            phone.post("/me/card", card=MARKUP).text,
            phone.post("/me/claim", name=MARKUP).text,
            phone.get("/me/form", params={"card": MARKUP}).text,
        ):
            assert "<script>alert" not in html and "<img" not in html
        engine.models = []
        assert "<script" not in phone.stream("/ask", question=MARKUP)


def test_pages_run_only_the_rooms_own_scripts(tmp_path: Path) -> None:
    with opened(tmp_path, ScriptedRunner()) as (address, room, _):
        boss = presenter(address, room)
        for path in ("/", "/blind", "/me", "/board", "/presenter", "/nothing"):
            reply = boss.get(path)
            policy = reply.headers["content-security-policy"]
            assert "default-src 'none'" in policy and "script-src 'self'" in policy and "unsafe" not in policy
            assert reply.headers["x-content-type-options"] == "nosniff" and reply.headers["cache-control"] == "no-store"
            assert not re.search(
                r"<script(?! src=\"/static/)|\son\w+=|<style|\sstyle=|javascript:|hx-on|hx-vals|https?://(?!www\.w3\.org|127\.)",
                reply.text,
            ), path


def test_big_bodies_are_refused_before_they_are_read(tmp_path: Path) -> None:
    with opened(tmp_path, ScriptedRunner()) as (address, _, engine):
        phone = Phone(address).join()
        big = "x" * 10_000_000

        def parts() -> Any:
            for _ in range(1000):
                yield b"question=" + b"x" * 10_000

        for path in ("/ask", "/blind/ask", "/blind/vote", "/me/claim", "/me/card", "/me/ask"):
            assert phone.post(path, question=big).status_code == 413
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        assert phone.http.post("/ask", content=parts(), headers=kind).status_code == 413
        assert not engine.asked and phone.get("/me").status_code == 200


@pytest.mark.parametrize(
    ("how", "status"),
    [
        ({"files": {"question": ("a.txt", b"hello")}}, 415),
        ({"json": {"question": "x"}}, 415),
        ({"content": b"question=x", "headers": {"Content-Type": "text/plain"}}, 415),
        ({"content": b"question=x"}, 415),
        ({"content": b"question=\xff%ff", "headers": {"Content-Type": "application/x-www-form-urlencoded"}}, 400),
        (
            {
                "content": b"&".join(b"a=1" for _ in range(100)),
                "headers": {"Content-Type": "application/x-www-form-urlencoded"},
            },
            400,
        ),
        ({"data": {"question": "x"}, "headers": {"Sec-Fetch-Site": "cross-site"}}, 403),
    ],
)
def test_only_forms_of_the_rooms_own_pages_are_read(tmp_path: Path, how: dict[str, Any], status: int) -> None:
    with opened(tmp_path) as (address, _, engine):
        assert httpx.post(f"{address}/ask", **how).status_code == status and not engine.asked


@pytest.mark.rest
def test_one_phone_with_a_thousand_requests_leaves_the_others_alone(tmp_path: Path) -> None:
    with opened(tmp_path, ScriptedRunner()) as (address, _, _):
        rude, kind = Phone(address).join(), Phone(address).join()
        statuses = []
        for n in range(1000):
            statuses.append(rude.get("/me").status_code)
            if n % 100 == 0:
                assert kind.get("/me").status_code == 200
        assert statuses.count(429) > 800
        reply = rude.get("/me")
        assert reply.status_code == 429 and int(reply.headers["retry-after"]) >= 1 and "too often" in reply.text


def test_many_streams_and_questions_of_one_phone_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path, ScriptedRunner()) as (address, room, engine):
        phone, engine.seconds = Phone(address).join(), 0.3
        streams = [phone.http.stream("GET", "/board/live") for _ in range(7)]
        replies = [stream.__enter__() for stream in streams]
        assert [reply.status_code for reply in replies] == [200] * 6 + [409]
        for stream in streams:
            stream.__exit__(None, None, None)
        asking = [phone.http.stream("POST", "/ask", data={"question": "Is it so?"}) for _ in range(2)]
        lines = [stream.__enter__().iter_lines() for stream in asking]
        for line in lines:
            next(line)
        assert "still being answered" in phone.stream("/ask", question="And this?")
        for stream in asking:
            stream.__exit__(None, None, None)
        until(lambda: not room.asking)


def test_anothers_adapter_cannot_be_asked(tmp_path: Path) -> None:
    runner = ScriptedRunner(steps=1)
    with opened(tmp_path, runner) as (address, room, engine):
        boss, one, other, stranger = (
            presenter(address, room),
            Phone(address).join(),
            Phone(address).join(),
            Phone(address),
        )
        boss.post("/presenter/do/open")
        one.fill("the donkey", "Moonbeam")
        other.fill("the donkey", "Comet")
        boss.post("/presenter/do/close")
        until(lambda: room.rounds.round.status.state == "done")
        boss.post("/presenter/do/reveal")
        round_id = room.rounds.round.id
        engine.models += [f"{round_id}-p01", f"{round_id}-p02"]
        guess = {"question": "Who?", "model": f"{round_id}-p02", "owner": "p02", "place": "p02", "device": "x"}
        one.stream("/me/ask", **guess)
        one.stream("/ask", **guess)
        stranger.get("/me")
        assert "once the round is revealed" in stranger.stream("/me/ask", **guess)
        asked = {body["model"] for body in engine.asked}
        assert asked == {"base", "tuned", f"{round_id}-p01"}


def test_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = keys.load(tmp_path)
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    assert keys.load(tmp_path).derive("x") == made.derive("x")
    monkeypatch.setenv(keys.VARIABLE, "short")
    with pytest.raises(UserError, match="TRAINLAB_ROOM_KEY: the room's key has 5 bytes"):
        keys.load(tmp_path)
    with pytest.raises(UserError, match=r"none: No such file"):
        keys.load(tmp_path, tmp_path / "none")


def test_visitors_words_are_not_for_other_users_of_the_machine(tmp_path: Path) -> None:
    with opened(tmp_path, ScriptedRunner()) as (address, _, _):
        Phone(address).join("Ada")
        assert (tmp_path / "room.json").stat().st_mode & 0o077 == 0


def test_cookies_are_kept_from_scripts_and_other_sites(tmp_path: Path) -> None:
    with opened(tmp_path) as (address, _, _):
        plain, tls = httpx.get(f"{address}/"), httpx.get(f"{address}/", headers={"X-Forwarded-Proto": "https"})
        for reply, secure in ((plain, False), (tls, True)):
            cookie = reply.headers["set-cookie"]
            assert "HttpOnly" in cookie and "SameSite=lax" in cookie and ("Secure" in cookie) == secure


def test_the_phones_first_load_is_small(tmp_path: Path) -> None:
    with opened(tmp_path, ScriptedRunner()) as (address, _, _):
        phone = httpx.Client(base_url=address)
        page = phone.get("/me").text
        files = re.findall(r'(?:src|href)="(/static/[^"]+)"', page)
        sizes = {path: len(gzip.compress(phone.get(path).content, 9)) for path in files}
        assert len(files) == 4 and len(gzip.compress(page.encode(), 9)) + sum(sizes.values()) <= 25_000, sizes
        for path in files:
            reply = phone.get(path)
            assert reply.headers["content-encoding"] == "gzip" and "immutable" in reply.headers["cache-control"]


def test_it_needs_no_torch() -> None:
    code = "import sys; from trainlab.room import app, command; assert not {'torch', 'transformers', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": ":".join([str(SOURCES), *sys.path])}, check=True)


def test_headers_say_what_pages_may_do() -> None:
    assert "script-src 'self'" in access.POLICY and json.dumps(access.HEADERS)
    assert set(pages.ASSETS) >= {
        "htmx.min.js",
        "hx-sse.min.js",
        "room.css",
        "room.js",
        "board.js",
        "uPlot.iife.min.js",
        "uPlot.min.css",
    }
