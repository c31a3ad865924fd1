"""The end of the demo that the files before share: what teardown.yml and `make demo-down` leave."""

from typing import Any

import pytest

from e2e import machine
from e2e.commands import NAMESPACE, PHASE, changes, kubectl, playbook, sh

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3600)]


def test_teardown_removes_what_site_made(demo: str) -> None:
    playbook("teardown", "-e", f"phase={PHASE}", "-e", "teardown_volumes=true")
    assert f"namespace/{NAMESPACE}" not in kubectl("get", "namespaces", "-o", "name")
    assert changes(playbook("teardown", "-e", f"phase={PHASE}", "-e", "teardown_volumes=true")) == []


def test_demo_down_leaves_the_host_as_it_was(demo: str, host: dict[str, Any]) -> None:
    sh("make", "demo-down")
    assert not machine.changes(host, machine.snapshot())
