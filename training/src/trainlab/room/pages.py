"""Renders the room's templates; every value is escaped."""

import hashlib
from functools import lru_cache
from importlib.resources import files as package_files
from typing import Any

import segno
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

FOLDER = package_files("trainlab.room").joinpath("static")
TYPES = {".js": "text/javascript", ".css": "text/css"}


def _assets() -> dict[str, tuple[bytes, str]]:
    """Return the files that browsers get by name: bytes and media type."""
    return {
        entry.name: (entry.read_bytes(), TYPES[suffix])
        for entry in FOLDER.iterdir()
        if (suffix := "." + entry.name.rpartition(".")[2]) in TYPES
    }


ASSETS = _assets()


def asset(name: str) -> str:
    """Return the address of a static file, with its digest: it may be cached forever."""
    return f"/static/{name}?{hashlib.sha256(ASSETS[name][0]).hexdigest()[:12]}"


@lru_cache(maxsize=64)
def qr(text: str) -> Markup:
    """Return the QR code of `text` as SVG, dark on white whatever the page's colors."""
    return Markup(segno.make(text, error="m").svg_inline(scale=4, border=3, dark="#000", light="#fff", omitsize=True))


def _duration(seconds: float | None) -> str:
    """Return a time for people: "40 s", "3 min"."""
    if seconds is None:
        return ""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


_ENVIRONMENT = Environment(
    loader=PackageLoader("trainlab.room"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.globals |= {"asset": asset, "qr": qr}
_ENVIRONMENT.filters["duration"] = _duration


def render(template: str, **values: Any) -> str:
    """Return a template of the folder templates, filled."""
    return _ENVIRONMENT.get_template(template).render(**values)


def partial(target: str, html: str | Markup, swap: str = "innerHTML") -> str:
    """Return a part of a stream that htmx puts into the element with the id `target`; a str is escaped."""
    escaped = Markup("").join([html])
    return f'<hx-partial hx-target="#{target}" hx-swap="{swap}">{escaped}</hx-partial>'
