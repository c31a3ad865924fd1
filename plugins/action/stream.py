"""Action plugin stream: see plugins/modules/stream.py."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.utils.display import Display

from ..plugin_utils.documented import DocumentedAction

KEPT_LINES = 20
CHANGED = re.compile(r"^changed=(true|false)$")


class ActionModule(DocumentedAction):
    """Runs a command on the controller and prints its output as it comes."""

    def run_on_controller(self, args: dict[str, Any]) -> dict[str, Any]:
        """Return changed and answer as the last line says; AnsibleActionFail with the last lines of a failure."""
        if self.check:
            return {"changed": False, "skipped": True, "msg": f"check mode: {' '.join(args['argv'])} not run"}
        return outcome(_run(args["argv"]))


def _run(argv: list[str]) -> list[str]:
    """Run, print each line at once, return the last lines; AnsibleActionFail when it fails."""
    display = Display()
    try:
        process = subprocess.Popen(
            argv,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise AnsibleActionFail(f"{argv[0]}: {error.strerror}; is it installed?") from error
    kept: list[str] = []
    for line in process.stdout or ():
        text = line.rstrip()
        kept = [*kept, text][-KEPT_LINES:]
        if text and not CHANGED.match(text) and not _is_json(text):
            display.display(f"          {text}")
    code = process.wait()
    if code:
        raise AnsibleActionFail(failure(argv, code, kept))
    return kept


def failure(argv: Iterable[str], code: int, lines: list[str]) -> str:
    """Return the command's own `error:` sentence when it has one, else its last lines."""
    reasons = [line for line in lines if line.startswith("error: ")]
    if reasons:
        return "\n".join(line.removeprefix("error: ") for line in reasons)
    return f"{' '.join(Path(part).name for part in argv)} ended with exit code {code}:\n" + "\n".join(lines)


def outcome(lines: list[str]) -> dict[str, Any]:
    """Read the last line: `changed=true|false`, or a JSON object with key `changed`; anything else counts as changed."""
    last = next((line for line in reversed(lines) if line), "")
    match = CHANGED.match(last)
    if match:
        return {"changed": match.group(1) == "true", "answer": {}}
    if _is_json(last):
        answer = json.loads(last)
        return {"changed": bool(answer.get("changed", True)), "answer": answer}
    return {"changed": True, "answer": {}}


def _is_json(text: str) -> bool:
    if not text.startswith("{"):
        return False
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False
