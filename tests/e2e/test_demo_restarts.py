"""A job starts again as often as phase.resources.restarts says, and no more, whichever kind it is."""

import random
import time

import pytest
from drills import faults
from drills.place import OPERATORS, PATIENCE, Place

from e2e import machine
from e2e.commands import WHOLE, kubectl, sh

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3600)]


@pytest.mark.skipif(not WHOLE, reason="minutes of training: make test-all-phases runs it")
@pytest.mark.parametrize("api", OPERATORS)
def test_the_second_loss_of_one_ends_the_job(demo: str, api: str) -> None:
    sh("cluster/python", "cluster", "operators", "jobset", "trainer")
    place = Place(api, 1, str(machine.ARTIFACTS / "site.yaml"), {"restarts": 1})
    place.remove()
    place.install()
    try:
        for loss in (1, 2):
            limit = time.monotonic() + PATIENCE
            while len(place.starts()) < loss or not place.step() or not place.ranks():
                assert time.monotonic() < limit, kubectl("-n", "drills", "get", "pods,events")
                time.sleep(0.1)
            faults.rank_killed(place, random.Random(loss))
        assert place.end(PATIENCE) == "Failed"
        first, second = place.starts()
        assert (first["restart"], second["restart"]) == (0, 1) and second["ended"] == 1
        assert "phase.resources.restarts is 1: the job was started again once and lost a rank" in place.logs()
    finally:
        place.uninstall()
        kubectl("delete", "namespace", "drills", "--wait=false", "--ignore-not-found")
