"""Six attendees at once on the demo's cluster, each with nothing but their kubeconfig and the printed line."""

import json
from pathlib import Path

import pytest

from e2e import machine, places
from e2e.commands import WHOLE, playbook, sh

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(5400)]
minutes = pytest.mark.skipif(not WHOLE, reason="minutes of training: make test-all-phases runs it")
PEOPLE, AT_ONCE = 6, 2
QUEUE = {"platform_queue": "pool", "platform_queue_quota": {"cpu": "2", "memory": "13Gi"}}
"""Room for two jobs of the phase of seconds, 6Gi each."""


@minutes
def test_six_attendees_train_in_turn_and_are_answered(demo: str, tmp_path: Path) -> None:
    """A quota for two jobs: the others wait in the order in which they came, and all are answered."""
    sh("cluster/python", "cluster", "operators", "kueue")
    playbook("platform", "-e", json.dumps(QUEUE))
    with places.handed_out(tmp_path, PEOPLE, "-e", f"attendees_cluster_queue={QUEUE['platform_queue']}") as line:
        people = [places.Attendee(f"user{number + 1}", tmp_path) for number in range(PEOPLE)]
        watched = places.together(people, line, patience=3600)
    table = {one.name: one.seconds for one in people}
    (machine.ARTIFACTS / "places.json").write_text(json.dumps(table, indent=1), encoding="utf-8")
    assert [name for name, seconds in table.items() if "answered" not in seconds] == []
    assert watched.most == AT_ONCE and len(watched.admitted) == PEOPLE and watched.out_of_order() == []
    playbook("platform_teardown")
