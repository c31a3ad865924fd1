"""tests/faults.yaml fits the checkout: each fault can be applied, and the tests that have to catch it are there."""

from collections import Counter

import faults
import pytest

ROWS = faults.faults()
FOLDERS = ("training/src/", "charts/", "plugins/", "roles/", "cluster/", "images/", "docs/")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_a_fault_can_be_applied(row: faults.Fault) -> None:
    assert row.problem() == ""
    assert row.old != row.new and row.breaks.endswith(".") and row.tests


def test_a_text_that_is_no_longer_there_once_is_named() -> None:
    assert faults.Fault("a", "Makefile", "no such text", "", "x.", ()).problem() == (
        "a: old: occurs 0 times in Makefile; give a text that occurs once"
    )


def test_every_folder_has_some_and_every_name_is_one() -> None:
    assert [name for name, times in Counter(row.id for row in ROWS).items() if times > 1] == []
    assert [folder for folder in FOLDERS if not any(row.file.startswith(folder) for row in ROWS)] == []
    assert len(ROWS) >= 100
