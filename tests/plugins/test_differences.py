"""What objects_apply reports for an object that someone else owns."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.trainlab.rhoai.plugins.action.objects_apply import differences

WANTED = {"data": {"config.yaml": "enableUserWorkload: true\n", "x": "1"}}


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({"data": {"config.yaml": "a: {b: 1}\nenableUserWorkload: true", "x": "1"}}, []),
        (
            {"data": {"config.yaml": "enableUserWorkload: false", "x": "1"}},
            ["data.config.yaml.enableUserWorkload is False, wanted True"],
        ),
        ({"data": {"config.yaml": "", "x": "2"}}, ["data.config.yaml is None, wanted {'enableUserWorkload': True}"]),
        ({"data": {"config.yaml": "{", "x": "1"}}, ["data.config.yaml is '{', wanted 'enableUserWorkload: true\\n'"]),
        ({}, ["data is None, wanted"]),
    ],
)
def test_files_in_a_config_map_are_compared_by_what_they_say(found: dict[str, Any], said: list[str]) -> None:
    told = differences(WANTED, found)
    for each in said:
        assert any(text.startswith(each) for text in told), told
    assert bool(told) == bool(said)
