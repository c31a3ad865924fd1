"""The step before a training: the same release makes its text ready in a Job without GPUs, and then trains in its place."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from charts.lookups import Lookups
from charts.rendering import (
    CHART,
    PREPARED,
    REAL_CLUSTER,
    SITE,
    VALUES,
    Document,
    documents,
    one,
    pods,
    rendered,
    run_of,
    template,
)
from charts.test_cluster import JOBSET, TRAINJOB, quota, thing
from charts.test_notes import helm
from charts.test_policy import assert_restricted

FILES = PREPARED.files
PREPARE = "site.step=prepare"
JOB = "demo-prepare-"


def first_step(objects: list[Document]) -> Document:
    """Return the init container of the training that does the same."""
    (spec,) = [spec for where, _, spec in pods(objects) if where == "PyTorchJob Master"]
    container: Document = next(each for each in spec["initContainers"] if each["name"] == "fetch")
    return container


def job_of(objects: list[Document]) -> Document:
    """Return the Job, the only one, and nothing that trains or promotes."""
    assert not {"PyTorchJob", "TrainJob", "TrainingRuntime"} & {each["kind"] for each in objects}
    job = one(objects, "Job")
    assert "-prepare-" in job["metadata"]["name"]
    return job


def test_it_is_the_training_s_own_first_step_on_cpus_alone() -> None:
    objects = rendered(PREPARED)
    spec = job_of(objects)["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert_restricted("Job", spec | {"containers": [container | {"resources": without_cpu_limit(container)}]})
    assert container["resources"] == {
        "requests": {"cpu": "8", "memory": "32Gi"},
        "limits": {"cpu": "8", "memory": "32Gi"},
    }
    assert (
        "nvidia.com" not in json.dumps(spec) and "nodeSelector" not in spec and not spec["automountServiceAccountToken"]
    )
    trained = first_step(documents(template(FILES, "site.trainingApi=pytorchjob", release=PREPARED.phase)))
    assert container["command"] == trained["command"] and container["volumeMounts"] == trained["volumeMounts"]
    assert [each for each in trained["env"] if each not in container["env"]] == [
        {"name": "TRAINLAB_FETCH_ERROR", "value": "/tmp/fetch-error"}
    ], "which would keep an error for the launcher"
    assert {each["name"] for each in spec["volumes"]} == {"phase", "models", "tmp"}


def without_cpu_limit(container: Document) -> Document:
    """Return the resources of a container without the limit that tells how many processes pay."""
    asked, limit = container["resources"]["requests"], container["resources"]["limits"]
    return {"requests": asked, "limits": {key: value for key, value in limit.items() if key != "cpu"}}


def test_the_run_is_the_same_and_so_is_what_is_served() -> None:
    """Of the training's objects only the job and its promotion are not there yet."""
    before, after = (
        rendered(PREPARED),
        documents(template(FILES, "site.trainingApi=pytorchjob", release=PREPARED.phase)),
    )
    assert run_of(before) == run_of(after)
    names = [{(each["kind"], each["metadata"]["name"]) for each in objects} for objects in (before, after)]
    job = ("Job", job_of(before)["metadata"]["name"])
    assert names[0] - names[1] == {job} and {kind for kind, _ in names[1] - names[0]} == {
        "PyTorchJob",
        "Job",
        "ConfigMap",
    }
    phases = [
        [each["data"] for each in objects if each["metadata"]["name"] == run_of(before)] for objects in (before, after)
    ]
    assert phases[0] == phases[1]


@pytest.mark.parametrize(
    ("sets", "selector", "tolerated"),
    [
        (("site.nodeSelector.nvidia\\.com/gpu\\.product=H100",), None, False),
        (("site.nodeSelector.pool=gpu", "site.prepare.nodeSelector.pool=cpu"), {"pool": "cpu"}, True),
        (("site.nodeSelector.pool=gpu", "site.storage.models.accessMode=ReadWriteOnce"), {"pool": "gpu"}, True),
    ],
    ids=["shared", "own", "one-node"],
)
def test_it_runs_where_the_training_does_only_if_a_volume_is_bound_to_a_node(
    sets: tuple[str, ...], selector: dict[str, str] | None, tolerated: bool
) -> None:
    spec = job_of(documents(template(FILES, PREPARE, *sets)))["spec"]["template"]["spec"]
    assert spec.get("nodeSelector") == selector and ("tolerations" in spec) is tolerated


def test_what_is_lost_is_made_again_and_an_error_of_its_own_is_the_end() -> None:
    job = job_of(documents(template(FILES, PREPARE, "site.queue=team", "site.podLabels.team=a")))
    spec = job["spec"]
    assert (spec["backoffLimit"], "ttlSecondsAfterFinished" in spec) == (4, False)
    assert spec["podFailurePolicy"]["rules"][-1] == {
        "action": "FailJob",
        "onExitCodes": {"containerName": "prepare", "operator": "In", "values": [1, 2]},
    }
    assert job["metadata"]["annotations"] == {"trainlab.dev/restarts": "4"}
    for labels in (job["metadata"]["labels"], spec["template"]["metadata"]["labels"]):
        assert labels["kueue.x-k8s.io/queue-name"] == "team"


