"""Action plugins that take the arguments documented in their module files: what users read is what is checked."""

from __future__ import annotations

from abc import abstractmethod
from functools import cache, cached_property
from pathlib import Path
from typing import ClassVar

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.plugins.loader import fragment_loader
from ansible.utils.plugin_docs import get_docstring

from .kube import ApiError, Json, Unreachable, connect
from .plain import plain
from .platform_api import PlatformApi, failure, remove, title
from .waiting import StatusLines

MODULES = Path(__file__).parents[1] / "modules"
CHECKED = ("type", "elements", "choices", "required", "default")
"""What an argument spec takes over from a documented option; the rest is for people."""
VARIABLES = {"kubeconfig": "trainlab_kubeconfig", "kube_context": "trainlab_kube_context"}
"""Options that take their value from a variable where the task sets none, as plugins/doc_fragments/cluster.py says."""


class DocumentedAction(ActionBase):  # type: ignore[misc]
    """Base of an ActionModule that does its work in `run_on_controller`, in check mode too."""

    _requires_connection = False
    _supports_check_mode = True
    task_vars: Json

    def run(self, tmp: None = None, task_vars: Json | None = None) -> Json:
        """Check the arguments and return what `run_on_controller` returns; AnsibleActionFail for one that is not as documented."""
        super().run(tmp, task_vars)
        if (way := getattr(self._connection, "transport", "local")) != "local":
            raise AnsibleActionFail(
                f"host {self._task_host(task_vars)} is reached by {way}, but kubeconfigs, values and charts are read on the machine that "
                "runs ansible-playbook; run it on that host (a bastion) itself, or set ansible_connection: local for localhost; nothing "
                "was applied"
            )
        self.task_vars = task_vars or {}
        spec = argument_spec(type(self).__module__.rpartition(".")[2])
        for option in VARIABLES.keys() & spec.keys() - self._task.args.keys():
            if (value := self.task_vars.get(VARIABLES[option])) is not None:
                self._task.args[option] = self._templar.template(value)
        # Validation copies what it is given deeply: 360 documents took 1.3 s with the tags of ansible-core 2.19.
        self._task.args = plain(self._task.args)
        _result, args = self.validate_argument_spec(spec)
        return self.run_on_controller(args)

    @staticmethod
    def _task_host(task_vars: Json | None) -> str:
        return str((task_vars or {}).get("inventory_hostname", "localhost"))

    @abstractmethod
    def run_on_controller(self, args: Json) -> Json:
        """Do the work and return the result of the task."""

    @property
    def check(self) -> bool:
        """True in check mode."""
        return bool(self._task.check_mode)


class ClusterAction(DocumentedAction):
    """Base of an ActionModule whose documentation extends trainlab.rhoai.cluster, and whose `run_on_cluster` does the work.

    OPERATION begins the sentence of a failure, with arguments in braces. `api` is set in `run_on_cluster`; an ApiError or
    Unreachable that escapes it becomes the failure of the task.
    """

    OPERATION: ClassVar[str] = ""
    api: PlatformApi

    def run_on_controller(self, args: Json) -> Json:
        """Connect and return what `run_on_cluster` returns; AnsibleActionFail with the remedy otherwise."""
        self.refuse(args)
        self.api, _version = connect(args["kubeconfig"], args["kube_context"], PlatformApi)
        try:
            return self.run_on_cluster(args)
        except (ApiError, Unreachable) as error:
            raise failure(error, self.OPERATION.format_map(args)) from error

    def refuse(self, args: Json) -> None:
        """Raise AnsibleActionFail for arguments that are wrong on any cluster; it has not been contacted yet."""

    @cached_property
    def lines(self) -> StatusLines:
        """Lines for people, with the seconds since the first of them was asked for."""
        return StatusLines()

    def remove(self, items: list[Json], timeout: float = 120, poll: float = 1, policy: str = "Background") -> list[str]:
        """Delete objects and wait until they are gone, in check mode not; return a line for each. See platform_api.remove."""
        if not self.check:
            remove(self.api, items, timeout, poll, self.lines, policy)
        return [f"{'would delete' if self.check else 'deleted'}: {title(item)}" for item in items]

    @abstractmethod
    def run_on_cluster(self, args: Json) -> Json:
        """Do the work and return the result of the task."""


@cache
def argument_spec(module: str) -> Json:
    """Return the argument spec that a module's DOCUMENTATION and its fragments describe; takes 2 to 5 ms."""
    documentation = get_docstring(str(MODULES / f"{module}.py"), fragment_loader, is_module=True)[0]
    return {
        name: {key: value for key, value in plain(option).items() if key in CHECKED}
        for name, option in documentation["options"].items()
    }
