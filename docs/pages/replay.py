"""docs/pictures/demo.svg: the log of a real `make demo` as a moving picture, from docs/evidence/demo-log.md.

CSS moves it, no script: it plays in an <img>. Without motion (`prefers-reduced-motion`) it shows the last scene. A scene names the
lines of the log that it shows; a line that the log does not have is an error.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOG = ROOT / "docs" / "evidence" / "demo-log.md"
PAGE = "docs/pictures/demo.svg"
COLUMNS, ROWS = 45, 18
"""Characters of a line after its time, and lines of a scene: on a phone of 390 px a letter has 11 px."""
MAX_ANSWER_LINES = {"base": 3, "tuned": 7}
"""Lines of an answer; a tuned one is whole, as a half of its advice could be wrong."""
WIDTH, TOP, LEADING, SIZE, INDENT = 600, 62, 26, 19, 74
LINE_SECONDS, WORD_SECONDS, SCENE_SECONDS, LAST_SECONDS = 0.4, 0.05, 2.0, 6.0
"""Until the next line, more for each of its words; until the next scene; until it starts again."""
SCENES = (
    (
        "==> Can this machine host the cluster?",
        "==> Programs from Go modules",
        "image     ==> first answer: phase quick",
        "image     Explain the trick with the dial",
        "image       base ",
        "image       tuned ",
        "image     Both models answered here",
    ),
    (
        "==> Embedded cluster of 2 nodes",
        "==> Phase survival",
        "    ok       room for training",
        "             80 s  running the frozen layers",
        "            111 s  step 26/138",
        "            231 s  step 128/138",
        "            271 s  done in",
        "    ok        12.4 s  serve : Wait for the served model",
    ),
    (
        "    Asked just now:",
        "      base   The answer is",
        "      tuned  Topic: first aid",
        "    held-out",
        "    taught recall",
        "    Gate: PROMOTED",
        "    Open this",
        "==> make demo done",
    ),
)
CLASSES = (("==>", "step"), ("base", "base"), ("tuned", "tuned"), ("Gate:", "tuned"), ("Open this", "step"))
"""How a line that begins so is drawn."""


@dataclass(frozen=True)
class Line:
    """A line of the log, joined with its continuation; `second` of the whole command at which it was printed."""

    raw: str
    text: str
    second: float | None


def seconds(clock: str) -> float:
    """Return the seconds of "9 min 38 s" or "5 s"."""
    return sum(
        float(number) * (60 if unit == "min" else 1) for number, unit in re.findall(r"([\d.]+) (min|s)\b", clock)
    )


def lines(page: str) -> list[Line]:
    """Return the lines of the log's block, with their seconds: those of a playbook count from its own start."""
    block = page.split("```console\n", 1)[1].split("```", 1)[0].splitlines()
    parsed = list[Line]()
    playbook, at, step = 0.0, 0.0, 0.0
    for number, raw in enumerate(block):
        if heading := re.match(r"==> .*\(([^)]*)\)$", raw):
            inside = playbook and not raw.startswith("==> make demo done")
            at = step = seconds(heading[1]) + (playbook if inside else 0.0)
            if "playbooks/site.yml" in raw:
                playbook = at
        elif waited := re.match(r"\s+(?:ok\s+)?([\d.]+) s  ", raw):
            at = step + float(waited[1])
        elif raw.startswith("image     "):  # printed together when it is ready; the log has no time of its start
            known = None if "==>" in raw else seconds(_first_answer(block))
            parsed.append(Line(raw, joined(block, number), known))
            continue
        parsed.append(Line(raw, joined(block, number), at))
    return parsed


def _first_answer(block: list[str]) -> str:
    """Return when the image with the first answer was ready, as the table at the end of the log says."""
    (line_of_image,) = [line for line in block if "(image, beside programs)" in line]
    return line_of_image.split("(")[0]


def joined(block: list[str], number: int) -> str:
    """Return a line with its continuation lines, which are indented as the text of an answer is."""
    first = block[number]
    if score := re.match(r"    (held-out|taught recall) +(\S+) +(\S+) +(\S+ \([^)]*\))", first):
        return f"{score[1]:13}{score[2]:>6}{score[3]:>7}  {score[4]}"
    match = re.match(r"((?:image     )?)(  +)(base|tuned) +", first)
    parts = [first.removeprefix("image     ").strip()]
    if match:
        indent = re.escape(match[1]) + " " * (len(match[0]) - len(match[1])) + r"\S"
        for following in block[number + 1 :]:
            if not re.match(indent, following):
                break
            parts.append(following.removeprefix("image     ").strip())
    text = re.sub(r"^\d+ s  |^ok +[\d.]+ s  |^ok +|\s*\(\d+ min \d+ s\)$", "", " ".join(parts))
    return " ".join(text.split())


