"""docs/learn/seeds.md answers each row of the review that had found no key and no reason, and names only what exists."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
import yaml
from pages import commands, seeds
from trainlab.config.site import Site

ROOT = Path(__file__).resolve().parents[2]
ROWS: dict[str, str] = yaml.safe_load(Path(__file__).with_name("seeds.yaml").read_text(encoding="utf-8"))
REVIEW = ROOT.parent / "shared" / "facts" / "review" / "seeds.md"
STATES = {"✘": "missing", "▽": "differs", "⚡": "contradicts"}
ENTRIES = [(list(entry["overlays"]), *line) for entry in seeds.DOCUMENTS.values() for line in entry["lines"]]


def test_each_row_of_the_review_is_answered_once() -> None:
    page = (ROOT / seeds.PAGE).read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([A-F]\d+) \| (.*) \|$", page, re.MULTILINE)
    assert Counter(row for row, _ in rows) == Counter(list(ROWS))
    for row, cells in rows:
        line, key, _, why = (cell.strip() for cell in cells.split(" | "))
        assert line and (key or why not in ("", "as there")), f"{row} has neither a key nor a reason"


@pytest.mark.skipif(not REVIEW.exists(), reason="the review is not beside this checkout")
def test_the_rows_are_those_of_the_review() -> None:
    found = {}
    for row, cells in re.findall(r"^\| ([A-F]\d+) \| (.*)$", REVIEW.read_text(encoding="utf-8"), re.MULTILINE):
        state = re.split(r"(?<!\\)\|", cells)[2]
        if marks := [STATES[sign] for sign in state if sign in STATES]:
            found[row] = marks[0]
    assert found == ROWS


def keys_of_site(key: str) -> bool:
    """Tell whether the section site: has a key, as values files write it."""
    model = Site
    for name in key.split(".")[1:]:
        fields = {field.alias: field.annotation for field in model.model_fields.values()}
        if name not in fields:
            return False
        model = fields[name]  # type: ignore[assignment]
    return True


def command_exists(line: str) -> bool:
    """Tell whether a subcommand of trainlab has these options."""
    name, *options = line.split()[1:]
    parsers = commands.parsers()
    return name in parsers and {word for word in options if word.startswith("--")} <= set(
        parsers[name]._option_string_actions
    )


def exists(overlays: list[str], key: str) -> bool:
    """Tell whether a key of a phase or of a site, a command, a file, a target of make or a role's variable exists."""
    if "phase." in key:
        return bool(seeds.value(overlays, key))
    if key.startswith("site."):
        return keys_of_site(key)
    if key.startswith("trainlab "):
        return command_exists(key)
    if key.startswith("make "):
        return bool(re.search(rf"^{key.split()[1]}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    if "/" in key:
        return (ROOT / key).is_file()
    specs = (
        yaml.safe_load(path.read_text("utf-8"))["argument_specs"]
        for path in ROOT.glob("roles/*/meta/argument_specs.yml")
    )
    return any(key in part.get("options", {}) for spec in specs for part in spec.values())


@pytest.mark.parametrize(("overlays", "row", "line", "key", "why"), ENTRIES, ids=[entry[2][:40] for entry in ENTRIES])
def test_a_line_names_what_exists(overlays: list[str], row: str, line: str, key: str, why: str) -> None:
    assert key or why, f"{row} {line}"
    assert not key or exists(overlays, key), f"{row} {line}: {key} does not exist"


def test_what_does_not_exist_is_found() -> None:
    assert not exists(["003-staged-sft"], "phase.train.none")
    for key in (
        "site.none",
        "site.images.none",
        "trainlab none",
        "trainlab run --none",
        "make none",
        "values/none.yaml",
        "none_x",
    ):
        assert not exists([], key), key


def test_each_overlay_is_judged() -> None:
    overlays = {overlay for entry in seeds.DOCUMENTS.values() for overlay in entry["overlays"]}
    assert overlays == {path.stem for path in seeds.VALUES.glob("seeds/*.yaml")}
    assert set(seeds.DATA) == {path.stem for path in seeds.VALUES.glob("data/*.yaml")}
