"""A training on the demo's cluster that loses one thing after the other, and ends with the weights of an undisturbed one.

`make test-drills` strikes a hundred trainings with one fault each, those that take a node or etcd away included.
"""

import json
from typing import Any

import pytest

from e2e import machine
from e2e.commands import kubectl, sh

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3600)]
FAULTS = ("playbook killed", "operator restarted", "rank killed", "pod deleted", "API server away")
"""One of each kind, all in one training, as each start of a pod costs more than its 12 steps; it goes on while the API server is away, so
that is the last."""
SEED, EPOCHS = "8174", "8"
"""Strikes after steps 2, 5, 8, 13 and 17 of 24: a pod that is deleted while a rank's loss is being repaired starts once for both, and
where steps are fast some more are done before a fault takes effect."""


EARLY, LONG = "9", "16"
"""Strikes after step 5 of 48: a step takes a fraction of a second on an idle machine, a kill of a rank takes effect at once."""


def drilled(*more: str) -> dict[str, Any]:
    """Train once undisturbed and once struck; return the row of the table, whose weights were compared."""
    table, site = machine.ARTIFACTS / "drills.json", machine.ARTIFACTS / "site.yaml"  # site.yml wrote it
    table.unlink(missing_ok=True)
    drills = (".venv/bin/python", "-m", "drills", "--table", str(table), "--site", str(site), "--api", "pytorchjob")
    try:
        sh(*drills, *more, env={"PYTHONPATH": "cluster:tests"})
    finally:
        kubectl("delete", "namespace", "drills", "--wait=false", "--ignore-not-found")
    (row,) = json.loads(table.read_text())["drills"]
    result: dict[str, Any] = row
    return result


@pytest.mark.rest  # training/tests/run/test_launch.py kills one without a cluster
def test_a_killed_rank_leaves_the_weights_of_an_undisturbed_training(demo: str) -> None:
    row = drilled("--seed", EARLY, "--epochs", LONG, "--pods", "1", "--together", "rank killed")
    assert row["ok"] and row["fault"] == "rank killed" and row["restarts"] == 1


# Not in `make test`: where steps are fast, the later faults take effect when the training is over.
@pytest.mark.tier
def test_five_faults_leave_the_weights_of_an_undisturbed_training(demo: str) -> None:
    row = drilled("--seed", SEED, "--epochs", EPOCHS, "--together", ",".join(FAULTS))
    assert row["fault"] == ", ".join(FAULTS) and row["restarts"] == 2
