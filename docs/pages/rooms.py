"""docs/pictures/rooms.svg: the folders of the Python package as floors, and the imports between them.

Floors are the layers of pyproject.toml's contract, which `make lint` enforces. The arrows are read from the code: of those that
follow from others (a to b and b to c make a to c needless) none is drawn. A folder's sentence is the first of its first file.
"""

from __future__ import annotations

import ast
import re
import textwrap
import tomllib
from html import escape
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "training" / "src"
PAGE = "docs/pictures/rooms.svg"
WIDTH, MARGIN, GAP, LINE, COLUMN = 760, 40, 26, 17, 6.7
"""Pixels: the picture, its sides, between floors and boxes, a line of text, a letter."""


def floors() -> list[list[str]]:
    """Return the rooms of each floor, from the top."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    (layers,) = (each["layers"] for each in contracts if each.get("containers") == ["trainlab"])
    return [[room.strip() for room in layer.split("|")] for layer in layers]


def sentence(room: str) -> str:
    """Return the first sentence of the room's first file."""
    folder = SOURCES / "trainlab" / room
    file = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    docstring = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return re.split(r"(?<=[.;])\s", " ".join(docstring.replace("`", "").split()))[0].rstrip(";.")


def arrows() -> set[tuple[str, str]]:
    """Return (room, imported room) without those that follow from others."""
    graph = grimp.build_graph("trainlab", cache_dir=None)
    pairs = {
        (importer.split(".")[1], module.split(".")[1])
        for module in graph.modules
        for importer in graph.find_modules_that_directly_import(module)
        if "." in module and "." in importer
    }
    reach = {(a, b) for a, b in pairs if a != b}
    while more := {(a, d) for a, b in reach for c, d in reach if b == c} - reach:
        reach |= more
    middle = {(a, d) for a, b in reach for c, d in reach if b == c}
    return reach - middle


def text() -> str:
    """Return the picture."""
    boxes: dict[str, tuple[float, float, float, float]] = {}
    drawn, top = list[str](), GAP
    for rooms in floors():
        width = (WIDTH - 2 * MARGIN - GAP * (len(rooms) - 1)) / len(rooms)
        wrapped = [textwrap.wrap(sentence(room), int((width - 24) / COLUMN)) for room in rooms]
        height = LINE * (1 + max(map(len, wrapped))) + 16
        for number, (room, lines) in enumerate(zip(rooms, wrapped, strict=True)):
            left = MARGIN + number * (width + GAP)
            boxes[room] = (left, top, width, height)
            drawn.append(f'<rect x="{left:g}" y="{top}" width="{width:g}" height="{height}" rx="6"/>')
            drawn.append(f'<text class="room" x="{left + 12:g}" y="{top + 20}">{room}</text>')
            drawn += [
                f'<text x="{left + 12:g}" y="{top + 20 + LINE * (n + 1)}">{escape(line)}</text>'
                for n, line in enumerate(lines)
            ]
        top += height + GAP
    number = {room: n for n, rooms in enumerate(floors()) for room in rooms}
    for above, below in sorted(arrows(), key=lambda pair: (number[pair[0]], pair)):
        left, y, width, height = boxes[above]
        x, end, wide, tall = boxes[below]
        if number[below] == number[above] + 1:
            middle = (max(left, x) + min(left + width, x + wide)) / 2
            way = f"M{middle:g} {y + height}V{end - 3}"
        else:  # past the floors between
            way = f"M{left + width:g} {y + height / 2:g}h22V{end + tall / 2:g}H{x + wide + 3:g}"
        drawn.append(f'<path d="{way}" marker-end="url(#tip)"/>')
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" role="img" aria-labelledby="title">
<title id="title">The folders of the package trainlab, from {floors()[0][0]} down to {floors()[-1][0]}; each imports only from below</title>
<style>
text{{font:13px system-ui,"DejaVu Sans",sans-serif;fill:#59636e}}.room{{font-weight:600;font-size:15px;fill:#1f2328}}
rect{{fill:#f6f8fa;stroke:#8c959f}}path{{fill:none;stroke:#0969da;stroke-width:1.5}}#tip path{{fill:#0969da;stroke:none}}
@media (prefers-color-scheme:dark){{text{{fill:#9198a1}}.room{{fill:#f0f6fc}}rect{{fill:#151b23;stroke:#656c76}}path{{stroke:#4493f8}}#tip path{{fill:#4493f8}}}}
</style>
<defs><marker id="tip" viewBox="0 0 8 8" refX="5" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z"/></marker></defs>
{chr(10).join(drawn)}
</svg>
"""
