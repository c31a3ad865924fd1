"""Numbers of GPUs in the pages are measured, with device and date, or say that they are computed."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from checkout import ROOT

PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs" / "evidence").glob("*.md")),
    *sorted((ROOT / "docs" / "learn").glob("*.md")),
    ROOT / "docs" / "reference" / "sizing.md",
]
GPU = re.compile(r"\b(H100|H200|L40S|A40|A100)\b")
UNIT = r"(?:%|(?:microseconds|seconds|s|minutes|min|hours|h|GiB|GB|MB|tokens|samples|images|FLOP|TFLOP/s|times)\b)"
NUMBER = re.compile(rf"\d[\d.,]*\s?{UNIT}")
COMPUTED = re.compile(r"\b(computed|computes|planned|trainlab plan|data sheet|published)\b", re.IGNORECASE)
MEASURED = re.compile(
    r"measured.*\d{4}-\d\d-\d\d|\d{4}-\d\d-\d\d.*measured|benchmarks\.md#one-gpu", re.IGNORECASE | re.DOTALL
)
KNOWN = {
    "H100": (COMPUTED, MEASURED),
    "H200": (MEASURED,),  # no phase is planned for one
    **dict.fromkeys(("L40S", "A40", "A100"), (COMPUTED,)),  # nothing ran on one
}
"""What is said of a GPU's numbers."""


def statements(text: str) -> Iterator[tuple[str, str]]:
    """Yield each row of a table, paragraph and item of a list, with what stands above it and speaks of it too.

    That is the paragraph above a table, its header, and the first paragraph of the section. Commands and their output are left out.
    """
    for section in re.split(r"(?m)^#+ ", re.sub(r"(?ms)^```.*?^```", "", text)):
        parts = re.split(r"\n\s*\n|\n(?=- )", section.partition("\n")[2])
        blocks = [part.strip() for part in parts if part.strip()]
        for place, block in enumerate(blocks):
            rows = block.splitlines() if block.startswith("|") else [block]
            above = [*blocks[:1], *blocks[max(0, place - 1) : place], *(rows[:1] if len(rows) > 1 else [])]
            for row in rows:
                yield row, "\n".join(above)


def unsourced(text: str) -> list[str]:
    """Return the statements with a number of a GPU that do not say what KNOWN demands."""
    return [
        row
        for row, above in statements(text)
        if NUMBER.search(row)
        and not all(any(rule.search(f"{row}\n{above}") for rule in KNOWN[gpu]) for gpu in GPU.findall(row))
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_number_of_a_gpu_is_measured_or_computed(page: Path) -> None:
    found = unsourced(page.read_text(encoding="utf-8"))
    assert not found, "say measured with a date, link benchmarks.md#one-gpu, or say computed:\n" + "\n".join(found)


def test_the_pages_have_such_numbers() -> None:
    assert (
        sum(
            bool(GPU.search(row) and NUMBER.search(row))
            for page in PAGES
            for row, _ in statements(page.read_text("utf-8"))
        )
        > 40
    )


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("# A\n\nA step takes 0.3 s on an H100.\n", 1),
        ("# A\n\nA step takes 0.3 s on an H100, computed.\n", 0),
        ("# A\n\nA step takes 0.3 s on an H100 (measured, 2026-11-27).\n", 0),
        ("# A\n\nA step takes 0.3 s on an H100, which was measured.\n", 1),
        ("# A\n\nAll of it is computed.\n\n| GPU | s |\n|---|---|\n| L40S | 3 s |\n", 0),
        ("# A\n\n| GPU | s |\n|---|---|\n| L40S | 3 s |\n| A40 | 4 s |\n", 2),
        ("# A\n\nA step takes 0.3 s on an H200, computed.\n", 1),
        ("# A\n\nA step takes 0.3 s on an L40S (measured, 2026-11-27).\n", 1),
        ("# A\n\n- One thing is computed.\n- Its memory is 3 GiB on an A100.\n", 0),
    ],
)
def test_what_is_found(text: str, count: int) -> None:
    assert len(unsourced(text)) == count
