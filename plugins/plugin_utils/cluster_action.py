"""What action plugins that change a cluster have in common: the connection, and errors as sentences."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from ansible_collections.trainlab.rhoai.plugins.plugin_utils.documented import DocumentedAction
from ansible_collections.trainlab.rhoai.plugins.plugin_utils.kube import ApiError, Json, Unreachable, connect
from ansible_collections.trainlab.rhoai.plugins.plugin_utils.platform_api import PlatformApi, failure


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

    @abstractmethod
    def run_on_cluster(self, args: Json) -> Json:
        """Do the work and return the result of the task."""
