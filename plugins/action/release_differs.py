"""Action plugin release_differs: see plugins/modules/release_differs.py."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path

from ansible.errors import AnsibleActionFail

from ..plugin_utils.documented import DocumentedAction
from ..plugin_utils.kube import Json

SCHEMA = "values.schema.json"
MADE = (
    "{{ .Release.Info.Status }}\n{{ .Release.Info.LastDeployed }}\n"
    f'{SCHEMA} {{{{ printf "%x" .Release.Chart.Schema }}}}\n'
    '{{ range .Release.Chart.Templates }}{{ .Name }} {{ printf "%x" .Data }}\n{{ end }}'
    '{{ range .Release.Chart.Files }}{{ .Name }} {{ printf "%x" .Data }}\n{{ end }}'
)
"""What Helm keeps of a revision (helm.sh/helm, pkg/release and pkg/chart); as hexadecimal digits, files stay lines."""
ABSENT = "release: not found"


class ActionModule(DocumentedAction):
    """Compares; kubernetes.core.helm, without the plugin `helm diff`, looks at values and version alone, and warns of that each time."""

    def run_on_controller(self, args: Json) -> Json:
        """Return status, updated and differs; AnsibleActionFail with Helm's error."""
        made = _ask(args, f"get all {shlex.quote(args['release'])} --template {shlex.quote(MADE)}")
        if made is None:
            return {"changed": self.check, "status": "", "updated": "", "differs": ["release"]}
        status, updated, *kept = made.splitlines()
        differs = [] if status == "deployed" else ["status"]
        values = _ask(args, f"get values {shlex.quote(args['release'])} --output json")
        if (json.loads(values or "null") or {}) != json.loads(json.dumps(args["values"])):
            differs.append("values")
        before = dict(line.split(" ", 1) for line in kept if _renders(line.split(" ", 1)[0]))
        now = _files(Path(args["chart"]))
        differs += [f"chart {name}" for name in sorted(before | now) if before.get(name) != now.get(name)]
        return {"changed": self.check and bool(differs), "status": status, "updated": updated, "differs": differs}


def _ask(args: Json, what: str) -> str | None:
    """Return what Helm prints, None if there is no such release."""
    command = f"{args['helm']} --namespace {shlex.quote(args['namespace'])} {what}"
    environment = os.environ | {key: str(value) for key, value in args["environment"].items()}
    done = subprocess.run(["/bin/sh", "-c", command], env=environment, capture_output=True, text=True, check=False)
    if done.returncode and ABSENT in done.stderr:
        return None
    if done.returncode:
        raise AnsibleActionFail(
            f"release {args['release']} in namespace {args['namespace']} cannot be read: {done.stderr.strip()}"
        )
    return done.stdout


def _renders(name: str) -> bool:
    """Whether a file of the chart changes what is rendered, unlike those for people."""
    return name.startswith("templates/") or name.endswith(".json")


def _files(chart: Path) -> dict[str, str]:
    """Return the files of the folder that change what is rendered, in hexadecimal digits."""
    names = {file.relative_to(chart).as_posix(): file for file in chart.rglob("*") if file.is_file()}
    return {name: file.read_bytes().hex() for name, file in names.items() if _renders(name)}
