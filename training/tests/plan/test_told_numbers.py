"""Numbers that the pages of docs tell next to a `trainlab plan` command are numbers that the command prints.

Each list item, table row and paragraph with such a command is taken as a whole: its numbers with a unit must be printed by one of
its commands, rounded as the text rounds them. Of a table row the first cell, what others say, is left out.
"""

import re
import shlex
from functools import cache
from pathlib import Path

import pytest
from checkout import ROOT
from trainlab import cli

COMMAND = re.compile(r"trainlab plan +(values/[^`#\n]*)")
UNITS = {"hours": "h", "hour": "h", "minutes": "min", "step": "steps"}
NUMBER = re.compile(
    r"(?<![\w.,-])(?P<value>[0-9][0-9,]*(?:\.[0-9]+)?)(?: of (?P<of>[0-9.]+))?[ \n]*"
    r"(?P<unit>%|(?:s|min|h|hours?|minutes?|[kMGT]B|[MG]iB|steps?|GFLOP|times|Gbit/s)\b)"
)
ELSEWHERE = {
    "lyrics": {
        "0.40 GB",
        "46,068 MiB",
        "44.99 GiB",
        "48 GB",
        "16 %",
        "5 GiB",
    },  # the adapter's file; data sheet and torchtitan
}
"""Numbers of another source in the same row, which names it."""
OVERLAYS_TO_WRITE = {"songs.yaml"}
PHASES = ("gemma", "lyrics", "quick", "resnet", "staged", "survival")


def blocks(text: str) -> list[str]:
    """Return list items, rows and paragraphs that name a plan's command, without first cells."""
    match = re.split(r"\n(?=\n|- |[0-9]+\. |\||```|\$ )", text)
    cut = [one.split("|", 2)[2] if one.startswith("|") and one.count("|") > 4 else one for one in match]
    return [one for one in cut if COMMAND.search(one)]


@cache
def printed(command: str) -> str:
    """Return what a command prints; it may refuse, but not fail."""
    import contextlib
    import io

    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.chdir(ROOT), pytest.raises(SystemExit) as ended:
        cli.main(["plan", *shlex.split(command)])
    assert ended.value.code in (0, 1), command
    return re.sub(r"(?m)^  steps +([0-9]+)", r"\1 steps", out.getvalue())


def numbers(text: str) -> list[tuple[str, str, str]]:
    """Return (as written, number, unit) of each number with a unit; `2.1 of 3.4 GiB` are two."""
    result = []
    for match in NUMBER.finditer(text):
        unit = UNITS.get(match["unit"], match["unit"])
        result += [
            (f"{value} {match['unit']}", value.replace(",", ""), unit)
            for value in (match["value"], match["of"])
            if value
        ]
    return result


def is_printed(number: str, unit: str, among: str) -> bool:
    """True if rounding a printed number of this unit as `number` is rounded gives it."""
    digits = len(number.partition(".")[2])
    return any(of == unit and f"{float(value):.{digits}f}" == number for _, value, of in numbers(among))


PAGES = [page for page in sorted((ROOT / "docs").rglob("*.md")) if blocks(page.read_text("utf-8"))]


def named(page: Path) -> str:
    """Return folder and name of a page."""
    return f"{page.parent.name}/{page.stem}"


def test_every_phase_has_pages_with_plans() -> None:
    assert {f"learn/{phase}" for phase in PHASES} | {"present/talk-tracks"} <= {named(page) for page in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_numbers_next_to_a_plan_are_the_plans(page: Path) -> None:
    wrong = []
    for block in blocks(page.read_text("utf-8")):
        commands = [match[1].replace("\\\n", " ").strip() for match in COMMAND.finditer(block)]
        commands = [command for command in commands if not OVERLAYS_TO_WRITE & set(command.split())]
        among = "\n".join(printed(command) for command in commands)
        for text, number, unit in numbers(COMMAND.sub("", block)):
            if commands and text not in ELSEWHERE.get(page.stem, ()):
                wrong += [] if is_printed(number, unit, among) else [f"{text}: not printed by {', '.join(commands)}"]
    assert wrong == []


def test_a_number_that_is_off_is_found() -> None:
    """The comparison itself: other digits, another unit, and a number of another line are not printed."""
    text = "  gradients 2.51 GB sent, 2.01 s at 10 Gbit/s\n  memory 14.97 of 41.84 GiB usable (36 %)"
    for number, unit in (("2.51", "GB"), ("2.5", "GB"), ("15", "GiB"), ("41.8", "GiB"), ("36", "%"), ("10", "Gbit/s")):
        assert is_printed(number, unit, text), (number, unit)
    for number, unit in (("1.26", "GB"), ("2.01", "GB"), ("14.9", "GiB"), ("0.39", "times")):
        assert not is_printed(number, unit, text), (number, unit)
