"""What the tests of the demo's cluster have in common: commands run as a user runs them, and the cluster's objects."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from e2e import machine

REPO = machine.REPO
BIN = machine.HOME / "cache" / "bin"
KEEP = os.environ.get("E2E_KEEP", "")  # 1 keeps the cluster, `as-is` also skips the demo at the start
WHOLE = os.environ.get("E2E_PHASES") == "all"
PHASE = "survival" if WHOLE else "quick"
NAMESPACE = "trainlab-demo"
WITH_PROGRAMS = {"PATH": f"{BIN}:{os.environ['PATH']}"}
"""For commands as a user types them: kubectl and helm by their names."""
PLAYBOOK_SECONDS = 2700


def sh(
    *argv: str,
    ok: bool | None = True,
    seconds: int = 1500,
    env: Mapping[str, str | None] | None = None,
    given: str = "",
    folder: Path = REPO,
) -> str:
    """Run a command with stdin `given` in `folder`; return its output; fail the test when `ok` is not met (None: either).

    `env` lies over the tests' own environment; None takes a variable away.
    """
    whole = {**machine.ENVIRONMENT, "KUBECONFIG": str(machine.KUBECONFIG), **(env or {})}
    done = subprocess.run(
        argv,
        cwd=folder,
        env={key: value for key, value in whole.items() if value is not None},
        input=given,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert ok is None or (done.returncode == 0) == ok, (
        f"{' '.join(argv)} ended with {done.returncode}:\n{done.stdout[-6000:]}"
    )
    return done.stdout


def playbook(name: str, *extra: str, ok: bool = True) -> str:
    """Run playbooks/NAME.yml against the embedded cluster."""
    return sh(".venv/bin/ansible-playbook", "-i", "inventory/local", f"playbooks/{name}.yml", *extra, ok=ok)


@dataclass(frozen=True)
class Collection:
    """Where the playbooks come from: the checkout, or the collection installed in somebody's empty folder."""

    root: Path = REPO
    folder: Path = REPO

    def play(self, inventory: str, name: str, connection: Mapping[str, str | None], given: dict[str, Any]) -> str:
        """Run a playbook with an inventory as it is and these variables, over what is in that environment; it has to succeed."""
        mine = self.folder == REPO
        playbook = f"playbooks/{name}.yml" if mine else f"trainlab.rhoai.{name}"
        own = {} if mine else {"ANSIBLE_COLLECTIONS_PATH": str(self.folder / "collections")}
        program, at = str(REPO / ".venv/bin/ansible-playbook"), str(self.root / "inventory" / inventory)
        command = (program, "-i", at, playbook, "-e", json.dumps(given))
        return sh(*command, seconds=PLAYBOOK_SECONDS, env={**WITH_PROGRAMS, **own, **connection}, folder=self.folder)


def installed(folder: Path) -> Collection:
    """Build the collection and install it into an empty folder, as docs/operate/automation.md says, for somebody whose home has no other copy."""
    galaxy = (str(REPO / ".venv/bin/ansible-galaxy"), "collection")
    sh(*galaxy, "build", str(REPO), "--output-path", str(folder), folder=folder)
    (archive,) = folder.glob("trainlab-rhoai-*.tar.gz")
    # not in the checkout, whose settings have it installed
    given = ("--no-deps", "--offline", "-p", str(folder / "collections"))
    sh(*galaxy, "install", str(archive), *given, folder=folder, env={"ANSIBLE_HOME": str(folder / ".ansible")})
    return Collection(folder / "collections/ansible_collections/trainlab/rhoai", folder)


def serving(release: str) -> str:
    """Return the label of the pods that serve a release's model, as KServe sets it."""
    return f"app=isvc.{release}-predictor"


def kubectl(*argv: str, ok: bool | None = True, given: str = "") -> str:
    """kubectl of the embedded cluster, with this on its standard input."""
    return sh(str(BIN / "kubectl"), *argv, ok=ok, given=given)


def helm(*argv: str, ok: bool | None = True) -> str:
    """Helm 3 of the embedded cluster."""
    return sh(str(BIN / "helm"), *argv, ok=ok)


def helm_install(line: str, folder: Path = REPO, kubeconfig: Path = machine.KUBECONFIG) -> None:
    """Run a line `helm install` in `folder`; what docs/operate/automation.md says if Trainer's webhook lags behind."""
    env = {**WITH_PROGRAMS, "KUBECONFIG": str(kubeconfig)}
    said = sh("sh", "-c", line, ok=None, env=env, folder=folder)
    if "specified trainingRuntime must be created before the TrainJob is created" in said:
        again = line.replace("helm install", "helm upgrade --install")
        said = sh("sh", "-c", again, ok=None, env=env, folder=folder)
    assert "STATUS: deployed" in said, said


def objects(kind: str, namespace: str = NAMESPACE, *argv: str) -> list[dict[str, Any]]:
    """Objects of a kind as dicts."""
    return json.loads(kubectl("-n", namespace, "get", kind, "-o", "json", *argv))["items"]  # type: ignore[no-any-return]


def ask_command(demo: str) -> str:
    """The command that `make demo` printed to ask the tuned model."""
    (line,) = re.findall(r"^ +Ask it +(curl .*)$", demo, re.MULTILINE)
    return str(line)


def trainer_image() -> str:
    """The demo's image, with its digest, as site.yml wrote it down."""
    site = yaml.safe_load((machine.ARTIFACTS / "site.yaml").read_text(encoding="utf-8"))["site"]
    return str(site["images"]["trainer"])


def changed(output: str) -> int:
    """The sum of changed= in the play recap, as the collection's callback prints it."""
    match = re.findall(r"^\S+: ok=\d+ changed=(\d+) ", output, re.MULTILINE)
    assert match, output[-2000:]
    return sum(map(int, match))


def changes(output: str) -> list[str]:
    """The tasks that changed something, as the callback prints them; nothing only if the recap counts none."""
    lines = re.findall(r"^ +changed +.*$", output, re.MULTILINE)
    return lines or [f"changed={count}" for count in [changed(output)] if count]
