"""An action plugin that takes the arguments documented in its module file: what users read is what is checked."""

from __future__ import annotations

import json
from abc import abstractmethod
from functools import cache
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.plugins.loader import fragment_loader
from ansible.utils.plugin_docs import get_docstring
from ansible_collections.trainlab.rhoai.plugins.plugin_utils.kube import Json

MODULES = Path(__file__).parents[1] / "modules"
TARGET = ("trainlab_kubeconfig", "trainlab_kube_context", "trainlab_namespace", "trainlab_release")
"""What distinguishes two hosts of an inventory."""
CHECKED = ("type", "elements", "choices", "required", "default")
"""What an argument spec takes over from a documented option; the rest is for people."""


class DocumentedAction(ActionBase):  # type: ignore[misc]
    """Base of an ActionModule that does its work in `run_on_controller`, in check mode too."""

    _requires_connection = False
    _supports_check_mode = True
    task_vars: Json

    def run(self, tmp: None = None, task_vars: Json | None = None) -> Json:
        """Check the arguments and return what `run_on_controller` returns; AnsibleActionFail for one that is not as documented."""
        super().run(tmp, task_vars)
        _refuse_twins(task_vars or {})
        _result, args = self.validate_argument_spec(argument_spec(type(self).__module__.rpartition(".")[2]))
        self.task_vars = task_vars or {}
        return self.run_on_controller(_plain(args))

    @abstractmethod
    def run_on_controller(self, args: Json) -> Json:
        """Do the work and return the result of the task."""

    @property
    def check(self) -> bool:
        """True in check mode."""
        return bool(self._task.check_mode)


def _refuse_twins(task_vars: Json) -> None:
    """Raise AnsibleActionFail if the play would do the same on one cluster for two hosts of the inventory at once."""
    seen: dict[tuple[Any, ...], str] = {}
    hosts = task_vars.get("ansible_play_hosts_all") or []
    for host in hosts if len(hosts) > 1 else ():
        target = tuple(task_vars["hostvars"][host].get(name) for name in TARGET)
        if target in seen:
            raise AnsibleActionFail(
                f"hosts {seen[target]} and {host} of the inventory are the same cluster, so everything would be done twice at once; "
                f"select one with --limit {seen[target]}, or give each host its own {' or '.join(TARGET[:3])}"
            )
        seen[target] = host


@cache
def argument_spec(module: str) -> Json:
    """Return the argument spec that a module's DOCUMENTATION and its fragments describe; takes 2 to 5 ms."""
    documentation = get_docstring(str(MODULES / f"{module}.py"), fragment_loader, is_module=True)[0]
    return {
        name: {key: value for key, value in _plain(option).items() if key in CHECKED}
        for name, option in documentation["options"].items()
    }


def _plain(value: Any) -> Any:
    """Return the same data as plain Python types: YAML and JSON writers refuse Ansible's own."""
    return json.loads(json.dumps(value, default=str))
