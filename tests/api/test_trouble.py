"""playbooks/platform.yml while the API server is overloaded, connections are cut, a webhook is silent, and runs are killed."""

from __future__ import annotations

import re
from typing import Any

import killing
from harness import Cluster

WANTED: dict[str, Any] = {"platform_operators": ["gpu", "rhoai"], "platform_release": "3.4"}


def held(cluster: Cluster) -> set[str]:
    """Name all objects, with the InstallPlans' random names as one."""
    return {re.sub(r"InstallPlan (\S+)/install-\w+", r"InstallPlan \1", name) for name in cluster.objects()}


def test_busy_server_silent_webhook_and_cut_connections(cluster: Cluster) -> None:
    """All of it is waited out: the install is complete, a repeated run changes nothing, the undo leaves nothing."""
    bare, shaky = cluster.objects(), cluster.server.shaky
    cluster.server.fault({"api-server": "busy", "rhods-operator": "webhook", "job-set": "late"})
    first = cluster.playbook("platform", kubeconfig=shaky, **WANTED)
    assert first.code == 0, first.text
    cluster.server.fault({"api-server": "cut"})
    second = cluster.playbook("platform", kubeconfig=shaky, **WANTED)
    assert (second.code, second.changed) == (0, 0), second.text
    undone = cluster.playbook("platform_teardown", kubeconfig=shaky)
    assert undone.code == 0, undone.text
    cluster.server.fault({})
    assert cluster.objects() == bare
    assert cluster.server.trouble() >= {"429", "500", "503", "before", "after", "half"}


def test_killed_at_any_task_and_run_again(cluster: Cluster) -> None:
    """Runs that were killed leave nothing that hinders the next one, neither of the install nor of the undo."""
    bare = cluster.objects()
    given = cluster.inventory(**WANTED)
    runs, _ = killing.at_every_task(killing.command("platform", "-i", str(given)), step=2)
    assert runs > 4
    again = cluster.playbook("platform", **WANTED)
    assert (again.code, again.changed) == (0, 0), again.text
    after_kills = held(cluster)

    for delay in (0.0, 1.0, 2.5):
        killing.killed(killing.command("platform_teardown", "-i", str(given)), 2, delay)
    undone = cluster.playbook("platform_teardown")
    assert undone.code == 0, undone.text
    assert cluster.objects() == bare

    calm = cluster.playbook("platform", **WANTED)
    assert calm.code == 0, calm.text
    assert held(cluster) == after_kills
    assert cluster.playbook("platform_teardown").code == 0
