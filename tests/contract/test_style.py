"""docs/style.py: the pages to act by and the names in the code are as it asks, and it finds what it is for."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[2]
style = SimpleNamespace(**runpy.run_path(str(ROOT / "docs" / "style.py")))


def wrong(text: str) -> list[str]:
    """Return what is wrong with a page, with the line."""
    return [f"{line}: {what.partition(': ')[0]}" for line, what in style.findings(text)]


def test_the_pages_are_as_it_asks(capsys: pytest.CaptureFixture[str]) -> None:
    assert style.main() == 0, capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("# A page\n\nThe server\nbeside it.", ["3: `beside`"]),
        ("- An API is there.\n- Is there a GPU?\n", ["1: `is there`"]),
        ("| a | it was told |\n", ["1: `told`"]),
        ("Run another one.\n\nThe one command runs.\n", ["1: `another one`"]),
        ("An old API is none; it is installed again.", ["1: `is none`"]),
        ("```text\nit is told beside\n```\n\n`told beside` is a name, [here](beside.md).", []),
        ("A demo that works every time.", ["1: `works every time`"]),
        ("Side by side.", []),
        ("1. " + "word " * 33 + "end.", ["1: a sentence of 34 words, more than 32"]),
        ("Word " * 20 + "end. `make` " + "word " * 20 + "end.", []),
    ],
)
def test_what_it_finds(text: str, found: list[str]) -> None:
    assert wrong(text) == found


def test_a_word_that_people_search_for_is_in_a_heading() -> None:
    pages = ["# Kubectl and SSH\n\nquota", "## Upgrade"]
    missing = style.not_in_headings(pages)
    assert {"kubectl", "ssh", "upgrade"} & set(missing) == set() and "quota" in missing


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("found = 1\nfor one in (): pass", ["1: `found`", "2: `one`"]),
        ("def told(given, *, whole=1, **one): pass", ["1: `told`", "1: `given`", "1: `whole`", "1: `one`"]),
        (
            "class A:\n    def f(self):\n        self.last_one = lambda whole_text: 0",
            ["3: `last_one`", "3: `whole_text`"],
        ),
        ("import one\nprint(one.told, given=[a for a in found])", []),
        ("ones = foundation = 'one found'", []),
    ],
)
def test_a_name_that_says_nothing_is_found(source: str, names: list[str]) -> None:
    findings = sorted(style.empty_names(source))
    assert sorted(f"{line}: {what.partition(': ')[0]}" for line, what in findings) == sorted(names)
    assert all(": name " in what for _, what in findings)
