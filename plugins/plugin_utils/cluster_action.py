"""What the action plugins have in common that change a cluster: its arguments, the connection, and errors as sentences."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from ansible.plugins.action import ActionBase
from ansible_collections.trainlab.rhoai.plugins.plugin_utils.kube import ApiError, Json, Unreachable, connect
from ansible_collections.trainlab.rhoai.plugins.plugin_utils.merging import plain
from ansible_collections.trainlab.rhoai.plugins.plugin_utils.platform_api import PlatformApi, failure

CONNECTION: Json = {
    "kubeconfig": {"type": "path", "required": True},
    "kube_context": {"type": "str", "default": ""},
}
"""Documented by plugins/doc_fragments/cluster.py."""


class ClusterAction(ActionBase):  # type: ignore[misc]
    """Base of an ActionModule that says in SPEC what else it takes, and in `act` what it does.

    DOING begins the sentence of a failure, with arguments in braces. `api` is there in `act`; ApiError and Unreachable that
    leave `act` become the failure of the task.
    """

    _supports_check_mode = True
    _requires_connection = False
    SPEC: ClassVar[Json] = {}
    DOING: ClassVar[str] = ""
    api: PlatformApi

    def run(self, tmp: None = None, task_vars: Json | None = None) -> Json:
        """Check the arguments, connect and return what `act` returns; AnsibleActionFail with the remedy otherwise."""
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(CONNECTION | self.SPEC)
        args = plain(args)
        self.refuse(args)
        self.api, _version = connect(args["kubeconfig"], args["kube_context"], PlatformApi)
        try:
            return self.act(args)
        except (ApiError, Unreachable) as error:
            raise failure(error, self.DOING.format_map(args)) from error

    def refuse(self, args: Json) -> None:
        """Raise AnsibleActionFail for arguments that are wrong whatever the cluster says; it has not been asked yet."""

    @abstractmethod
    def act(self, args: Json) -> Json:
        """Do the work and return the result of the task."""

    @property
    def check(self) -> bool:
        """True in check mode."""
        return bool(self._task.check_mode)
