"""A job starts again as often as phase.resources.restarts says, and no more, whichever kind it is; once on purpose before an audience."""

import json
import re
from collections.abc import Iterator

import pytest
from drills.place import OPERATORS

from e2e import machine
from e2e.commands import kubectl, sh

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(3600),
    pytest.mark.tier,
]
SITE = str(machine.ARTIFACTS / "site.yaml")


@pytest.fixture(autouse=True)
def gone(demo: str) -> Iterator[None]:
    """Nothing of a drill is left."""
    yield
    kubectl("delete", "namespace", "drills", "--ignore-not-found", "--timeout=300s")


def drilled(module: str, *argv: str) -> str:
    """Run a module of tests/drills in a process of its own, which knows the tests' cluster by its environment."""
    return sh(".venv/bin/python", "-m", f"drills.{module}", SITE, *argv, env={"PYTHONPATH": "cluster:tests"})


@pytest.mark.parametrize("api", OPERATORS)
def test_the_second_loss_of_one_ends_the_job(api: str) -> None:
    sh("cluster/python", "cluster", "operators", "jobset", "trainer")
    found = json.loads(drilled("used_up", api).splitlines()[-1])
    assert found["end"] == "Failed"
    first, second = found["starts"]
    assert (first["restart"], second["restart"]) == (0, 1) and second["ended"] == 1
    assert "phase.resources.restarts is 1: the job was started again once and lost a rank" in found["said"]


@pytest.mark.parametrize(
    ("drill", "struck"), [("pod", r"pod drill-\S+ was deleted"), ("rank", r"rank \d was killed by -9")]
)
def test_a_drill_before_an_audience_tells_what_it_cost(drill: str, struck: str) -> None:
    said = drilled("audience", drill)
    cost = r"The training started again once, \d steps? repeated, and ended with the results above"
    assert re.search(rf"Drill: {struck} after step \d+\. {cost}", said), said[-3000:]
