"""An action plugin that takes the arguments documented in its module file: what users read is what is checked."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.plugins.loader import fragment_loader
from ansible.template import Templar
from ansible.utils.plugin_docs import get_docstring
from ansible_collections.trainlab.rhoai.plugins.plugin_utils.kube import Json
from ansible_collections.trainlab.rhoai.plugins.plugin_utils.plain import plain

MODULES = Path(__file__).parents[1] / "modules"
CLUSTER = ("trainlab_kubeconfig", "trainlab_kube_context")
RELEASE = (*CLUSTER, "trainlab_namespace", "trainlab_release")
OUTPUT = ("report_dest", "image_site_file", "attendees_dest", "verify_json", "verify_junit")
"""Variables that name what is written on this machine."""
CHECKED = ("type", "elements", "choices", "required", "default")
"""What an argument spec takes over from a documented option; the rest is for people."""


class DocumentedAction(ActionBase):  # type: ignore[misc]
    """Base of an ActionModule that does its work in `run_on_controller`, in check mode too."""

    _requires_connection = False
    _supports_check_mode = True
    TARGET: ClassVar[tuple[str, ...]] = RELEASE
    task_vars: Json

    def run(self, tmp: None = None, task_vars: Json | None = None) -> Json:
        """Check the arguments and return what `run_on_controller` returns; AnsibleActionFail for one that is not as documented."""
        super().run(tmp, task_vars)
        # Validation copies what it is given deeply: 360 documents took 1.3 s with the tags of ansible-core 2.19.
        self._task.args = plain(self._task.args)
        _result, validated = self.validate_argument_spec(argument_spec(type(self).__module__.rpartition(".")[2]))
        args: Json = validated
        self._refuse_twins(task_vars or {}, self.target(args))
        self.task_vars = task_vars or {}
        return self.run_on_controller(args)

    def target(self, args: Json) -> tuple[str, ...]:
        """Return the variables in one of which two hosts of a play have to differ; none: only one host may do this."""
        return self.TARGET

    @abstractmethod
    def run_on_controller(self, args: Json) -> Json:
        """Do the work and return the result of the task."""

    @property
    def check(self) -> bool:
        """True in check mode."""
        return bool(self._task.check_mode)

    def _refuse_twins(self, task_vars: Json, names: tuple[str, ...]) -> None:
        """Raise AnsibleActionFail if two hosts of the play are the same target, or would write the same file at once."""
        seen: dict[tuple[Any, ...], str] = {}
        hosts = task_vars.get("ansible_play_hosts") or []  # one that failed does nothing more
        for host in hosts if len(hosts) > 1 else ():
            value = self._reader(task_vars["hostvars"], host)
            target = tuple(value(name) for name in names)
            if target in seen:
                raise AnsibleActionFail(
                    f"hosts {seen[target]} and {host} of the inventory are the same {'cluster' if names else 'machine'}, so "
                    f"everything would be done twice at once; select one with --limit {seen[target]}"
                    + (f", or give each host its own {' or '.join(names[:3])}" if names else "")
                )
            seen[target] = host
            for name in OUTPUT:
                place = (name, value(name))
                if place[1] and place in seen:
                    raise AnsibleActionFail(
                        f"hosts {seen[place]} and {host} of the inventory have the same {name} ({place[1]}), so one would "
                        f"overwrite what the other wrote; give each host its own, or select one with --limit {seen[place]}"
                    )
                seen[place] = host

    def _reader(self, hostvars: Any, host: str) -> Callable[[str], Any]:
        """Return what reads a variable as this task has it on a host: hostvars lacks those of play, block, task and role."""
        inventory, manager = hostvars._inventory, hostvars._variable_manager
        given = manager.get_vars(play=self._task.get_play(), host=inventory.get_host(host), task=self._task)
        templar = Templar(self._loader, variables=given)
        return lambda name: templar.template(given.get(name))


@cache
def argument_spec(module: str) -> Json:
    """Return the argument spec that a module's DOCUMENTATION and its fragments describe; takes 2 to 5 ms."""
    documentation = get_docstring(str(MODULES / f"{module}.py"), fragment_loader, is_module=True)[0]
    return {
        name: {key: value for key, value in plain(option).items() if key in CHECKED}
        for name, option in documentation["options"].items()
    }
