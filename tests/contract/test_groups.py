"""Tests that share a server or a fixture stay with one worker; lost groups go unseen, and every fixture is made twice."""

import pytest


def test_groups_reach_xdist(request: pytest.FixtureRequest) -> None:
    """pytest 9.2 made xdist 3.8 forget them: pytest-dev/pytest-xdist#1386; `pytest -n` without groups says nothing here."""
    if getattr(request.config.option, "loadgroup", False):
        assert request.node.nodeid.endswith("@tests/contract/test_groups.py")
