"""Takes away what somebody has set: the modules of the package read it on import, the tests speak of the defaults."""

import os

for variable in ("CLUSTER", "NODE_SUBNET", "POD_SUBNET", "SERVICE_SUBNET"):
    os.environ.pop(f"TRAINLAB_{variable}", None)
