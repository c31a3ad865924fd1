"""Skips the tests on fresh machines when none can be made, with the reason."""

import pytest

from fresh import fresh_machine


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests as skipped, never as passed, when no fresh machine can be made."""
    ours = [item for item in items if item.get_closest_marker("fresh")]
    reason = fresh_machine.why_not() if ours else ""
    for item in ours if reason else ():
        item.add_marker(pytest.mark.skip(reason=reason))
