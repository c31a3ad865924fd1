"""Hands what was made to AgnosticD's record where AgnosticD runs the play, and prints it elsewhere."""

from __future__ import annotations

from ansible.plugins.action import ActionBase
from ansible_collections.trainlab.rhoai.plugins.plugin_utils.kube import Json
from ansible_collections.trainlab.rhoai.plugins.plugin_utils.merging import plain

AGNOSTICD = "agnosticd.core.agnosticd_user_info"
PRINTED = "ansible.builtin.debug"


class ActionModule(ActionBase):  # type: ignore[misc]
    """Arguments: msg (text), data (dict), user (name; empty is the whole environment), silent (print nothing).

    A task that names a module which is not installed does not even load, so that the choice is made here. Check mode
    prints: AgnosticD's plugin writes its files in check mode too.
    """

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: None = None, task_vars: Json | None = None) -> Json:
        """Return what AgnosticD's plugin or `debug` returns, without `data`: it holds credentials, and results are printed."""
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(
            {
                "msg": {"type": "str", "required": True},
                "data": {"type": "dict", "default": {}},
                "user": {"type": "str", "default": ""},
                "silent": {"type": "bool", "default": False},
            }
        )
        loader = self._shared_loader_obj.action_loader
        if not self._task.check_mode and loader.find_plugin_with_context(AGNOSTICD).resolved:
            given = {key: plain(args[key]) for key in ("msg", "data", "user") if args[key]}
            told = self._other(AGNOSTICD, given, task_vars)
            return {key: value for key, value in told.items() if key != "data"} | {"changed": False}
        if args["silent"]:
            return {"changed": False, "skipped": True}
        return self._other(PRINTED, {"msg": args["msg"]}, task_vars)

    def _other(self, name: str, arguments: Json, task_vars: Json | None) -> Json:
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
        result: Json = action.run(task_vars=task_vars)
        return result
