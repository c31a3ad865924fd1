"""The end of the demo that the files before share: its machine off and on, then what teardown.yml and `make demo-down` leave."""

import re
from typing import Any

import pytest
from waiting import until

from e2e import machine
from e2e.commands import NAMESPACE, PHASE, ask_command, changes, kubectl, objects, playbook, sh

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3600)]
SECONDS = 300.0
"""A hang guard; alone on two cores the model answers about 40 seconds after the reboot."""


def _identities() -> dict[str, str]:
    """What a new cluster would have made anew: the nodes, the volumes' claims, the served model."""
    every = [*objects("pvc"), *objects("nodes"), *objects("inferenceservices.serving.kserve.io")]
    return {each["metadata"]["name"]: each["metadata"]["uid"] for each in every}


def test_another_node_count_is_refused(demo: str) -> None:
    """With what differs, what would be lost, and the word; all stays as it is."""
    before = _identities()
    said = machine.cluster("up", "--nodes", "1", code=2)
    assert f"the cluster in {machine.FOLDER} cannot be kept: it was made with NODES=2, asked is NODES=1" in said
    assert re.search(rf"{NAMESPACE}/\S+ \(\d+ MiB, 1 run\)", said) and "RECREATE=1 with make demo" in said
    assert _identities() == before
    assert machine.cluster("up", "--nodes", "2").endswith("changed=false\n")


def test_a_reboot_brings_it_back_with_the_model(demo: str) -> None:
    """The same nodes and objects; the model answers again with nothing but `up`, which then changes nothing."""
    before = _identities()
    machine.power_off()
    said = machine.cluster("up", "--nodes", "2")
    assert said.endswith("changed=true\n") and "prepare" not in said
    ask = ("sh", "-c", ask_command(demo))
    until(lambda: '"content"' in sh(*ask, ok=None), SECONDS, lambda: kubectl("get", "pods", "-A", "-o", "wide"), 1)
    assert _identities() == before and list(machine.ready_nodes()) == ["n1", "n2"]
    assert machine.cluster("up", "--nodes", "2").endswith("changed=false\n")


def test_teardown_removes_what_site_made(demo: str) -> None:
    playbook("teardown", "-e", f"phase={PHASE}", "-e", "teardown_volumes=true")
    assert f"namespace/{NAMESPACE}" not in kubectl("get", "namespaces", "-o", "name")
    assert changes(playbook("teardown", "-e", f"phase={PHASE}", "-e", "teardown_volumes=true")) == []


def test_demo_down_leaves_the_host_as_it_was(demo: str, host: dict[str, Any]) -> None:
    sh("make", "demo-down")
    assert not machine.changes(host, machine.snapshot())
