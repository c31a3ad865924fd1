"""Where things lie in the checkout."""

from pathlib import Path

TESTS = Path(__file__).resolve().parent
SOURCES = TESTS.parent / "src"
ROOT = TESTS.parents[1]
VALUES, DATA = ROOT / "values", ROOT / "data"
