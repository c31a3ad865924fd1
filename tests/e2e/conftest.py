"""Skips every test that needs the embedded cluster, with the preflight's own reason, when it cannot run."""

from collections.abc import Iterator

import pytest

from e2e import beside, machine


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks the e2e tests as skipped, never as passed, when the machine cannot host the cluster."""
    ours = [item for item in items if item.get_closest_marker("e2e")]
    if not ours or "not e2e" in config.getoption("markexpr", ""):
        return
    if reason := machine.why_not():
        for item in ours:
            item.add_marker(pytest.mark.skip(reason=f"no embedded cluster here: {reason}"))


@pytest.fixture(scope="module", autouse=True)
def user() -> Iterator[beside.User]:
    """A user's demo runs next to the tests of each file; at the end it is unchanged."""
    with beside.user() as found:
        yield found
        assert found.losses() == []


@pytest.fixture(scope="module")
def no_cluster() -> Iterator[None]:
    """No cluster before and after; skipped with the reasons of `check` on a machine that cannot host one."""
    if reason := machine.why_not():
        pytest.skip(reason)
    machine.cluster("down")
    machine.cluster("images")
    yield
    machine.cluster("down")
