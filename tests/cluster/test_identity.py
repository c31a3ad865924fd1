"""A cluster's name and addresses: errors are reported before anything is touched, two clusters share no name."""

from __future__ import annotations

import ipaddress
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from e2e import machine
from embedded_cluster.base import identity, say
from fresh import fresh_machine

ROOT = Path(__file__).resolve().parents[2]
CLUSTER = ROOT / "cluster"


@pytest.mark.parametrize("name", ["", "Test", "a_b", "-a", "a-", "1a", "../x", "a" * 13, "a/b"])
def test_wrong_names_are_refused(name: str) -> None:
    with pytest.raises(say.UserError, match=rf"^TRAINLAB_CLUSTER={re.escape(name)}: give at most 12 lower case"):
        identity.checked_name(name)


@pytest.mark.parametrize("name", ["a", "test", "trainlab", "second-one", "a" * 12])
def test_names_fit_into_a_link(name: str) -> None:
    assert identity.checked_name(name) == name
    assert len(identity.link_of(name)) <= 15


def test_no_group_is_one_of_the_machine() -> None:
    """`down` kills what is in the group: a cluster named docker must not have docker's."""
    assert identity.group_of("docker") == "trainlab-docker"
    assert identity.group_of(identity.DEFAULT) == "trainlab"


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("TRAINLAB_NODE_SUBNET", "10.1.0.0/16"),
        ("TRAINLAB_NODE_SUBNET", "10.1.0.1/24"),
        ("TRAINLAB_POD_SUBNET", "fd00::/16"),
        ("TRAINLAB_POD_SUBNET", "10.1"),
        ("TRAINLAB_SERVICE_SUBNET", "127.1.0.0/16"),
        ("TRAINLAB_SERVICE_SUBNET", "224.1.0.0/16"),
    ],
)
def test_wrong_subnets_are_refused(variable: str, value: str) -> None:
    with pytest.raises(say.UserError, match=rf"^{variable}={re.escape(value)}: give an IPv4 network of the form 10\."):
        identity.checked_subnets({variable: value})


@pytest.mark.parametrize(
    "environment", [{}, machine.ENVIRONMENT, fresh_machine.OWN], ids=["the user's", "e2e", "fresh machines"]
)
def test_no_usual_network_is_one_of_somebody_else(environment: dict[str, str]) -> None:
    """On a node of another cluster the kernel would take a Service's address for one of that cluster, and no route tells."""
    theirs = {name: ipaddress.IPv4Network(network) for name, network in identity.OTHERS.items()}
    for ours in identity.checked_subnets(environment):
        assert not [name for name, network in theirs.items() if network.overlaps(ours)], ours


def test_overlapping_subnets_are_refused() -> None:
    with pytest.raises(say.UserError, match=r"TRAINLAB_NODE_SUBNET=10\.245\.3\.0/24 overlaps TRAINLAB_POD_SUBNET=10\."):
        identity.checked_subnets({"TRAINLAB_NODE_SUBNET": "10.245.3.0/24"})


@pytest.mark.parametrize("command", ["down", "check", "trainer-image"])
def test_a_wrong_name_ends_every_command_in_one_sentence(command: str, tmp_path: Path) -> None:
    """Not even `down` may fall back to the default cluster."""
    env = os.environ | {"TRAINLAB_CLUSTER": "No Name", "TRAINLAB_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, str(CLUSTER), command], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("error: TRAINLAB_CLUSTER=No Name: give at most")


@pytest.mark.parametrize("name", ["", "second"])
def test_the_inventory_finds_the_kubeconfig(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """inventory/local and paths.py agree in the same environment."""
    monkeypatch.setenv("TRAINLAB_HOME", str(tmp_path))
    monkeypatch.setenv("TRAINLAB_CLUSTER", name)
    code = "from embedded_cluster.base import paths; print(paths.KUBECONFIG)"
    found = subprocess.run([sys.executable, "-c", code], cwd=CLUSTER, capture_output=True, text=True, check=True).stdout
    assert _variable("trainlab_kubeconfig") == found.strip()


@pytest.mark.parametrize(("asked", "folder"), [("", str(ROOT / "artifacts")), ("/elsewhere", "/elsewhere")])
def test_artifacts_go_where_the_environment_says(asked: str, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINLAB_ARTIFACTS", asked)
    assert _variable("report_dest") == folder


def _variable(name: str) -> str:
    """A variable of inventory/local, as a playbook sees it."""
    ansible = [str(Path(sys.executable).with_name("ansible")), "localhost", "-i", "inventory/local", "-m", "debug"]
    command = [*ansible, "-a", f"var={name}", "--playbook-dir", f"{ROOT}/playbooks"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return str(json.loads(said.partition("=> ")[2])[name])
