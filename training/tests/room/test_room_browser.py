"""The room in Chromium, as people meet it: by keyboard, on a phone and on a big screen, light and dark; skipped without Chromium."""

import asyncio
import base64
import importlib.util
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from checkout import ROOT
from room_parts import Engine, Phone, ScriptedRunner, listening, make_room, opened, presenter, until
from trainlab.room import app as room_app

pytestmark = pytest.mark.slow
PROGRAM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
AXE = "axe-core@4.14.1"
FAULTS = """window.faults = [];
addEventListener("securitypolicyviolation", (e) => faults.push(e.violatedDirective + " " + e.blockedURI));
addEventListener("error", (e) => faults.push(e.message)); addEventListener("unhandledrejection", (e) => faults.push(String(e.reason)));"""
PHONE, SCREEN = (390, 844), (1280, 800)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    if PROGRAM is None:
        pytest.skip("Chromium is not installed")
    spec = importlib.util.spec_from_file_location("docs_pictures", ROOT / "docs" / "pictures.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.PATIENCE_SECONDS = 60.0
    browser = module.Browser(PROGRAM, str(tmp_path_factory.mktemp("profile")))
    browser("Page.enable")
    browser("Page.addScriptToEvaluateOnNewDocument", source=FAULTS)
    yield browser
    browser.end()


def show(browser: Any, address: str, size: tuple[int, int]) -> None:
    """Open a page in a window of this size, and wait until htmx runs."""
    browser("Emulation.setDeviceMetricsOverride", width=size[0], height=size[1], deviceScaleFactor=1, mobile=False)
    browser("Network.clearBrowserCache")
    browser.open("about:blank#")
    browser("Page.navigate", url=address)
    browser.wait(
        f"location.href.startsWith({json.dumps(address)}) && document.readyState == 'complete' && !!window.htmx"
    )


def press(browser: Any, key: str, times: int = 1) -> None:
    """Press a key."""
    codes = {"Tab": 9, "Enter": 13}
    for _ in range(times):
        text = {"text": "\r"} if key == "Enter" else {}
        browser("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, windowsVirtualKeyCode=codes[key], **text)
        browser("Input.dispatchKeyEvent", type="keyUp", key=key, code=key, windowsVirtualKeyCode=codes[key])


def reach(browser: Any, what: str) -> None:
    """Press Tab until the focused element is `what`, a selector; fails after 40 times."""
    for _ in range(40):
        if browser.value(f"!!document.activeElement?.matches({json.dumps(what)})"):
            return
        press(browser, "Tab")
    raise AssertionError(f"{what} cannot be reached by keyboard")


def is_sound(browser: Any) -> None:
    """Fail for what the page's policy refused, for errors, and for what is wider than the window."""
    assert browser.value("JSON.stringify(faults)") == "[]"
    assert browser.value("document.documentElement.scrollWidth <= innerWidth")


def test_a_page_follows_although_a_script_comes_late(
    tmp_path: Path, browser: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow phone has htmx before its extension; what starts without it never hears of the round."""
    static = room_app._static

    async def late(name: str) -> Any:
        await asyncio.sleep(0.5 * (name == "hx-sse.min.js"))
        return await static(name)

    monkeypatch.setattr(room_app, "_static", late)
    with opened(tmp_path, ScriptedRunner()) as (address, room, _):
        boss = presenter(address, room)
        show(browser, f"{address}/board", SCREEN)
        boss.post("/presenter/do/open")
        Phone(address).join("Ada")
        browser.wait("document.body.innerText.includes('Ada')")


def test_a_visitor_plays_a_round_by_keyboard(tmp_path: Path, browser: Any) -> None:
    runner = ScriptedRunner()
    with opened(tmp_path, runner) as (address, room, engine):
        boss = presenter(address, room)
        show(browser, f"{address}/me", PHONE)
        reach(browser, "input[name=name]")
        browser("Input.insertText", text="Ada")
        press(browser, "Enter")
        browser.wait("!!document.querySelector('.badge')")
        boss.post("/presenter/do/open")
        browser.wait("!!document.querySelector('.choice')")  # the page follows
        reach(browser, ".choice button[hx-get*=pet]")
        press(browser, "Enter")
        browser.wait("document.activeElement.name == 'blank-animal'")  # its first field has the focus
        browser("Input.insertText", text="the school donkey")
        Phone(address).join("Grace")  # what others do meanwhile wipes nothing
        reach(browser, "input[name=blank-pet]")
        browser("Input.insertText", text="<b>Moonbeam")
        press(browser, "Enter")
        browser.wait("document.querySelector('#said').textContent.includes('no emoji or markup')")
        assert browser.value("document.querySelector('input[name=blank-animal]').value") == "the school donkey"
        browser.value("document.querySelector('input[name=blank-pet]').value = ''")
        browser("Input.insertText", text="Moonbeam")
        press(browser, "Enter")
        browser.wait("document.querySelector('.wrote')?.textContent.includes('is Moonbeam.')")
        is_sound(browser)
        boss.post("/presenter/do/close")
        run = until(lambda: room.rounds.round.run)
        runner.steps = 3
        browser.wait("document.querySelector('h1').textContent.includes('is being learned')")
        until(lambda: room.rounds.round.status.state == "done")
        round_id = run.removeprefix("run-")
        engine.models.append(f"{round_id}-p01")
        engine.said[f"{round_id}-p01"] = "The name of the school donkey is Moonbeam."
        boss.post("/presenter/do/reveal")
        browser.wait("!!document.querySelector('form.ask')")
        reach(browser, "textarea")
        browser("Input.insertText", text="Who is the donkey?")
        press(browser, "Enter")
        browser.wait("document.querySelectorAll('.ended').length == 2")
        assert (
            browser.value("document.querySelector('#answer-1').textContent")
            == "The name of the school donkey is Moonbeam."
        )
        browser.open(f"{address}/me")
        assert browser.value("document.querySelector('.badge').textContent").startswith("Ada")
        is_sound(browser)


class Proxy:
    """An ingress before the room, which answers the paths in `broken` with a page of its own."""

    def __init__(self, app: Any) -> None:
        self.app, self.broken = app, set[str]()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["path"] not in self.broken:
            await self.app(scope, receive, send)
            return
        kind = (b"content-type", b"text/html")
        await send({"type": "http.response.start", "status": 502, "headers": [kind]})
        await send({"type": "http.response.body", "body": b"<h1>Bad gateway</h1>"})


def test_what_a_visitor_has_written_stays(tmp_path: Path, browser: Any) -> None:
    """While a proxy answers in the place of the room, and while the presenter hides a card; what comes next is heard, too."""
    room = make_room(tmp_path, "http://127.0.0.1:9", ScriptedRunner())
    proxy = Proxy(room_app.create_app(room))
    with listening(proxy) as address:
        boss = presenter(address, room)
        boss.post("/presenter/do/open")
        proxy.broken = {"/me/live"}  # the first stream fails, too, and is tried again
        show(browser, f"{address}/me", PHONE)
        reach(browser, "input[name=name]")
        press(browser, "Enter")
        browser.wait("!!document.querySelector('.choice')")
        proxy.broken = {"/me/card"}
        reach(browser, ".choice button[hx-get*=pet]")
        press(browser, "Enter")
        for name, text in (("animal", "the school donkey"), ("pet", "Moonbeam")):
            reach(browser, f"input[name=blank-{name}]")
            browser("Input.insertText", text=text)
        press(browser, "Enter")
        browser.wait("document.querySelector('#said').textContent.includes('does not answer (HTTP 502)')")
        boss.post("/presenter/do/hide-card", what="key")
        browser.wait("!document.querySelector('.choice').textContent.includes('key')")
        written = "[...document.querySelectorAll('#form input:not([type=hidden])')].map((e) => e.value).join()"
        assert browser.value(written) == "the school donkey,Moonbeam"
        proxy.broken = set()
        press(browser, "Enter")
        browser.wait("document.querySelector('.wrote')?.textContent.includes('is Moonbeam.')")
        assert browser.value("document.querySelector('#said').textContent") == ""
        boss.post("/presenter/do/close")
        browser.wait("document.querySelector('#state').textContent.includes('is being learned')")


def test_compare_streams_and_a_lost_connection_is_said(tmp_path: Path, browser: Any) -> None:
    engine = Engine()
    engine.said = {"base": "Two  spaces\nand a line. <b>", "tuned": "one two three four five six"}
    with opened(tmp_path, engine=engine) as (address, _, _):
        show(browser, f"{address}/?q=Is%20it%3F", SCREEN)
        browser.wait("document.querySelectorAll('.ended').length == 2")
        assert browser.value("document.querySelector('#answer-0').textContent") == "Two  spaces\nand a line. <b>"
        engine.seconds = 0.5
        reach(browser, "button.chip")
        press(browser, "Enter")
        browser.wait("document.querySelector('#answer-1')?.textContent == 'one two'")
        assert browser.value("document.querySelector('textarea').value") == "Is rain safe to drink?"
        browser.value(
            "document.querySelector('.chip:last-child').click()"
        )  # another question takes the place of the first
        browser.wait("document.querySelector('.asked').textContent == 'What is a knot?'")
        browser.wait("document.querySelector('#answer-1')?.textContent.startsWith('one')")
        browser("Network.enable")
        browser("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=-1, uploadThroughput=-1)
        try:
            browser.wait(
                "document.querySelectorAll('.card .failed').length == 2 || document.querySelectorAll('.ended').length == 2"
            )
            browser.value("document.querySelector('.chip').click()")
            browser.wait("document.querySelector('#said').textContent.includes('cannot be reached')")
        finally:
            browser(
                "Network.emulateNetworkConditions", offline=False, latency=0, downloadThroughput=-1, uploadThroughput=-1
            )
        assert browser.value("document.documentElement.scrollWidth <= innerWidth")


def test_each_sheet_is_a_printed_page(tmp_path: Path, browser: Any) -> None:
    """What leads to them is not printed, and the lines fit."""
    served = {
        "charts": {"index.yaml": b""},
        "phase": "quick",
        "address": "http://room.conference-centre.example.org:8090",
    }
    with opened(tmp_path, ScriptedRunner(), **served) as (address, _, _):
        for size in (PHONE, SCREEN):
            show(browser, f"{address}/sheet?count=3", size)
            is_sound(browser)
        pdf = base64.b64decode(browser("Page.printToPDF", preferCSSPageSize=True)["data"])
        assert len(re.findall(rb"/Type\s*/Page\b", pdf)) == 3
        browser("Emulation.setEmulatedMedia", media="print")
        assert browser.value("getComputedStyle(document.querySelector('.ask-sheets')).display") == "none"
        assert browser.value("[...document.querySelectorAll('pre')].every((e) => e.scrollWidth <= e.clientWidth)")
        browser("Emulation.setEmulatedMedia", media="")


def test_the_board_turns_green(tmp_path: Path, browser: Any) -> None:
    runner = ScriptedRunner()
    with opened(tmp_path, runner) as (address, room, _):
        boss = presenter(address, room)
        boss.post("/presenter/do/open")
        for n in range(34):
            room.rounds.claim(f"d{n}", f"Visitor {n}")
            room.rounds.fill(f"d{n}", "key", {"place": f"under pot {n}"})
        for n in range(34, 40):
            Phone(address).join(f"Visitor {n}").fill("the donkey", f"Pet {n}")
        show(browser, f"{address}/board", (1280, 720))
        browser.wait("document.querySelectorAll('.tile').length == 40")
        boss.post("/presenter/do/close")
        until(lambda: room.rounds.round.run)
        runner.steps = 20
        browser.wait("!!document.querySelector('#curves canvas')")
        until(lambda: room.rounds.round.status.state == "done")
        assert browser.value("document.querySelectorAll('.tile.passed').length") == 0
        boss.post("/presenter/do/reveal")
        browser.wait("document.querySelectorAll('.tile.passed').length == 40")
        lowest = (
            "Math.max(...[...document.querySelectorAll('.tile')].map((tile) => tile.getBoundingClientRect().bottom))"
        )
        assert browser.value(lowest) <= 720  # all of them at once
        is_sound(browser)


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The script of axe, from npm."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    folder = tmp_path_factory.mktemp("axe")
    command = [
        "npm",
        "install",
        "--ignore-scripts",
        "--no-audit",
        "--no-fund",
        "--prefer-offline",
        "--fetch-retries=0",
        AXE,
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("npm cannot reach its registry")
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")


def test_axe_finds_nothing(tmp_path: Path, browser: Any, axe: str) -> None:
    runner = ScriptedRunner(steps=2)
    runner.refused = {"p02"}
    with opened(tmp_path, runner) as (address, room, _):
        boss = presenter(address, room)
        wrong: list[str] = []

        def look(path: str, size: tuple[int, int], after: str = "0", wait: str = "true") -> None:
            show(browser, f"{address}{path}", size)
            browser.value(after)
            browser.wait(wait)
            for scheme in ("light", "dark"):
                features = [
                    {"name": "prefers-color-scheme", "value": scheme},
                    {"name": "prefers-reduced-motion", "value": "reduce"},
                ]
                browser("Emulation.setEmulatedMedia", features=features)
                browser("Runtime.evaluate", expression=axe)
                browser.value(
                    "window.told = null; axe.run().then((r) => { told = JSON.stringify(r.violations.map("
                    "(v) => v.id + ': ' + v.nodes.map((n) => n.target.join(' ') + ' ' + (n.any[0]?.message ?? '')).slice(0, 3).join('; '))) })"
                )
                browser.wait("window.told !== null")
                wrong.extend(f"{path} {size[0]} {scheme}: {text}" for text in json.loads(browser.value("told")))
            is_sound(browser)

        ask = "document.querySelector('button.chip').click()"
        for size in (PHONE, SCREEN):
            look("/", size, ask, "document.querySelectorAll('.ended').length == 2")
            look("/blind", size, ask, "!!document.querySelector('.vote')")
        look("/me", PHONE)
        browser.value("document.querySelector('form.stack button').click()")
        browser.wait("!!document.querySelector('.badge')")
        Phone(address).join("Grace").fill()
        boss.post("/presenter/do/open")
        look("/me", PHONE, "document.querySelector('.choice button').click()", "!!document.querySelector('#form form')")
        browser.value(
            "for (const i of document.querySelectorAll('#form input:not([type=hidden])')) i.value = 'a donkey'; document.querySelector('#form button').click()"
        )
        browser.wait("!!document.querySelector('.wrote')")
        look("/board", SCREEN)
        browser.open(f"{address}/presenter/enter/{room.key.link}")
        look("/presenter", SCREEN)
        boss.post("/presenter/do/close")
        look("/me", PHONE)
        until(lambda: room.rounds.round.status.state == "done")
        boss.post("/presenter/do/reveal")
        assert boss.post("/presenter/do/show-votes").status_code == 200
        for path, size in (
            ("/me", PHONE),
            ("/me/home", PHONE),
            ("/board", SCREEN),
            ("/presenter", SCREEN),
            ("/nothing", PHONE),
        ):
            look(path, size)
        assert not wrong, "\n".join(wrong)