def test_another_size_is_another_job_of_the_same_run() -> None:
    """The template of a Job cannot change."""
    first, second = (documents(template(FILES, PREPARE, *sets)) for sets in ((), ("site.prepare.memory=64Gi",)))
    assert job_of(first)["metadata"]["name"] != job_of(second)["metadata"]["name"] and run_of(first) == run_of(second)


def test_a_phase_without_such_a_text_is_refused() -> None:
    done = template((str(VALUES / "survival.yaml"),), PREPARE)
    assert "site.step: prepare without phase.text.prepare" in done.stderr


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Lookups]:
    """A cluster in which a revision has prepared, or tries to."""
    made = Lookups(tmp_path)
    job = job_of(documents(template(FILES, PREPARE)))["metadata"]["name"]
    held = {"run": "demo-1", "job": job, "api": "pytorchjob", "trained.json": "{}"}
    made.objects = [thing("ConfigMap", "demo", data=held), thing("Job", job)]
    yield made
    made.close()


def trains(cluster: Lookups, **status: Any) -> str:
    """Return why an upgrade to the training is refused with a Job of this status, nothing if it is not."""
    cluster.objects[1]["status"] = status
    return cluster.template(FILES, "site.serviceAccount=own", upgrade=True).stderr


def condition(kind: str, **more: str) -> dict[str, Any]:
    return {"conditions": [{"type": "Suspended", "status": "False"}, {"type": kind, "status": "True", **more}]}


def test_an_upgrade_to_the_training_waits_for_the_end_of_the_job(cluster: Lookups) -> None:
    name = cluster.objects[1]["metadata"]["name"]
    for status in (
        {},
        {"active": 1},
        {"conditions": [{"type": "Complete", "status": "False"}]},
        condition("FailureTarget"),
    ):
        said = trains(cluster, **status)
        assert f"site.step: train, but Job {name} of this release has not ended, and would be removed" in said
        assert f"kubectl -n lab logs -f job/{name}" in said
    said = trains(cluster, **condition("Failed", message="exit code 2"))
    assert f"Job {name} of this release failed (exit code 2); `kubectl -n lab logs job/{name}` says why" in said
    assert trains(cluster, **condition("Complete")) == ""
    assert cluster.template(FILES, PREPARE, "site.serviceAccount=own", upgrade=True).returncode == 0, "it may go on"
    del cluster.objects[1]
    assert cluster.template(FILES, "site.serviceAccount=own", upgrade=True).returncode == 0, "its pods do it themselves"


@pytest.mark.parametrize(
    ("api", "kind", "end"), [("pytorchjob", "PyTorchJob", "Succeeded"), ("trainjob", "TrainJob", "Complete")]
)
def test_a_training_is_not_removed_to_prepare(cluster: Lookups, api: str, kind: str, end: str) -> None:
    cluster.objects = [
        thing("ConfigMap", "demo", data={"run": "demo-1", "job": "demo-1-abc", "api": api, "trained.json": "{}"}),
        thing(kind, "demo-1-abc"),
    ]

    def upgraded() -> subprocess.CompletedProcess[str]:
        served = (*REAL_CLUSTER, TRAINJOB, JOBSET)
        return cluster.template(FILES, PREPARE, "site.serviceAccount=own", served=served, upgrade=True)

    for status in ({}, condition("Running"), {"conditions": [{"type": end, "status": "False"}]}):
        cluster.objects[1]["status"] = status
        said = upgraded().stderr
        assert f"site.step: prepare, but {kind} demo-1-abc of this release has not ended, and would be removed" in said
    for kind_of_end in (end, "Failed"):
        cluster.objects[1]["status"] = condition(kind_of_end)
        assert upgraded().returncode == 0


def test_quotas_are_asked_for_what_the_job_takes(cluster: Lookups) -> None:
    cluster.objects = [quota({"requests.cpu": "4", "requests.nvidia.com/gpu": "0"})]
    said = cluster.template(FILES, PREPARE, "site.serviceAccount=own").stderr
    assert (
        "the job requests 1 times 8; pods of the job could not be created; raise it, free what is in use, or lower site.prepare.cpu"
        in said
    )
    assert "nvidia.com/gpu" not in said and "phase." not in said


@pytest.mark.parametrize("name", ["helm4"])
def test_the_notes_say_what_comes_next(name: str) -> None:
    files = [word for file in FILES for word in ("-f", file)]
    words = ["install", "demo", str(CHART), *files, "-f", str(SITE), "--set", PREPARE, "--dry-run=client", "-o", "json"]
    notes = json.loads(helm(name, os.devnull, *words))["info"]["notes"]
    assert "This revision trains nothing (site.step is prepare). Its Job demo-prepare-" in notes
    assert "\n  helm upgrade demo CHART -n lab --reuse-values --set site.step=train   # CHART as" in notes
    assert "helm test" not in notes and "PyTorchJob" not in notes
