"""The generated pages are what `make gen` writes, and what they say stands nowhere else."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import every
import pytest
from pages import commands, replay, role_variables, sizing
from pages.__main__ import PAGES

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_up_to_date(name: str) -> None:
    assert (ROOT / name).read_text(encoding="utf-8") == PAGES[name](), "run `make gen`"


def test_each_command_and_option_is_on_the_page() -> None:
    """Also those of modules that are imported for one command only."""
    page = (ROOT / commands.PAGE).read_text(encoding="utf-8")
    for name, parser in commands.parsers().items():
        part = page.split(f"\n### {name}\n", 1)[1].split("\n### ", 1)[0]
        listed = set(re.findall(r"--[a-z-]+", "".join(re.findall(r"^\| `[^`]*`", part, re.MULTILINE))))
        assert listed == {word for word in parser._option_string_actions if word.startswith("--")} - {"--help"}, name


def test_each_values_file_has_a_row() -> None:
    page = (ROOT / sizing.PAGE).read_text(encoding="utf-8")
    rows = set(re.findall(r"^\| `(values/[\w/-]+\.yaml)`", page, re.MULTILINE))
    assert rows == {
        str(path.relative_to(ROOT))
        for path in (ROOT / "values").rglob("*.yaml")
        if path.parent.name not in ("seeds", "room", "data")
    }


def test_each_role_has_its_variables() -> None:
    """Each README has a heading for them, and the text before it stays as it is written."""
    assert len(role_variables.roles()) == len(list(ROOT.glob("roles/*/tasks")))
    for role in role_variables.roles():
        text = (ROOT / role_variables.page(role)).read_text(encoding="utf-8")
        assert text.count(f"\n{role_variables.HEADING}\n") == 1 and "ansible-doc" not in text.partition("\n## ")[0]


def test_the_moving_picture_needs_no_script_and_no_motion() -> None:
    """It plays in an <img> of the README; whoever wants no motion sees the last scene; a phone loads it at once."""
    picture = (ROOT / replay.PAGE).read_text(encoding="utf-8")
    root = ElementTree.fromstring(picture)
    assert len(picture.encode()) < 60_000 and not re.search(r"<script|<foreignObject|href|url\(", picture)
    moves = picture.index("@media (prefers-reduced-motion:no-preference)")
    assert "@keyframes" not in picture[:moves] and "prefers-color-scheme:dark" in picture
    still = [text for text in root.iter("{http://www.w3.org/2000/svg}text") if text.get("opacity") != "0"]
    assert "Gate: PROMOTED" in "".join("".join(text.itertext()) for text in still)
    assert f'src="{replay.PAGE}"' in (ROOT / "README.md").read_text(encoding="utf-8")


def test_a_line_that_the_log_does_not_have_is_an_error() -> None:
    page = replay.LOG.read_text(encoding="utf-8").replace("    Gate: PROMOTED", "    Gate: refused")
    with pytest.raises(SystemExit, match="no line begins with '    Gate: PROMOTED'"):
        replay.scenes(page)


def test_diagrams_are_drawn_from_their_source_and_need_no_network() -> None:
    """`make pictures MERMAID=...` draws docs/pictures/*.mmd; a page shows the drawing, and no page has the source of one."""
    pages = {page: page.read_text(encoding="utf-8") for page in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]}
    sources = sorted(ROOT.glob("docs/pictures/*.mmd"))
    assert sources and not [page for page, text in pages.items() if "```mermaid" in text]
    for source in sources:
        drawn = source.with_suffix(".svg").read_text(encoding="utf-8")
        digest = hashlib.sha256(source.read_bytes()).hexdigest()
        assert f"<!-- {digest} {source.name} -->" in drawn, (
            f"{source.name} changed: make pictures MERMAID=mermaid.min.js"
        )
        assert not re.search(r"<script|<foreignObject|@import|https?://(?!www\.w3\.org/)", drawn), source.name
        assert any(f"pictures/{source.stem}.svg)" in text for text in pages.values()), source.name


def test_a_learning_rate_passes_six_files_of_the_package() -> None:
    text = (ROOT / "docs/pictures/learning-rate.mmd").read_text(encoding="utf-8")
    files = re.findall(r"\b(?!action/)[a-z]+/\w+\.py", text)
    assert len(files) == 6 and all((ROOT / "training/src/trainlab" / name).is_file() for name in files)


def test_a_bench_is_noted_with_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing is uncommitted but the results themselves; the page has only benches that exist."""
    assert set(json.loads(every.RESULTS.read_text(encoding="utf-8"))) <= set(every.NAMES)
    results = tmp_path / "bench" / "results.json"
    results.parent.mkdir()
    results.write_text("{}\n", encoding="utf-8")
    monkeypatch.setattr(every, "RESULTS", results)
    monkeypatch.setattr(every, "HERE", results.parent)
    for command in ("init -q", "add -A", "-c user.name=a -c user.email=a@b commit -qm first"):
        subprocess.run(["git", "-C", str(tmp_path), *command.split()], check=True)
    result = {"equal": True, "floors": [{"what": "times as fast", "measured": 2.0, "bound": ">= 1", "held": True}]}
    every.note("dedup", result)
    noted = json.loads(results.read_text(encoding="utf-8"))["dedup"]
    assert noted["floors"] == result["floors"] and noted["commit"] == every.git("rev-parse", "--short=8", "HEAD")
    every.note("image_feed", result)
    (tmp_path / "other").write_text("new", encoding="utf-8")
    subprocess.run(["git", "-C", str(tmp_path), "add", "other"], check=True)
    every.note("places", result)
    assert set(json.loads(results.read_text(encoding="utf-8"))) == {"dedup", "image_feed"}
