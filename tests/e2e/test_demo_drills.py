"""A training on the demo's cluster that loses one thing after the other, and ends with the weights of an undisturbed one.

`make test-drills` strikes a hundred trainings with one fault each, those that take a node or etcd away included.
"""

import json

import pytest

from e2e import machine
from e2e.commands import kubectl, sh

# Not in `make test`: on an idle machine a step takes a fraction of a second, so that a fault takes effect when the training is over.
pytestmark = [pytest.mark.e2e, pytest.mark.tier, pytest.mark.timeout(3600)]
FAULTS = ("playbook killed", "operator restarted", "rank killed", "pod deleted", "API server away")
"""One of each kind, all in one training, as each start of a pod costs more than its 12 steps; it goes on while the API server is away, so
that is the last."""
SEED, EPOCHS = "8174", "8"
"""Strikes after steps 2, 5, 8, 13 and 17 of 24: a pod that is deleted while a rank's loss is being repaired starts once for both, and
where steps are fast some more are done before a fault takes effect."""


def test_five_faults_leave_the_weights_of_an_undisturbed_training(demo: str) -> None:
    table, site = machine.ARTIFACTS / "drills.json", machine.ARTIFACTS / "site.yaml"  # site.yml wrote it
    table.unlink(missing_ok=True)
    drills = (".venv/bin/python", "-m", "drills", "--table", str(table), "--site", str(site), "--api", "pytorchjob")
    try:
        sh(
            *drills,
            "--seed",
            SEED,
            "--epochs",
            EPOCHS,
            "--together",
            ",".join(FAULTS),
            env={"PYTHONPATH": "cluster:tests"},
        )
    finally:
        kubectl("delete", "namespace", "drills", "--wait=false", "--ignore-not-found")
    (row,) = json.loads(table.read_text())["drills"]
    assert row["fault"] == ", ".join(FAULTS) and row["restarts"] == 2
