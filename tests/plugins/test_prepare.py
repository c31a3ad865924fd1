"""The Job that makes a text ready, followed by train_wait with step prepare."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.trainlab.rhoai.plugins.action import train_wait
from ansible_collections.trainlab.rhoai.plugins.plugin_utils import jobs

from plugins.test_playbooks import ansible, error_of

JOBS = "/apis/batch/v1/namespaces/demo/jobs"
PODS = "/api/v1/namespaces/demo/pods"


def job(name: str, *conditions: str, **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "labels": {"trainlab.dev/run": "staged-1"}, "annotations": {"trainlab.dev/restarts": "4"}}
    return {
        "metadata": metadata,
        "spec": spec,
        "status": {"conditions": [{"type": each, "status": "True"} for each in conditions]},
    }


def pod(code: int | None = None) -> dict[str, Any]:
    state: dict[str, Any] = {"terminated": {"exitCode": code, "reason": "Error"}} if code else {"running": {}}
    status = {"phase": "Failed" if code else "Running", "containerStatuses": [{"name": "prepare", "state": state}]}
    return {"metadata": {"name": "staged-prepare-1-x"}, "spec": {}, "status": status}


def followed(cluster: Any, folder: Path) -> Any:
    task = {"kubeconfig": str(cluster.kubeconfig), "namespace": "demo", "release": "staged", "step": "prepare"}
    play = [{"hosts": "all", "gather_facts": False, "tasks": [{"name": "Wait", "trainlab.rhoai.train_wait": task}]}]
    (folder / "wait.yml").write_text(json.dumps(play), encoding="utf-8")
    return ansible(str(folder / "wait.yml"))


def test_its_lines_are_shown_until_it_is_complete_and_a_lost_pod_is_not_the_end(cluster: Any, tmp_path: Path) -> None:
    """The promotion of the revision before may still be there."""
    promotion = job("staged-0a1b2c3d-promote-123456", "Failed")
    running, complete = ({"items": [promotion, job("staged-prepare-1", *done)]} for done in ((), ("Complete",)))
    cluster.objects[JOBS] = [running, running, complete]
    cluster.items(PODS, pod(), pod(137) | {"metadata": {"name": "staged-prepare-1-killed"}})
    cluster.objects[f"{PODS}/staged-prepare-1-x/log"] = (
        "2026-11-29T10:00:00.000000000Z trainlab: clean: 4000 rows read, in text.jsonl\n"
    )
    done = followed(cluster, tmp_path)
    assert done.returncode == 0, done.stdout
    assert "clean: 4000 rows read, in text.jsonl" in done.stdout
    assert "lost staged-prepare-1-killed: container prepare ended with exit code 137" in done.stdout


@pytest.mark.slow
def test_an_error_of_its_own_ends_the_wait_with_its_last_lines_and_what_to_do(cluster: Any, tmp_path: Path) -> None:
    cluster.items(JOBS, job("staged-prepare-1", "Failed"))
    cluster.items(PODS, pod(2))
    cluster.objects[f"{PODS}/staged-prepare-1-x/log"] = (
        "error: phase.text.prepare.source is pvc:staged/corpus: nothing there\n"
    )
    said = error_of(followed(cluster, tmp_path))
    assert (
        "preparing the text of staged-1 failed: pod staged-prepare-1-x: container prepare ended with exit code 2"
        in said
    )
    assert "error: phase.text.prepare.source is pvc:staged/corpus: nothing there" in said
    assert said.endswith("fix the cause and run the playbook again; it goes on after the last complete shard")


def test_the_job_is_known_by_its_name_among_those_of_the_release() -> None:
    found = [job("staged-0a1b2c3d-promote-123456"), job("staged-prepare-1")]
    api: Any = SimpleNamespace(items=lambda *_: found)
    assert [each["metadata"]["name"] for each in jobs.preparing(api, "demo", "staged")] == ["staged-prepare-1"]
    assert train_wait._find(api, "demo", "staged", "prepare") == (jobs.BATCH, found[1])
    assert jobs.outcome(jobs.BATCH, job("staged-prepare-1", suspend=True))[0] == "queued", "by Kueue"


def test_too_little_memory_names_the_key_of_the_job() -> None:
    from ansible_collections.trainlab.rhoai.plugins.plugin_utils.waiting import StatusLines, watch_pods

    killed = pod(137)
    killed["status"]["containerStatuses"][0]["state"]["terminated"]["reason"] = "OOMKilled"
    said: list[str] = []
    api: Any = SimpleNamespace(log=lambda *_, **__: "")
    assert watch_pods(api, "demo", [killed], StatusLines(said.append), 60, train_wait.BLOCKS["prepare"], True) is None
    assert any("raise site.prepare.memory" in line for line in said)
