"""plugins/action/namespace.py: which namespace it deletes; the rest of it is in tests/api."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.trainlab.rhoai.plugins.action import namespace


@pytest.mark.parametrize("ours", [True, False])
def test_a_namespace_that_somebody_else_made_is_never_deleted(ours: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    removed: list[dict[str, Any]] = []
    monkeypatch.setattr(namespace, "remove", lambda _api, objects, *_: removed.extend(objects))
    action = object.__new__(namespace.ActionModule)
    action.api = None
    monkeypatch.setattr(namespace.ActionModule, "check", False)
    labels = namespace.MARK if ours else {"team": "theirs"}
    said = action._absent({"metadata": {"name": "lab", "labels": labels}}, 1.0)
    assert (said["changed"], [each["metadata"]["name"] for each in removed]) == (ours, ["lab"] if ours else [])
