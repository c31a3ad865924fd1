"""Tables of Markdown, for the generated pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def cell(value: object) -> str:
    """Return a text as one cell of a table: in one line, its pipes escaped."""
    return " ".join(str(value).split()).replace("|", "\\|")


def code(value: object) -> str:
    """Return a text as code, empty for an empty one."""
    return f"`{value}`" if str(value) else ""


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table of Markdown with a row for each of `rows`; each has as many cells as `head`."""
    lines = [f"| {' | '.join(map(cell, line))} |" for line in [head, *rows]]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])
