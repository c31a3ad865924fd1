"""Each action plugin has a module file that documents it, and accepts exactly the arguments documented there."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleActionFail
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.play_context import PlayContext
from ansible.playbook.task import Task
from ansible.plugins.loader import connection_loader, fragment_loader
from ansible.template import Templar
from ansible.utils.plugin_docs import get_docstring
from ansible_collections.trainlab.rhoai.plugins.plugin_utils.documented import DocumentedAction, argument_spec

PLUGINS = Path(__file__).resolve().parents[2] / "plugins"
ACTIONS = sorted(path.stem for path in (PLUGINS / "action").glob("*.py"))
PACKAGE = "ansible_collections.trainlab.rhoai.plugins"


class Taken(Exception):
    """Raised instead of doing any work; its argument is the checked arguments."""


def run(name: str, arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch, **variables: str) -> dict[str, Any]:
    """Return what the plugin would work with; AnsibleActionFail for arguments that it refuses."""
    plugin = importlib.import_module(f"{PACKAGE}.action.{name}").ActionModule
    assert issubclass(plugin, DocumentedAction)

    def stop(self: DocumentedAction, args: dict[str, Any]) -> None:
        raise Taken(args)

    monkeypatch.setattr(plugin, "run_on_controller", stop)
    task = Task.load({"ansible.builtin.debug": {}})
    task.args = arguments
    connection = connection_loader.get("ansible.builtin.local", PlayContext())
    action = plugin(task, connection, PlayContext(), DataLoader(), Templar(DataLoader()), None)
    action._load_name = name  # as Ansible's loader sets it, by which messages of 2.18 call the plugin
    with pytest.raises(Taken) as taken:
        action.run(task_vars=variables)
    (found,) = taken.value.args
    return dict(found)


def example(name: str) -> dict[str, Any]:
    """Return the arguments of the module's example, each variable in them as an empty value of its type."""
    (task,) = yaml.safe_load(importlib.import_module(f"{PACKAGE}.modules.{name}").EXAMPLES)
    (action,) = set(task) - {"name", "register"}
    assert action == f"trainlab.rhoai.{name}"
    empty = {"dict": {}, "list": []}
    return {
        key: empty[argument_spec(name)[key]["type"]] if "{{" in str(value) else value
        for key, value in task[action].items()
    }


@pytest.mark.parametrize("name", ACTIONS)
def test_a_plugin_takes_what_is_documented(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    documentation, *_ = get_docstring(str(PLUGINS / "modules" / f"{name}.py"), fragment_loader, is_module=True)
    options = documentation["options"]
    assert documentation["module"] == name
    taken = run(name, example(name), monkeypatch)
    assert set(taken) == set(options)
    for key, option in options.items():
        if key not in example(name):
            assert taken[key] == option["default"], key
    with pytest.raises(AnsibleActionFail, match=r"Unsupported parameters.*: nobody"):
        run(name, example(name) | {"nobody": 1}, monkeypatch)
    for key in (key for key, option in options.items() if option.get("required")):
        with pytest.raises(AnsibleActionFail, match=f"missing required arguments: {key}"):
            run(name, {other: value for other, value in example(name).items() if other != key}, monkeypatch)
    for key in (key for key, option in options.items() if "choices" in option):
        with pytest.raises(AnsibleActionFail, match=f"value of {key} must be one of"):
            run(name, example(name) | {key: "neither"}, monkeypatch)


@pytest.mark.parametrize("name", ACTIONS)
def test_an_optional_argument_has_a_default(name: str) -> None:
    for key, option in argument_spec(name).items():
        assert option.get("required", False) != ("default" in option), key


@pytest.mark.parametrize("name", ACTIONS)
def test_a_plugin_reads_documented_arguments_only(name: str) -> None:
    source = (PLUGINS / "action" / f"{name}.py").read_text(encoding="utf-8")
    assert set(re.findall(r"\bargs\[\"(\w+)\"\]", source)) <= set(argument_spec(name))


def test_a_host_that_is_reached_by_ssh_is_refused() -> None:
    """A bastion: half of the tasks would run there, with its kubeconfig, and half here."""
    task = Task.load({"trainlab.rhoai.namespace": {}})
    connection = connection_loader.get("ansible.builtin.ssh", PlayContext())
    plugin = importlib.import_module(f"{PACKAGE}.action.namespace").ActionModule
    action = plugin(task, connection, PlayContext(), DataLoader(), Templar(DataLoader()), None)
    with pytest.raises(
        AnsibleActionFail, match=r"host bastion is reached by ssh, .* run it on that host .* nothing was applied"
    ):
        action.run(task_vars={"inventory_hostname": "bastion"})


def test_the_connection_is_that_of_the_variables_where_the_task_names_none(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"kubeconfig": "theirs"}
    found = run(
        "namespace", {"name": "demo"} | given, monkeypatch, trainlab_kubeconfig="ours", trainlab_kube_context="c"
    )
    assert (found["kubeconfig"], found["kube_context"]) == ("theirs", "c")
    found = run("namespace", {"name": "demo"}, monkeypatch, trainlab_kubeconfig="ours")
    assert (found["kubeconfig"], found["kube_context"]) == ("ours", "")
