"""What of the drills can be told without a cluster: which fault meets which kind of job, and when a drill has passed."""

from typing import Any

import pytest
from drills import __main__ as drills
from drills import faults

ROW = {"wrong": [], "restarts": 2, "repeated": 6, "every": 3}


def test_every_fault_strikes_both_kinds_of_job() -> None:
    first = [drills.turn(number) for number in range(2 * len(faults.FAULTS))]
    assert len(set(first)) == len(first)
    assert {api for api, _name in first[:2]} == {"pytorchjob", "trainjob"}


@pytest.mark.parametrize(
    ("found", "passed"),
    [
        ({}, True),
        ({"restarts": 3}, False),
        ({"restarts": 1}, False),
        ({"repeated": 7}, False),
        ({"wrong": ["x"]}, False),
    ],
)
def test_a_drill_passes_with_its_restarts_and_no_step_more(found: dict[str, Any], passed: bool) -> None:
    assert drills.as_expected(["rank killed", "API server away", "pod deleted"], ROW | found) is passed