def scenes(page: str) -> list[list[tuple[str, str, str]]]:
    """Return the scenes as (time, class, text) of each row, a space for a time that is not known; SystemExit if the log lacks a line."""
    known, position, made = lines(page), 0, []
    for scene in SCENES:
        rows: list[tuple[str, str, str]] = []
        for start in scene:
            number = next((n for n, each in enumerate(known) if n >= position and each.raw.startswith(start)), None)
            if number is None:
                raise SystemExit(
                    f"error: {LOG.relative_to(ROOT)}: no line begins with {start!r}; see SCENES of docs/pages/replay.py"
                )
            position = number + 1
            line = known[number]
            look = next((look for begins, look in CLASSES if line.text.startswith(begins)), "")
            fits = len(line.text) <= COLUMNS
            wrapped = (
                [line.text]
                if fits
                else textwrap.wrap(
                    line.text,
                    COLUMNS,
                    subsequent_indent="  ",
                    max_lines=MAX_ANSWER_LINES.get(look, 2),
                    placeholder=" ...",
                )
            )
            at = " " if line.second is None else f"{line.second // 60:02.0f}:{line.second % 60:02.0f}"
            rows += [("" if n else at, look, part) for n, part in enumerate(wrapped)]
        if len(rows) > ROWS:
            raise SystemExit(f"error: docs/pages/replay.py: a scene of {len(rows)} rows, more than {ROWS}")
        made.append(rows)
    return made


def text() -> str:
    """Return the picture."""
    page = LOG.read_text(encoding="utf-8")
    made, minutes = scenes(page), seconds(page.rpartition("==> make demo done")[2].partition(")")[0]) / 60
    begins, clock = [], 0.5
    for rows in made:
        begins.append([])
        for stamp, row in ((each[0], each[2]) for each in rows):
            clock += LINE_SECONDS if stamp else 0.0
            begins[-1].append(clock)
            clock += WORD_SECONDS * len(row.split())
        clock += LAST_SECONDS if rows is made[-1] else SCENE_SECONDS
    total, drawn, frames = clock, [], []
    ends = [begins[n + 1][0] - LINE_SECONDS if n + 1 < len(made) else None for n in range(len(made))]
    for scene, rows in enumerate(made):
        for row, (stamp, look, line) in enumerate(rows):
            name = f"l{scene}-{row}"
            shown, gone = 100 * begins[scene][row] / total, ends[scene]
            until = "" if gone is None else f"{100 * gone / total:.2f}%{{opacity:0}}"
            frames.append(
                f"@keyframes {name}{{0%{{opacity:0}}{shown:.2f}%{{opacity:1}}{until}}}#{name}{{animation-name:{name}}}"
            )
            y = TOP + LEADING * row
            time = f'<tspan class="time" x="16">{stamp}</tspan>' if stamp.strip() else ""
            indent = INDENT + (len(line) - len(line.lstrip())) * SIZE * 0.6
            hidden = "" if scene == len(made) - 1 else ' opacity="0"'
            drawn.append(
                f'<text id="{name}" y="{y}" class="{look or "plain"}"{hidden}>{time}'
                f'<tspan x="{indent:g}" xml:space="preserve">{escape(line.strip())}</tspan></text>'
            )
    height = TOP + LEADING * (ROWS - 1) + 22
    moving = "".join(frames)
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="title desc">
<title id="title">make demo on an empty machine</title>
<desc id="desc">The log of a real run, {total:.0f} seconds for {minutes:.0f} minutes: a first answer, the cluster, the training, then both models' answers.</desc>
<style>
text{{white-space:pre;font:{SIZE}px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#1f2328}}
.back{{fill:#f6f8fa;stroke:#d1d9e0}}.time,.head{{fill:#59636e}}.step{{fill:#0550ae}}.base{{fill:#9a3b00}}.tuned{{fill:#116329}}
@media (prefers-color-scheme:dark){{text{{fill:#e6edf3}}.back{{fill:#0d1117;stroke:#3d444d}}.time,.head{{fill:#9198a1}}.step{{fill:#79c0ff}}.base{{fill:#ffa657}}.tuned{{fill:#7ee787}}}}
tspan.time{{font-size:{SIZE - 3}px}}
@media (prefers-reduced-motion:no-preference){{text[id]{{animation-duration:{total:.1f}s;animation-timing-function:step-end;animation-iteration-count:infinite}}
{moving}}}
</style>
<rect class="back" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="10"/>
<text class="head" x="16" y="30">$ make demo<tspan x="{WIDTH - 16}" text-anchor="end">min:s on 2 cores, no GPU</tspan></text>
{chr(10).join(drawn)}
</svg>
"""
