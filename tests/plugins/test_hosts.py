"""`hosts: all` with two hosts: what would be done twice at once is refused before anything is sent that changes something."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from slow import but_the_first

from .test_playbooks import ansible

ROOT = Path(__file__).resolve().parents[2]
HERE = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
SITE = {"images": {"trainer": "registry.example.com/trainer:1"}}


@pytest.fixture
def refused(cluster: Any, tmp_path: Path) -> Callable[..., str]:
    """Return a function that runs a playbook on hosts with these variables, and returns its error."""

    def run(playbook: str, hosts: dict[str, dict[str, Any]], *options: str, **variables: Any) -> str:
        given = {"trainlab_kubeconfig": str(cluster.kubeconfig), "trainlab_site": SITE} | variables
        inventory = tmp_path / "inventory.json"
        entries = {name: HERE | own for name, own in hosts.items()}
        inventory.write_text(json.dumps({"all": {"hosts": entries, "vars": given}}), encoding="utf-8")
        env = {key: value for key, value in os.environ.items() if not key.startswith(("ANSIBLE_", "K8S_AUTH"))}
        program = str(Path(sys.executable).parent / "ansible-playbook")
        command = [program, "-i", str(inventory), f"playbooks/{playbook}.yml", *options]
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode != 0, done.stdout
        assert {method for method, _ in cluster.asked} <= {"GET"}, cluster.asked
        found = re.search(r"\nerror: (.*)", done.stdout, re.DOTALL)
        assert found and "Traceback" not in done.stdout + done.stderr, done.stdout + done.stderr
        return " ".join(found[1].split())

    return run


TWINS: dict[str, dict[str, Any]] = {"one": {}, "two": {}}
SPACES: dict[str, dict[str, Any]] = {name: {"trainlab_namespace": name} for name in ("one", "two")}


@pytest.mark.parametrize("playbook", but_the_first(["teardown", "workspace", "verify"]))
def test_one_cluster_twice(refused: Callable[..., str], playbook: str) -> None:
    """Teardown's first task is Helm's, which would uninstall the release twice at once."""
    said = refused(playbook, TWINS, trainlab_helm="/nonexistent/helm")
    assert "hosts one and two of the inventory are the same cluster" in said and "--limit one" in said


@pytest.mark.slow
@pytest.mark.parametrize("playbook", ["attendees", "platform", "platform_teardown"])
def test_what_belongs_to_the_whole_cluster_is_not_done_from_two_namespaces(
    refused: Callable[..., str], playbook: str
) -> None:
    said = refused(playbook, SPACES, attendees_count=1, platform_operators=["gpu"])
    assert "hosts one and two of the inventory are the same cluster" in said
    assert said.partition("give each host its own ")[2].startswith("trainlab_kubeconfig or trainlab_kube_context")


PLAY: dict[str, Any] = {"hosts": "all", "gather_facts": False}
GUARD = {"ansible.builtin.include_role": {"name": "trainlab.rhoai.phase", "tasks_from": "guard"}}


@pytest.mark.parametrize(("at", "file"), but_the_first([("play", "one"), ("play", ""), ("block", ""), ("task", "")]))
def test_variables_of_a_play_count(cluster: Any, tmp_path: Path, at: str, file: str) -> None:
    """They win over those of the inventory, of which other hosts know."""
    hosts, same = {}, bool(file)
    for name in ("one", "two"):
        (tmp_path / name).symlink_to(cluster.kubeconfig)
        hosts[name] = HERE | ({"trainlab_kubeconfig": str(tmp_path / name)} if same else {})
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts}}), encoding="utf-8")
    given = {"vars": {"trainlab_kubeconfig": str(tmp_path / (file or "{{ inventory_hostname }}"))}}
    block = {"block": [GUARD | (given if at == "task" else {})]} | (given if at == "block" else {})
    play = PLAY | {"tasks": [block]} | (given if at == "play" else {})
    (tmp_path / "play.yml").write_text(json.dumps([play]), encoding="utf-8")
    done = ansible("-i", str(tmp_path / "hosts.json"), str(tmp_path / "play.yml"))
    assert ("hosts one and two of the inventory are the same cluster" in done.stdout) == same, done.stdout + done.stderr
    assert (done.returncode == 0) != same


def test_the_embedded_cluster_is_this_machines(refused: Callable[..., str]) -> None:
    """In check mode, where nothing would be built anyway."""
    said = refused("local", SPACES, "--check")
    assert "hosts one and two of the inventory are the same machine" in said and "--limit one" in said


@pytest.mark.parametrize(
    "variable", but_the_first(["report_dest", "attendees_dest", "image_site_file", "verify_json", "verify_junit"])
)
def test_two_clusters_do_not_write_one_file(
    refused: Callable[..., str], cluster: Any, tmp_path: Path, variable: str
) -> None:
    """The run of a phase has the same name on each cluster, and so has a kubeconfig of an attendee."""
    other = tmp_path / "other"
    other.write_bytes(Path(cluster.kubeconfig).read_bytes())
    hosts = {"one": {}, "two": {"trainlab_kubeconfig": str(other)}}
    said = refused("workspace", hosts, **{variable: str(tmp_path / "out")})
    assert f"hosts one and two of the inventory have the same {variable} ({tmp_path / 'out'})" in said
    assert "give each host its own" in said
