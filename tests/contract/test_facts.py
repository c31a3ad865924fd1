"""A fact that a page repeats is the one of the code or of the evidence: each test is for a kind of contradiction that there was."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import tiers
import yaml
from pages import commands
from trainlab.config import PHASES

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
BENCHMARKS = ROOT / "docs" / "evidence" / "benchmarks.md"
GUIDES = [
    README,
    *(page for part in ("start", "present", "operate", "learn") for page in ROOT.glob(f"docs/{part}/*.md")),
]
"""Pages to act by or to understand with: what was measured stands in docs/evidence, and they link to it."""
TEXTS = [
    *(
        page
        for pattern in ("*.md", "docs/**/*.md", "roles/*/README.md", "charts/*/*.md", "data/*/README.md")
        for page in ROOT.glob(pattern)
    ),
    *(
        path
        for pattern in ("values/**/*.yaml", "charts/*/templates/NOTES.txt", "inventory/**/*.yml")
        for path in ROOT.glob(pattern)
    ),
]
"""Whatever names commands for people; CHANGELOG and its fragments are a record."""
TIMES = re.compile(r"\b\d+ min(?: \d\d s)?\b|\b\d+ s\b")


def read(path: Path) -> str:
    """Return the text of a file."""
    return path.read_text(encoding="utf-8")


def name(path: Path) -> str:
    """Return a path in the checkout."""
    return str(path.relative_to(ROOT))


@cache
def makefile() -> str:
    """Return the Makefile."""
    return read(ROOT / "Makefile")


def code(text: str) -> Iterator[str]:
    """Yield each line of a block of code and each span of code; of YAML also its comments."""
    for block in re.findall(r"^ *```(?:console|bash)\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL):
        yield from block.splitlines()
    yield from re.findall(r"`([^`\n]+)`", re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL))
    yield from re.findall(r"^# (.*)$", text, re.MULTILINE)


def calls(program: str) -> Iterator[tuple[Path, list[str]]]:
    """Yield the words of each call of a program in the texts, up to what ends a command in a shell."""
    for path in TEXTS:
        for line in code(read(path)):
            for call in re.findall(rf"(?:^|[\s$;&|(]){program} ([a-z][^`;|&)#]*)", line.replace("\\|", "|")):
                yield path, call.split()


def test_a_command_that_is_named_exists_with_its_options() -> None:
    """As `trainlab verify verify-run` did not."""
    known, seen = commands.parsers(), 0
    for path, (command, *words) in calls("trainlab"):
        if not re.fullmatch(r"[a-z-]+", command) or path == ROOT / "docs" / "reference" / "troubleshooting.md":
            continue
        assert command in known, f"{name(path)}: trainlab {command}"
        assert not words or words[0] not in known, f"{name(path)}: trainlab {command} {words[0]}"
        options = {word for word in words if re.fullmatch(r"--?[a-z][a-z-]*", word)}
        assert options <= set(known[command]._option_string_actions), f"{name(path)}: trainlab {command} {options}"
        seen += 1
    assert seen > 50


def test_a_make_target_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", makefile(), re.MULTILINE))
    named = {
        (name(path), word) for path, words in calls("make") for word in words[:1] if re.fullmatch(r"[a-z-]+", word)
    }
    named |= {(name(path), word) for path in TEXTS for word in re.findall(r"`make ([a-z-]+)`", read(path))}
    assert len(named) > 50 and {each for each in named if each[1] not in targets} == set()


def test_the_help_of_make_says_what_its_marks_do() -> None:
    """As `make bench` said that its smokes are in `make check`, which leaves them out."""
    smokes = read(ROOT / "training" / "tests" / "test_benches.py")
    said = r"^bench:.*a smoke of the first is in `make (\S+)`, of the others in `make (\S+)`"
    (where,) = re.findall(said, makefile(), re.MULTILINE)
    assert where == ("test", "test-rest") and "but_the_first(" in smokes and "pytest.mark.slow" in smokes


def test_the_times_of_the_readme_are_measured() -> None:
    """Each is a row of the benchmarks, or the end of a range of two rows, rounded to the minute."""
    measured = set(TIMES.findall(read(BENCHMARKS)))
    minutes = {f"{number} min" for number in re.findall(r"\b(\d+) min \d\d s", read(BENCHMARKS))}
    minutes |= {f"{int(number) + 1} min" for number in re.findall(r"\b(\d+) min [345]\d s", read(BENCHMARKS))}
    text = read(README)
    table = text.split("## Measured times", 1)[1].split("\n## ", 1)[0]
    table = re.sub(r"(\d+) to (\d+) (min|s)\b", r"\1 \3 to \2 \3", table)
    assert set(TIMES.findall(table)) <= measured | minutes
    for time in re.findall(r"after (\d+ min \d+ s)", text):
        assert time in measured, time


def test_counts_of_the_readme_are_those_of_the_evidence() -> None:
    """GPU phases, those with random weights, drills, releases."""
    numbers = dict(
        zip(
            range(1, 13),
            ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"],
            strict=True,
        )
    )
    text, part = read(README), read(BENCHMARKS).split("## One GPU", 1)[1].split("\n## ", 1)[0]
    rows = [row for row in re.findall(r"^\| (.*?) \|", part, re.MULTILINE) if row not in ("phase", "---")]
    drawn = [row for row in rows if "random weights" in row]
    assert f"{numbers[len(rows)]} phases on [one H100 or H200]" in text
    assert f"{numbers[len(drawn)]} of them with random weights" in text
    passed = re.findall(r"\b(\d+) of (\d+)\b", read(ROOT / "docs" / "evidence" / "drills.md"))[0]
    assert f"In {passed[0]} of {passed[1]} drills" in text
    releases = yaml.safe_load(read(ROOT / "meta" / "releases.yml"))
    tested = [release for release, entry in releases.items() if not entry.get("prepared")]
    assert f"the path for {numbers[len(tested)]} [releases]" in text


@pytest.mark.parametrize("page", GUIDES, ids=name)
def test_a_ratio_that_a_bench_measures_stands_in_its_status_only(page: Path) -> None:
    """As image_feed had three ratios on three pages: a guide links to docs/evidence/status.md."""
    results: dict[str, Any] = json.loads(read(ROOT / "bench" / "results.json"))
    for paragraph in re.split(r"\n(?=- |\n|\|)", read(page)):
        ratio = re.search(r"\d(?:\.\d+)? times as fast|\d+ images per second", paragraph)
        assert not ratio or not any(bench in paragraph for bench in results), f"{name(page)}: {paragraph[:100]}"


def test_what_ran_is_said_by_the_evidence_only() -> None:
    """As a values file said "Not run yet" after it had run."""
    for path in ROOT.glob("values/**/*.yaml"):
        assert not re.search(r"\bnot (?:yet )?run\b|\bnever r[au]n\b", read(path), re.IGNORECASE), name(path)


def test_no_page_says_that_a_tier_passed_that_did_not() -> None:
    """As README said that `make test-all-phases` had trained all phases: status.md alone says what passed."""
    for page in [*GUIDES, ROOT / "CONTRIBUTING.md"]:
        for tier in yaml.safe_load(read(ROOT / "tests" / "tiers.yaml")):
            assert not re.search(rf"`make {tier}`[^.|]*\b(?:passed|is green|succeeded)\b", read(page)), (
                f"{name(page)}: {tier}"
            )


def test_minutes_of_a_tier_stand_once() -> None:
    """As CONTRIBUTING and the benchmarks had each their own."""
    section = read(ROOT / "CONTRIBUTING.md").split("## Test tiers", 1)[1].split("\n## ", 1)[0]
    rows = re.findall(r"^\| `make .*\|$", section, re.MULTILINE)
    assert len(rows) > 10 and not [row for row in rows if re.search(r"\d+ (?:min|h|s)\b", row)]


def test_a_title_does_not_count_nodes() -> None:
    """The pods of a phase are counted, as two may share a node: "on four nodes" was a demo on two."""
    for path in ROOT.glob("values/**/*.yaml"):
        title = yaml.safe_load(read(path)).get("phase", {}).get("title") or ""
        assert not re.search(r"\bnodes?\b", title), f"{name(path)}: {title}"


def test_a_row_of_the_benchmarks_is_whole_and_the_newest() -> None:
    """What, result, processor, date and command; nothing twice; nothing that a newer row of the table replaces."""
    rows = re.findall(r"^\| (.+) \|$", read(BENCHMARKS).split("\n## ", 1)[0], re.MULTILINE)[2:]
    whats = []
    for row in rows:
        what, _, where, command = re.split(r" ?\| ?", row)
        assert re.search(r"\b2026-\d\d-\d\d$", where) and command, row
        assert not where.startswith("not noted") or where[-10:] < "2026-11-25", f"no processor: {row}"
        whats.append(what)
    assert len(whats) > 20 and len(set(whats)) == len(whats)
    assert not [what for what in whats if "the day before" in what or "an hour earlier" in what]


def defaults() -> dict[str, Any]:
    """Return the defaults of the roles' variables, of the options of `trainlab`, and of a phase's restarts."""
    known: dict[str, Any] = {}
    for specs in ROOT.glob("roles/*/meta/argument_specs.yml"):
        for point in yaml.safe_load(read(specs))["argument_specs"].values():
            known |= {key: option.get("default") for key, option in (point.get("options") or {}).items()}
    for parser in commands.parsers().values():
        known |= {
            word: action.default
            for action in parser._actions
            for word in action.option_strings
            if not isinstance(action, argparse._HelpAction)
        }
    field = next(iter(PHASES.values())).model_fields["resources"].annotation
    known["phase.resources.restarts"] = field.model_fields["restarts"].default
    return known


def test_a_default_that_a_page_states_is_the_codes() -> None:
    """`name`, 12 by default; `name`, default true; 3 by default directly after it."""
    known, seen = defaults(), 0
    pattern = re.compile(r"`([\w.-]+)`(?:,| times;|,? which is| is)? (?:(\d+) by default|default (\d+|true|false))\b")
    for page in ROOT.glob("docs/**/*.md"):
        for key, number, other in pattern.findall(" ".join(read(page).split())):
            assert str(known[key]).lower() == (number or other), f"{name(page)}: {key}"
            seen += 1
    assert seen >= 4


def test_old_channels_are_reported(tmp_path: Path) -> None:
    """As a page of November had the heads of August: each release has its month, and `make test` says when it is old."""
    file = tmp_path / "meta" / "releases.yml"
    file.parent.mkdir()
    file.write_text('"9.1": {seen: March 2030}\n"9.2": {seen: May 2030}\n', encoding="utf-8")
    assert tiers.aged(tmp_path, date(2030, 5, 30)) == []
    (line,) = tiers.aged(tmp_path, date(2030, 5, 31))
    assert line.startswith("stale: meta/releases.yml has the channel of 9.1 as of March 2030")
    page = read(ROOT / "docs" / "reference" / "compatibility.md")
    assert all(f"| {month:%B %Y} |" in page for month in tiers.seen(ROOT).values())
