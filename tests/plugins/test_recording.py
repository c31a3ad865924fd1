"""What is written down of a cluster over time: changes, once each, and as sequences that a test replays."""

from __future__ import annotations

import json
from typing import Any

from ansible_collections.trainlab.rhoai.plugins.plugin_utils.recording import Place, Recording, Seen

STAMP = "2026-11-24T22:30:00Z"
NFD = Place("NodeFeatureDiscovery", "openshift-nfd", "nfd-instance")


def degraded(reason: str, stamp: str = STAMP) -> dict[str, Any]:
    one = {"type": "Degraded", "status": "True", "reason": reason, "lastTransitionTime": stamp}
    return {"status": {"conditions": [one]}}


def test_only_changes_are_appended_and_a_new_stamp_is_none() -> None:
    record = Recording()
    told = [("A", "1"), ("A", "2"), ("B", "2"), ("A", "3")]
    assert [record.see(at, STAMP, Seen(NFD, degraded(*one), "nfd")) for at, one in enumerate(told)] == [
        True,
        False,
        True,
        True,
    ]
    lines = [json.loads(line) for line in record.lines]
    assert [(line["at"], line["kind"], line["name"]) for line in lines] == [
        (at, "NodeFeatureDiscovery", "nfd-instance") for at in (0, 2, 3)
    ]
    steps = record.files("b")["nfd"]["sequences"][f"NodeFeatureDiscovery, {NFD.full_name}"]
    assert [step["source"] for step in steps] == ["changes.jsonl:1", "changes.jsonl:2", "changes.jsonl:3"]
    assert [step["status"]["conditions"][0]["reason"] for step in steps] == ["A", "B", "A"]


def test_an_object_that_goes_is_told_once_and_its_return_is_a_step() -> None:
    record = Recording()
    seen = Seen(NFD, degraded("A"), "nfd")
    record.see(0, STAMP, seen)
    assert not record.gone(1, STAMP, {"Node"}, set()), "another kind was listed"
    assert record.gone(2, STAMP, {NFD.kind}, set()) and not record.gone(3, STAMP, {NFD.kind}, set())
    assert json.loads(record.lines[-1])["gone"] is True
    assert record.see(4, STAMP, seen)
    assert len(record.files("b")["nfd"]["sequences"][f"NodeFeatureDiscovery, {NFD.full_name}"]) == 2


def test_a_sequence_is_that_of_one_object() -> None:
    record = Recording()
    for name in ("one", "two"):
        record.see(0, STAMP, Seen(Place("Node", "", name), {"labels": {"a": "b"}}, "nodes"))
    assert list(record.files("b")["nodes"]["sequences"]) == ["Node, one", "Node, two"]


def test_what_is_recorded_is_cleaned() -> None:
    record = Recording()
    message = "cloning https://me:pw@git.example.com failed"
    record.see(0, STAMP, Seen(NFD, {"status": {"token": "planted", "message": message}}, "nfd"))
    for text in (record.lines[0], json.dumps(record.files("b"))):
        assert "planted" not in text and "me:pw" not in text and "git.example.com failed" in text
