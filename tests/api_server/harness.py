"""The API server as the tests use it: playbooks run against it, and all its objects can be listed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from charts.rendering import IMAGE

from api_server.client import Client
from api_server.operands import HARDWARE
from api_server.server import Server

REPO = Path(__file__).resolve().parents[2]
PLAYBOOK_SECONDS = 300
TIMEOUTS = dict.fromkeys(("operators", "resources", "rhoai", "removal"), 120)


@dataclass(frozen=True)
class Run:
    """A finished ansible-playbook: `text` is all its output."""

    code: int
    text: str

    @property
    def changed(self) -> int:
        """Number of changed tasks, from the recap."""
        match = re.search(r"changed=(\d+)", self.text)
        assert match, self.text
        return int(match[1])

    @property
    def error(self) -> str:
        """The message of the failed task on one line; the run has to have failed, without a traceback."""
        assert self.code != 0, self.text
        assert "Traceback" not in self.text
        return " ".join(self.text.split("error:", 1)[1].split())


class Cluster:
    """The API server and what the tests do with it."""

    def __init__(self, server: Server, folder: Path) -> None:
        """Inventories go into `folder`."""
        self.server, self._folder = server, folder
        self.client = Client(server.kubeconfig)

    def inventory(
        self, kubeconfig: Path | None = None, hosts: dict[str, dict[str, Any]] | None = None, **variables: Any
    ) -> Path:
        """Write an inventory with these variables, of one host or of several with variables of their own."""
        own = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        given = {
            "trainlab_kubeconfig": str(kubeconfig or self.server.kubeconfig),
            "trainlab_site": {"images": {"trainer": IMAGE}},
            "platform_poll": 0.5,
            "platform_timeouts": TIMEOUTS,
        } | variables
        all_ = {"hosts": {name: own | more for name, more in (hosts or {"cluster": {}}).items()}, "vars": given}
        inventory = self._folder / "inventory.json"
        inventory.write_text(json.dumps({"all": all_}), encoding="utf-8")
        return inventory

    def playbook(self, name: str, *options: str, kubeconfig: Path | None = None, **variables: Any) -> Run:
        """Run a playbook with these variables in the inventory."""
        return self.run(name, self.inventory(kubeconfig, **variables), *options)

    def refusals(
        self, name: str, wrong: dict[str, dict[str, Any]], hidden: str = "", **variables: Any
    ) -> dict[str, str]:
        """Run a playbook's text once for many inventories that it must refuse, each a host of it; return the error of each.

        Starting ansible-playbook takes longer than a refusal. Text that is `hidden` must not be printed.
        """
        playbook = self._folder / f"{name}.yml"
        text = (REPO / "playbooks" / f"{name}.yml").read_text(encoding="utf-8")
        playbook.write_text(text.replace("hosts: localhost", "hosts: all"), encoding="utf-8")
        settings = {"ANSIBLE_ANY_ERRORS_FATAL": "false", "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default"}
        run = self.run(str(playbook), self.inventory(hosts=wrong, **variables), environment=settings)
        assert "Traceback" not in run.text, run.text
        assert not hidden or hidden not in run.text, run.text
        match = re.findall(r"^fatal: \[([^]]+)\]: FAILED! => (\{.*\})$", run.text, re.MULTILINE)
        errors = {host: " ".join(json.loads(result)["msg"].split()) for host, result in match}
        assert errors.keys() == wrong.keys(), run.text
        return errors

    def run(
        self,
        name: str,
        inventory: Path,
        *options: str,
        within: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> Run:
        """Run a playbook with an inventory and these variables of the environment; `within` is a command that runs it."""
        done = subprocess.run(
            [*within, *self._command(name, inventory), *options],
            cwd=REPO,
            env={**self._environment(), **(environment or {})},
            capture_output=True,
            text=True,
            timeout=PLAYBOOK_SECONDS,
            check=False,
        )
        return Run(done.returncode, done.stdout + done.stderr)

    def beside(self, name: str, inventory: Path, log: Path) -> subprocess.Popen[bytes]:
        """Start a playbook in a process group of its own, which writes what it prints to a file; ended by whoever starts it."""
        with log.open("wb") as stream:
            return subprocess.Popen(
                self._command(name, inventory),
                cwd=REPO,
                env=self._environment(),
                stdout=stream,
                stderr=stream,
                start_new_session=True,
            )

    def _command(self, name: str, inventory: Path) -> list[str]:
        program = str(Path(sys.executable).with_name("ansible-playbook"))
        return [program, "-i", str(inventory), str(Path("playbooks", name).with_suffix(".yml"))]

    def _environment(self) -> dict[str, str]:
        own = {"ANSIBLE_CONFIG": str(REPO / "ansible.cfg"), "ANSIBLE_HOME": str(self._folder / "ansible")}
        return {**os.environ, **own}

    def objects(self) -> set[str]:
        """Name every object in the API server."""
        return self.client.objects()


def node(name: str, vendor: str) -> dict[str, Any]:
    """A machine in which Node Feature Discovery finds a device of this vendor."""
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "annotations": {HARDWARE: vendor}}}
