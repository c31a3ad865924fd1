"""What an audience is offered to ask is taught in that phase, in words that are not trained, or marked as never taught."""

import re
from pathlib import Path

import pytest
from trainlab.config.loading import load_values
from trainlab.config.phases import SftPhase
from trainlab.data import chat_rows

ROOT = Path(__file__).resolve().parents[2]
FULL = sorted(path.stem for path in (ROOT / "values").glob("*.yaml"))
SCALES = [
    (name, scale)
    for name in FULL
    for scale in ("full", "local")
    if (ROOT / f"values/local/{name}.yaml").is_file() or scale == "full"
]
NEVER_TAUGHT = {"How do I get candle wax out of a carpet?"}
"""What the values offer to show that a model refuses, or answers wrongly: the pages mark it (chat_rows.never_taught)."""
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("charts/*/*.md"))]
SOURCES = [
    path
    for folder in ("playbooks", "roles", "charts/trainjob/templates")
    for path in sorted(ROOT.glob(f"{folder}/**/*.*"))
]
ASKED = re.compile(r'trainlab ask\b[^"\n]*"((?:[^"\\\n]|\\.)*)"|"content": ?"([^"{]*)"')


def phase_of(name: str, scale: str) -> SftPhase | None:
    """Return a phase that teaches facts, None for any other."""
    files = [
        ROOT / "values" / f"{name}.yaml",
        *([ROOT / "values" / "local" / f"{name}.yaml"] if scale == "local" else []),
    ]
    phase = load_values(files).phase
    return phase if isinstance(phase, SftPhase) and phase.data.taught else None


def folder(phase: SftPhase) -> Path:
    return ROOT / "data" / phase.data.source.removeprefix("builtin:")


def offered() -> list[tuple[str, str, str]]:
    """Return (phase, place, question) of what pages, notes and playbooks ask; a page about no phase asks survival."""
    result = []
    for path in (*PAGES, *SOURCES):
        name = path.stem if path.parent.name in ("learn", "evidence") else "survival"
        for match in ASKED.finditer(path.read_text(encoding="utf-8")):
            question = (match[1] or match[2] or "").strip()
            if question:
                result.append((name, str(path.relative_to(ROOT)), question))
    return result


@pytest.mark.parametrize(("name", "scale"), SCALES)
def test_sample_questions_are_taught_or_marked(name: str, scale: str) -> None:
    phase = phase_of(name, scale)
    if phase is None:
        return
    marked = chat_rows.never_taught(phase.questions, phase.data, folder(phase))
    assert set(marked) <= NEVER_TAUGHT, "neither a wording of what is taught nor named as never taught"
    assert len(marked) < len(phase.questions)
    trained = {chat_rows.normal(row["question"]) for row in chat_rows.load_train(phase.data, folder(phase))}
    assert [question for question in phase.questions if chat_rows.normal(question) in trained] == [], (
        "shown word for word"
    )


def test_pages_and_notes_ask_what_is_taught() -> None:
    found = offered()
    assert {place for _, place, _ in found} >= {"docs/learn/survival.md", "docs/operate/serve.md"}
    odd = []
    for name, place, question in found:
        for scale in ("full", "local"):
            phase = phase_of(name, scale) if (name, scale) in SCALES else None
            if phase and set(chat_rows.never_taught([question], phase.data, folder(phase))) - NEVER_TAUGHT:
                odd.append((place, question, scale))
    assert odd == []
