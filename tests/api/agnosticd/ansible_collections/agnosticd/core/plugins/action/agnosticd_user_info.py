"""Stands in for AgnosticD's plugin of this name, which no registry has: same arguments, all of them written to one file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):  # type: ignore[misc]
    """Arguments: msg, data, user. Appends one JSON line to user-info.jsonl in the folder `output_dir`."""

    _VALID_ARGS = frozenset(("msg", "data", "user", "body"))
    _supports_check_mode = True

    def run(self, tmp: None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Write the line; the result holds the data, as the real one's does."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        told = {key: self._task.args[key] for key in ("msg", "data", "user") if key in self._task.args}
        with (Path(str((task_vars or {})["output_dir"])) / "user-info.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(told) + "\n")
        return result | told | {"failed": False}
