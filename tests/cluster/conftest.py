"""Unsets the user's variables: the modules of the package read them on import, the tests assume the defaults."""

import os

import pytest

for variable in ("CLUSTER", "NODE_SUBNET", "POD_SUBNET", "SERVICE_SUBNET"):
    os.environ.pop(f"TRAINLAB_{variable}", None)


@pytest.fixture(autouse=True)
def _idle_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that a test runs in this process raises the factor of all waits where the machine is busy."""
    from embedded_cluster.base import patience

    monkeypatch.setattr(patience, "_floor", 1.0)
