"""Takes the README's screenshots, light and dark; `make pictures` calls it after a `make demo`.

Needs Chromium (Debian: apt-get install chromium). The report is that of the newest survival run under artifacts/. With PAGE, the address
of a served model, the page on which both models answer is taken, too, after its first sample question: on a laptop, and on a phone.
With ROOM, the presenter's secret address of a room, four phones play a round there, and its board is taken after the reveal, with a phone.
With MERMAID, the file mermaid.min.js (`npm pack mermaid@11`), the diagrams are drawn from docs/pictures/*.mmd, and nothing else is: then
no page needs a network to show them.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "pictures"
REPORT = (1000, 860)
"""Pixels: from the verdict to the clearest pairs."""
LAPTOP, PHONE, GAP = (1100, 800), (390, 800), 30
COLORS = 64
"""Palette size: text and bars need no more, and the files are a third of the size."""
SCHEMES = ("dark", "light")
PATIENCE_SECONDS = 600.0
FIRST_QUESTION = 'document.querySelector(".chip").value'
TOP, MODELS = "scrollTo(0, 0)", 'document.getElementById("answers").scrollIntoView()'
OWN = 'document.querySelector("#answers .card:last-child").scrollIntoView()'
ANSWERED = 'document.querySelectorAll(".ended").length > 1'
BOARD_HEIGHT, SETTLED_SECONDS = 560, 2.0
"""Pixels; and how long tiles take to change their color."""


class Browser:
    """Chromium with one page, asked over a pipe in its DevTools protocol (chromedevtools.github.io)."""

    def __init__(self, program: str, profile: str) -> None:
        command = [
            program,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            f"--user-data-dir={profile}",
        ]
        (asked, self._ask), (self._answers, answers) = os.pipe(), os.pipe()
        line = f"exec {shlex.join(command)} --remote-debugging-pipe about:blank 3<&{asked} 4>&{answers} 2> /dev/null"
        self._process = subprocess.Popen(["bash", "-c", line], pass_fds=(asked, answers))
        os.close(asked)
        os.close(answers)
        self._number, self._session, self._rest = 0, {}, b""
        target = self("Target.createTarget", url="about:blank")["targetId"]
        self._session = {"sessionId": self("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]}

    def __call__(self, method: str, **params: Any) -> dict[str, Any]:
        """Return the result of a method of the protocol; SystemExit when Chromium refuses it or ends."""
        self._number += 1
        request = {"id": self._number, "method": method, "params": params, **self._session}
        os.write(self._ask, json.dumps(request).encode() + b"\0")
        while (answer := self._next()).get("id") != self._number:
            pass
        if "error" in answer:
            raise SystemExit(f"error: chromium: {method}: {answer['error']['message']}")
        result: dict[str, Any] = answer["result"]
        return result

    def open(self, url: str) -> None:
        """Show a page."""
        self("Page.navigate", url=url)
        self.wait('location.href != "about:blank" && document.readyState == "complete"')

    def value(self, expression: str) -> Any:
        """Return the value of an expression of JavaScript, None if it fails."""
        return self("Runtime.evaluate", expression=expression)["result"].get("value")

    def wait(self, expression: str) -> None:
        """Wait until an expression is true; SystemExit after PATIENCE_SECONDS."""
        began = time.monotonic()
        while not self.value(expression):
            if time.monotonic() - began > PATIENCE_SECONDS:
                raise SystemExit(
                    f"error: {self.value('location.href')}: not so after {PATIENCE_SECONDS:.0f} s: {expression}"
                )
            time.sleep(0.2)

    def picture(self, size: tuple[int, int], scheme: str, prepare: str = "0") -> Image.Image:
        """Return what a window of this size in pixels shows in a color scheme, after an expression."""
        self("Emulation.setDeviceMetricsOverride", width=size[0], height=size[1], deviceScaleFactor=1, mobile=False)
        self("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.value(prepare)
        return Image.open(io.BytesIO(base64.b64decode(self("Page.captureScreenshot")["data"]))).convert("RGB")

    def end(self) -> None:
        """End Chromium."""
        self._process.terminate()
        self._process.wait()

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            if not (more := os.read(self._answers, 1 << 16)):
                raise SystemExit("error: chromium ended")
            self._rest += more
        text, self._rest = self._rest.split(b"\0", 1)
        message: dict[str, Any] = json.loads(text)
        return message


def newest() -> Path:
    """Return the report of the newest run; raise SystemExit with the remedy if there is none."""
    result = sorted((ROOT / "artifacts").glob("survival-*/report.html"), key=lambda page: page.stat().st_mtime)
    if not result:
        raise SystemExit("error: artifacts/survival-*/report.html: no run found; `make demo` makes one")
    return result[-1]


def of_report(browser: Browser, page: Path) -> dict[str, Image.Image]:
    """Return pictures of a report by color scheme."""
    browser.open(page.as_uri())
    return {scheme: browser.picture(REPORT, scheme) for scheme in SCHEMES}


def of_page(browser: Browser, address: str) -> dict[str, Image.Image]:
    """Return pictures by color scheme of the page on which both models have answered: a laptop, and next to it a phone."""
    browser.open(address)
    browser.open(f"{address}?q={quote(browser.value(FIRST_QUESTION))}")
    browser.wait(ANSWERED)
    pictures = {}
    for scheme in SCHEMES:
        pictures[scheme] = Image.new("RGB", (LAPTOP[0] + GAP + PHONE[0], LAPTOP[1]), "#888")
        pictures[scheme].paste(browser.picture(LAPTOP, scheme, TOP), (0, 0))
        pictures[scheme].paste(browser.picture(PHONE, scheme, MODELS), (LAPTOP[0] + GAP, 0))
    return pictures


def of_room(browser: Browser, link: str) -> dict[str, Image.Image]:
    """Return pictures by color scheme of a round that four phones have played: the board, and next to it a phone that asked its model."""
    from e2e import phones

    address = link.partition("/presenter/")[0]
    presenter = phones.Presenter(address)
    presenter.enter(link)
    presenter.do("next")
    presenter.do("open")
    names = ("Ada", "Grace", "Linus", "Mary")
    people = [phones.Phone(address, *card) for card in phones.FOUR.items()]
    for name, person in zip(names, people, strict=True):
        person.join(name)
    presenter.do("close")
    presenter.trained()
    presenter.do("reveal")
    for cookie in people[0].client.cookies.jar:
        browser("Network.setCookie", name=cookie.name, value=str(cookie.value), url=address, httpOnly=True)
    pictures = {}
    for scheme in SCHEMES:
        pictures[scheme] = Image.new("RGB", (LAPTOP[0] + GAP + PHONE[0], BOARD_HEIGHT), "#888")
        for path, size, at in (("board", LAPTOP, 0), ("me", PHONE, LAPTOP[0] + GAP)):
            size = (size[0], BOARD_HEIGHT)
            browser.picture(size, scheme)
            browser.open(f"{address}/{path}")
            if path == "me":
                asked = json.dumps(people[0].question())
                browser.value(
                    f"document.querySelector('textarea').value = {asked}; document.querySelector('form.ask button').click()"
                )
                browser.wait(ANSWERED)
            time.sleep(SETTLED_SECONDS)
            pictures[scheme].paste(browser.picture(size, scheme, TOP if path == "board" else OWN), (at, 0))
    return pictures


def of_diagram(browser: Browser, source: Path) -> str:
    """Return a diagram as SVG, its text as text, with the hash of its source; SystemExit with what Mermaid says against it."""
    settings = {
        "theme": "neutral",
        "htmlLabels": False,
        "fontFamily": "sans-serif",
        "deterministicIds": True,
        "flowchart": {"wrappingWidth": 360},
    }
    text = source.read_text(encoding="utf-8")
    browser.value(
        f"mermaid.initialize({json.dumps({'startOnLoad': False, **settings})}); window.drawn = window.wrong = null;"
        f"mermaid.render({json.dumps(source.stem)}, {json.dumps(text)})"
        ".then(made => { window.drawn = made.svg }).catch(error => { window.wrong = String(error) }); 0"
    )
    browser.wait("window.drawn || window.wrong")
    if wrong := browser.value("window.wrong"):
        raise SystemExit(f"error: {source.relative_to(ROOT)}: {wrong}")
    drawn = re.sub(
        r'width="100%"(.*?)style="max-width: ([0-9.]+)px;"',
        r'width="\2"\1style="background: white"',
        str(browser.value("window.drawn")),
        count=1,
    )
    return f"{drawn}\n<!-- {hashlib.sha256(text.encode()).hexdigest()} {source.name} -->\n"


def draw(browser: Browser, script: Path, profile: str) -> None:
    """Draw the diagrams with Mermaid's script."""
    page = Path(profile) / "mermaid.html"
    page.write_text(f'<meta charset="utf-8"><script src="{script.resolve().as_uri()}"></script>', encoding="utf-8")
    browser.open(page.as_uri())
    for source in sorted(FOLDER.glob("*.mmd")):
        target = source.with_suffix(".svg")
        target.write_text(of_diagram(browser, source), encoding="utf-8")
        print(f"{target.relative_to(ROOT)}: {target.stat().st_size // 1024} KiB")


def main() -> None:
    """Take all screenshots, or draw the diagrams."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        raise SystemExit("error: chromium: command not found; apt-get install chromium")
    FOLDER.mkdir(exist_ok=True)
    address, room = os.environ.get("PAGE", "").rstrip("/"), os.environ.get("ROOM", "")
    with tempfile.TemporaryDirectory() as profile:
        browser = Browser(program, profile)
        try:
            if script := os.environ.get("MERMAID"):
                draw(browser, Path(script), profile)
                return
            taken = {
                "report": of_report(browser, newest()),
                **({"page": of_page(browser, f"{address}/")} if address else {}),
                **({"room": of_room(browser, room)} if room else {}),
            }
            for name, pictures in taken.items():
                for scheme, picture in pictures.items():
                    target = FOLDER / f"{name}-{scheme}.png"
                    picture.quantize(COLORS).save(target, optimize=True)
                    print(f"{target.relative_to(ROOT)}: {target.stat().st_size // 1024} KiB")
        finally:
            browser.end()


if __name__ == "__main__":
    main()
