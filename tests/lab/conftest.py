"""Makes cluster/lab importable, which is a program and not a package."""

import os
import sys
from pathlib import Path

for variable in ("CLUSTER", "NODE_SUBNET", "POD_SUBNET", "SERVICE_SUBNET"):
    os.environ.pop(f"TRAINLAB_{variable}", None)  # they are read on import; the tests speak of the defaults
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "cluster" / "lab"))
