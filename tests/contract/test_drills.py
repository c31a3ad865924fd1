"""What of the drills can be told without a cluster: which fault meets which kind of job, and when a drill has passed."""

import itertools
from typing import Any

import pytest
from drills import __main__ as drills
from drills import faults, report

NAMES = ["rank killed", "API server away", "pod deleted"]
STARTS = [{"resumed": 0, "reached": 5}, {"resumed": 3, "reached": 9}, {"resumed": 6, "reached": None}]
ROW = {"wrong": [], "restarts": 2, "repeated": 5, "every": 3, "whole": [3, 6, 6], "starts": STARTS}


def test_every_fault_strikes_both_kinds_of_job_in_one_pod_and_in_two() -> None:
    first = [drills.turn(number) for number in range(4 * len(faults.FAULTS))]
    assert len(set(first)) == len(first)
    assert len({shape for shape, _name in first[:4]}) == 4 == len(drills.SHAPES)


def starts(number: int, **changed: int) -> dict[str, Any]:
    """Return one start changed, and what was repeated then."""
    found = [{**one} for one in STARTS]
    found[number] |= changed
    lost = itertools.pairwise(found)
    return {"starts": found, "repeated": sum(one["reached"] - two["resumed"] for one, two in lost)}  # type: ignore[operator]


@pytest.mark.parametrize(
    ("found", "passed"),
    [
        ({}, True),
        ({"restarts": 3}, False),
        ({"restarts": 1}, False),
        ({"repeated": 6}, False),
        ({"wrong": ["x"]}, False),
        ({"whole": [5, 6, 6]}, False),  # it could have gone on at a later one
        (starts(1, resumed=0), False),
        (starts(0, reached=6), True),  # the checkpoint of step 6 was not whole yet
        (starts(0, reached=7), False),  # now it was
        (starts(1, reached=8), True),
        (starts(1, reached=10), False),
        ({"starts": STARTS[:2]}, False),
    ],
)
def test_a_drill_passes_with_its_restarts_and_no_step_more(found: dict[str, Any], passed: bool) -> None:
    assert drills.as_expected(NAMES, ROW | found) is passed


def test_the_page_says_what_is_not_known() -> None:
    """A run that did not end tells no number of starts; the machine is the one that ran the drills."""
    done = {
        "job": "trainjob",
        "pods": 1,
        "fault": "pod deleted",
        "what": "a",
        "step": [4],
        "whole": [3],
        "seconds": 60.2,
    }
    rows = [{**done, "restarts": 1, "repeated": 1, "ok": True}, {**done, "restarts": None, "repeated": 0, "ok": False}]
    plain = {"trainjob of 1": {"steps": 12, "seconds": 50.0, "hardware": "a processor, 2 cores"}}
    table = {"seed": 5, "commit": "0" * 40, "undisturbed": plain, "drills": rows}
    page = report.page(table, "2026-11-26")
    assert "1 of 2\nended" in page and "a processor, 2 cores, 2026-11-26" in page
    assert "| pod deleted | 2 | 1 | 1 | 0 to 1 | 60 |" in page
    assert "| 2 | trainjob | 1 | pod deleted: a | 4 | 3 | - | 0 | 60, FAILED |" in page
