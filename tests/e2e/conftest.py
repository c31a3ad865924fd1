"""Skips every test that needs the embedded cluster, with the preflight's own reason, when it cannot run."""

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from e2e import beside, machine
from e2e.commands import KEEP, PHASE, sh

pytest.register_assert_rewrite("e2e.visitors")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks the e2e tests as skipped, never as passed, when the machine cannot host the cluster."""
    ours = [item for item in items if item.get_closest_marker("e2e")]
    if not ours or "not e2e" in config.getoption("markexpr", ""):
        return
    if reason := machine.why_not():
        for item in ours:
            item.add_marker(pytest.mark.skip(reason=f"no embedded cluster here: {reason}"))


@pytest.fixture(scope="session")
def user() -> Iterator[beside.User]:
    """A user's demo runs next to all tests: one, as those of the demo compare the host over several files."""
    with beside.user() as found:
        yield found


@pytest.fixture(scope="module", autouse=True)
def unchanged(user: beside.User) -> Iterator[None]:
    """At the end of each file the user's demo is unchanged."""
    yield
    assert user.losses() == []


@pytest.fixture(scope="module")
def no_cluster() -> Iterator[None]:
    """No cluster before and after; skipped with the reasons of `check` on a machine that cannot host one."""
    if reason := machine.why_not():
        pytest.skip(reason)
    machine.cluster("down")
    machine.cluster("images")
    yield
    machine.cluster("down")


@pytest.fixture(scope="session")
def host() -> dict[str, Any]:
    """The host before anything of ours runs; E2E_KEEP=1 keeps an existing cluster, to repeat single tests."""
    if not KEEP:
        machine.cluster("down")
    return machine.snapshot()


@pytest.fixture(scope="session")
def demo(host: dict[str, Any]) -> Iterator[str]:
    """The output of `make demo`; the cluster stays for the files test_demo.py to test_down.py."""
    if KEEP == "as-is":
        yield ""
        return
    shutil.rmtree(machine.ARTIFACTS, ignore_errors=True)
    yield sh("make", "demo", seconds=3000, env={"PHASE": PHASE})
    if not KEEP:
        machine.cluster("down")
