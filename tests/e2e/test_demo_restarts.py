"""A job starts again as often as phase.resources.restarts says, and no more, whichever kind it is; once on purpose before an audience."""

import json
import random
import re
import time
from pathlib import Path

import pytest
from drills import faults
from drills.place import OPERATORS, PATIENCE, Place

from e2e import machine
from e2e.commands import WHOLE, kubectl, playbook, sh

MINUTES = pytest.mark.skipif(not WHOLE, reason="minutes of training: make test-all-phases runs it")
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3600)]


@MINUTES
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
        kubectl("delete", "namespace", "drills", "--ignore-not-found", "--timeout=300s")


@MINUTES
@pytest.mark.parametrize(
    ("drill", "struck"), [("pod", r"pod drill-\S+ was deleted"), ("rank", r"rank \d was killed by -9")]
)
def test_a_drill_before_an_audience_tells_what_it_cost(demo: str, tmp_path: Path, drill: str, struck: str) -> None:
    """playbooks/drill.yml beside playbooks/train.yml, as in two terminals."""
    place = Place("pytorchjob", 2, str(machine.ARTIFACTS / "site.yaml"))
    place.remove()
    training = place.play(tmp_path / "train.log")
    try:
        said = playbook("drill", "-e", json.dumps(place.variables() | {"drill": drill, "report_dest": str(tmp_path)}))
        cost = r"The training started again once, \d steps? repeated, and ended with the results above"
        assert re.search(rf"Drill: {struck} after step \d+\. {cost}", said), said[-3000:]
        assert training.wait(PATIENCE) == 0, (tmp_path / "train.log").read_text()[-3000:]
    finally:
        training.kill()
        place.uninstall()
        kubectl("delete", "namespace", "drills", "--ignore-not-found", "--timeout=300s")
