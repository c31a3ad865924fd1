"""An inventory that names no Python: modules run by the one that runs Ansible, from set-up to teardown."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
LOCAL = {"ansible_connection": "local"}
SYSTEM = "/usr/bin/python3"
MODULE = re.compile(r"^ +kubernetes\.core\.", re.MULTILINE)


def interpreter(folder: Path, host: dict[str, Any], *options: str) -> str:
    """Return the Python that a module of a role like ours runs with, with nothing of the environment in PATH."""
    (folder / "hosts.json").write_text(json.dumps({"all": {"hosts": {"here": host}}}), encoding="utf-8")
    ask = {"name": "Ask", "ansible.builtin.setup": {"gather_subset": ["!all", "python"]}, "register": "asked"}
    told = {
        "name": "Tell",
        "ansible.builtin.debug": {"msg": "python={{ asked.ansible_facts.ansible_python.executable }}="},
    }
    for part, content in (("tasks", [ask, told]), ("meta", {"dependencies": [{"role": "trainlab.rhoai.phase"}]})):
        (folder / "roles" / "asks" / part).mkdir(parents=True)
        (folder / "roles" / "asks" / part / "main.yml").write_text(json.dumps(content), encoding="utf-8")
    include = {"name": "Include", "ansible.builtin.include_role": {"name": "asks"}}
    play = [{"hosts": "all", "gather_facts": False, "tasks": [include]}]
    (folder / "play.yml").write_text(json.dumps(play), encoding="utf-8")
    env = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
    env |= {"PATH": "/usr/bin:/bin", "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".collections")}
    program = str(Path(sys.executable).with_name("ansible-playbook"))
    command = [program, "-i", str(folder / "hosts.json"), *options, str(folder / "play.yml")]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    match = re.search(r"python=(.*?)=", done.stdout)
    assert done.returncode == 0 and match, done.stdout + done.stderr
    return match[1]


def test_without_an_interpreter_it_is_that_of_ansible(tmp_path: Path) -> None:
    assert interpreter(tmp_path, LOCAL) == sys.executable


@pytest.mark.skipif(not Path(SYSTEM).exists(), reason="no Python of the machine")
@pytest.mark.parametrize("given", ["inventory", "command line"])
def test_one_that_is_named_stays(tmp_path: Path, given: str) -> None:
    named = {"ansible_python_interpreter": SYSTEM}
    more = ("-e", json.dumps(named)) if given == "command line" else ()
    found = interpreter(tmp_path, LOCAL | (named if not more else {}), *more)
    assert Path(found).resolve() == Path(SYSTEM).resolve()


HELM = """#!/bin/sh
case "$*" in *version*) echo v3.22.0;; *list*|*status*) echo "[]";; esac
"""


@pytest.mark.rest
def test_a_teardown_gets_past_its_first_module(cluster: Any, tmp_path: Path) -> None:
    """In check mode, with a Helm that knows no release; it stopped at the first module of kubernetes.core."""
    helm = tmp_path / "helm"
    helm.write_text(HELM, encoding="utf-8")
    helm.chmod(0o755)
    given = {"trainlab_kubeconfig": str(cluster.kubeconfig), "trainlab_helm": str(helm)}
    (tmp_path / "hosts.json").write_text(
        json.dumps({"all": {"hosts": {"here": LOCAL}, "vars": given}}), encoding="utf-8"
    )
    env = {key: value for key, value in os.environ.items() if not key.startswith(("ANSIBLE_", "K8S_AUTH"))}
    env |= {"PATH": "/usr/bin:/bin", "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".collections")}
    program = str(Path(sys.executable).with_name("ansible-playbook"))
    command = [program, "-i", str(tmp_path / "hosts.json"), "--check", "playbooks/teardown.yml"]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert "Failed to import" not in done.stdout + done.stderr
    asked = [path.partition("?")[0] for _, path in cluster.asked]
    assert any(path.startswith("/api/v1/namespaces/") for path in asked), done.stdout


def test_every_role_with_such_a_module_depends_on_the_role_that_says_so() -> None:
    roles = {
        path.parents[1] for path in ROOT.glob("roles/*/tasks/*.yml") if MODULE.search(path.read_text(encoding="utf-8"))
    }
    assert roles
    for role in roles:
        needs = yaml.safe_load((role / "meta" / "main.yml").read_text(encoding="utf-8"))["dependencies"]
        assert {"role": "trainlab.rhoai.phase"} in needs, role
    plays = [path for path in ROOT.glob("playbooks/*.yml") if MODULE.search(path.read_text(encoding="utf-8"))]
    assert plays == []
