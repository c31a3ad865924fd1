"""Unsets the user's variables: the modules of the package read them on import, the tests assume the defaults."""

import os

for variable in ("CLUSTER", "NODE_SUBNET", "POD_SUBNET", "SERVICE_SUBNET"):
    os.environ.pop(f"TRAINLAB_{variable}", None)
