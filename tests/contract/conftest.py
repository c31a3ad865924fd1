"""Makes the chart tests' `rendering` importable (pytest runs with import mode importlib)."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "charts"))
