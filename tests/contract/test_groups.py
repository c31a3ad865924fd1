"""Tests that share a server or a fixture stay on one worker; lost groups go unnoticed, and each fixture is made twice."""

import pytest


def test_groups_reach_xdist(request: pytest.FixtureRequest) -> None:
    """pytest 9.2 makes xdist 3.8 lose them: pytest-dev/pytest-xdist#1386; `pytest -n` without groups says nothing here."""
    if getattr(request.config.option, "loadgroup", False):
        assert request.node.nodeid.endswith("@tests/contract/test_groups.py")
