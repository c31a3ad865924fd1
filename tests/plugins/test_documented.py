"""Each action plugin has a module file that documents it, with the very arguments that it takes."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.plugins.action import ActionBase
from ansible.plugins.loader import fragment_loader
from ansible.utils.plugin_docs import get_docstring

PLUGINS = Path(__file__).resolve().parents[2] / "plugins"
ACTIONS = sorted(path.stem for path in (PLUGINS / "action").glob("*.py"))
PACKAGE = "ansible_collections.trainlab.rhoai.plugins"


class Asked(Exception):
    """Raised in place of checking the arguments; its argument is the spec."""


def stop(self: ActionBase, argument_spec: dict[str, Any]) -> None:
    """Stand in for ActionBase.validate_argument_spec."""
    raise Asked(argument_spec)


@pytest.mark.parametrize("name", ACTIONS)
def test_documentation_is_what_the_plugin_takes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ActionBase, "run", lambda *_: {})
    monkeypatch.setattr(ActionBase, "validate_argument_spec", stop)
    plugin = importlib.import_module(f"{PACKAGE}.action.{name}").ActionModule
    with pytest.raises(Asked) as asked:
        plugin.__new__(plugin).run()
    (spec,) = asked.value.args
    told = importlib.import_module(f"{PACKAGE}.modules.{name}")
    documentation, *_ = get_docstring(str(PLUGINS / "modules" / f"{name}.py"), fragment_loader, is_module=True)
    assert documentation["module"] == name
    assert set(documentation["options"]) == set(spec)
    for key, option in spec.items():
        for field in ("type", "elements", "choices", "required", "default"):
            assert documentation["options"][key].get(field) == option.get(field), f"{name}.{key}: {field}"
    (task,) = yaml.safe_load(told.EXAMPLES)
    (action,) = set(task) - {"name", "register"}
    assert action == f"trainlab.rhoai.{name}"
    assert set(task[action]) <= set(spec)
    assert {key for key, option in spec.items() if option.get("required")} <= set(task[action])
