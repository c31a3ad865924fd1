"""A build takes its output of the BuildConfig as that is when the build starts, and another playbook may have changed it."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.trainlab.rhoai.plugins.action import openshift_build

Json = dict[str, Any]


class Recording:
    """Answers as the API does to a build that was started; records what is cancelled."""

    def __init__(self, tag: str) -> None:
        self._tag = tag
        self.patched: list[tuple[str, Json]] = []

    def send(self, method: str, path: str, body: Json) -> Json:
        """Start a build."""
        output = {"to": {"kind": "ImageStreamTag", "name": self._tag}}
        return {"metadata": {"name": "trainer-7"}, "spec": {"output": output}}

    def patch(self, path: str, body: Json) -> None:
        """Change a build."""
        self.patched.append((path, body))


def started(written: str) -> tuple[Any, Recording]:
    """Return the action, and what its API records."""
    action: Any = object.__new__(openshift_build.ActionModule)
    action._space, action._name, action._config = "demo", "trainer", "/buildconfigs/trainer"
    action.api = api = Recording(written)
    return action, api


def test_a_build_that_would_write_another_playbooks_tag_is_cancelled() -> None:
    action, api = started("trainer:b")
    with pytest.raises(AnsibleActionFail, match=r"builds trainer:b; build trainer-7 is cancelled"):
        action._start(b"", "a")
    ((path, body),) = api.patched
    assert path.endswith("/namespaces/demo/builds/trainer-7") and body == {"status": {"cancelled": True}}


def test_a_build_of_ones_own_tag_goes_on() -> None:
    action, api = started("trainer:a")
    assert action._start(b"", "a") == "trainer-7" and not api.patched


@pytest.mark.parametrize(
    ("again", "phase", "late"), [(True, "Running", True), (True, "New", False), (False, "Running", False)]
)
def test_a_build_that_runs_already_may_have_older_sources(again: bool, phase: str, late: bool) -> None:
    action, _api = started("trainer:a")
    assert action._late({"status": {"phase": phase}}, again) is late
