"""Records what was created with AgnosticD if that runs the play, and prints it elsewhere."""

from __future__ import annotations

from ..plugin_utils.documented import DocumentedAction
from ..plugin_utils.kube import Json

AGNOSTICD = "agnosticd.core.agnosticd_user_info"
PRINTED = "ansible.builtin.debug"


class ActionModule(DocumentedAction):
    """Chooses here, because a task that names a module which is not installed does not even load.

    Check mode prints: AgnosticD's plugin writes its files in check mode too.
    """

    def run_on_controller(self, args: Json) -> Json:
        """Return what AgnosticD's plugin or `debug` returns, without `data`: it holds credentials, and results are printed."""
        loader = self._shared_loader_obj.action_loader
        if not self.check and loader.find_plugin_with_context(AGNOSTICD).resolved:
            arguments = {key: args[key] for key in ("msg", "data", "user") if args[key]}
            result = self._other(AGNOSTICD, arguments)
            return {key: value for key, value in result.items() if key != "data"} | {"changed": False}
        if args["silent"]:
            return {"changed": False, "skipped": True}
        return self._other(PRINTED, {"msg": args["msg"]})

    def _other(self, name: str, arguments: Json) -> Json:
        """Run another action plugin in place of this one."""
        task = self._task.copy()
        task.action, task.args = name, arguments
        action = self._shared_loader_obj.action_loader.get(
            name,
            task=task,
            connection=self._connection,
            play_context=self._play_context,
            loader=self._loader,
            templar=self._templar,
            shared_loader_obj=self._shared_loader_obj,
        )
        result: Json = action.run(task_vars=self.task_vars)
        return result
