"""Makes cluster/lab importable, which is a program and not a package."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "cluster" / "lab"))
