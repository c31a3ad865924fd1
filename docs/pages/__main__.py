"""Write each generated page; `make gen` calls it with PYTHONPATH=training/src:cluster:tests:docs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from pages import commands, compatibility, messages, replay, role_variables, rooms, seeds, sizing, status

ROOT = Path(__file__).resolve().parents[2]
PAGES: dict[str, Callable[[], str]] = {
    compatibility.PAGE: compatibility.text,
    commands.PAGE: commands.text,
    sizing.PAGE: sizing.text,
    seeds.PAGE: seeds.text,
    messages.PAGE: messages.text,
    status.PAGE: status.text,
    replay.PAGE: replay.text,
    rooms.PAGE: rooms.text,
    **{role_variables.page(role): partial(role_variables.text, role) for role in role_variables.roles()},
}
"""Each generated page of the checkout with what writes it."""


def main() -> int:
    """Create missing scenarios, which a page names, and write each page that changed."""
    for link in compatibility.scenarios():
        print(f"{link.relative_to(ROOT)}: written")
    for name, text in PAGES.items():
        path, new = ROOT / name, text()
        if path.exists() and path.read_text(encoding="utf-8") == new:
            print(f"{name}: up to date")
        else:
            path.write_text(new, encoding="utf-8")
            print(f"{name}: written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
