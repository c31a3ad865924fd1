"""Makes the helpers of this folder importable (pytest runs with import mode importlib)."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


def pytest_configure(config: pytest.Config) -> None:
    """With GOLDEN=1 (`make golden`) write the chart's defaults.json before anything is rendered."""
    if os.environ.get("GOLDEN") and not hasattr(config, "workerinput"):
        from defaults import phase_defaults
        from rendering import CHART
        from trainlab import files

        files.write_text(CHART / "defaults.json", phase_defaults())
