"""A release that prepares its text and then trains, on a real API server: by Helm as a user of one namespace, and by the playbook."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import requests
from api_server import printed, training_api
from api_server.attendee import build
from api_server.client import Client, Json, condition
from api_server.harness import Cluster
from api_server.releases import Releases, done, editor, refused
from api_server.server import Server
from charts.rendering import CHART, HELMS, IMAGE, PREPARED, SITE
from waiting import until

pytestmark = pytest.mark.usefixtures("training")
TIME = "2026-01-01T00:00:00Z"
BATCH = "batch/v1"


def ended(client: Client, job: Json, how: str) -> None:
    """Say of a Job what its controller would; none runs here."""
    before = {"Complete": "SuccessCriteriaMet", "Failed": "FailureTarget"}[how]
    conditions = [condition(each, True) | {"lastTransitionTime": TIME} for each in (before, how)]
    more: Json = {"completionTime": TIME, "succeeded": 1} if how == "Complete" else {}
    client.status(job, {"startTime": TIME, "conditions": conditions, **more})


@pytest.mark.parametrize("program", HELMS)
def test_two_revisions_of_who_may_only_edit_the_namespace(server: Server, program: str) -> None:
    """No right is needed that a training does not need; each refusal and the notes name the line that comes next."""
    helm = Releases(server, program, "prepares")
    for thing in (given := editor(helm.namespace)):
        helm.client.apply(thing)
    files = [word for file in (SITE, *PREPARED.files) for word in ("-f", str(file))]
    words = ["upgrade", "--install", "staged", str(CHART), *files, "--set", "site.serviceAccount=prepared"]

    def upgrade(*more: str) -> Any:
        return helm.run(*words, *more, nobody=True)

    def job() -> Json:
        return helm.one("Job", BATCH)

    prepare = ("--set", "site.step=prepare")
    notes = done(upgrade(*prepare))
    first = job()
    name, run = first["metadata"]["name"], first["metadata"]["labels"]["trainlab.dev/run"]
    assert f"This revision trains nothing (site.step is prepare). Its Job {name} makes the text ready" in notes
    assert helm.names("PyTorchJob", training_api.KUBEFLOW) == helm.names("TrainJob", training_api.TRAINER) == []
    assert f"Job {name} of this release has not ended" in refused(upgrade())

    ended(helm.client, first, "Failed")
    (remedy,) = re.findall(r"remove it with `(.+?)`", refused(upgrade()))
    printed.run(remedy, server.folder, server.kubeconfig, program)
    done(upgrade(*prepare))
    assert job()["metadata"]["uid"] != first["metadata"]["uid"]
    assert job()["metadata"]["name"] == name, "the same spec goes on where it was"

    ended(helm.client, job(), "Complete")
    (waits,) = re.findall(r"^  (kubectl .* wait .*)$", notes, re.MULTILINE)
    printed.run(waits, server.folder, server.kubeconfig, program)
    told = done(upgrade("--dry-run=server"))
    assert f"This revision trains run {run}, from its last checkpoint if the volume staged-runs has one" in told
    (line,) = re.findall(r"^  (helm upgrade .*--set site.step=train)", notes, re.MULTILINE)
    printed.run(line.replace(" CHART ", f" {CHART} "), server.folder, server.kubeconfig, program)
    trained = [
        each["metadata"]["labels"]
        for api, kind, *_ in training_api.JOBS
        for each in helm.client.items(api, kind, helm.namespace)
    ]
    assert [labels["trainlab.dev/run"] for labels in trained] == [run]
    assert "-promote-" in job()["metadata"]["name"], "the Job that prepared is gone"
    assert f"trains nothing new: the same run, {run}, and its pods as they are" in done(upgrade())
    done(helm.run("uninstall", "staged"))
    for thing in given:
        helm.client.delete(thing)


@contextlib.contextmanager
def job_controller(cluster: Cluster, how: str) -> Iterator[list[str]]:
    """Act as the Job controller of the Jobs that prepare; yields their names, each once."""
    seen: dict[str, str] = {}
    over = threading.Event()

    def act() -> None:
        while not over.wait(training_api.POLL_SECONDS):
            with contextlib.suppress(requests.HTTPError):
                for job in cluster.client.items(BATCH, "Job"):
                    if "-prepare-" in job["metadata"]["name"] and not job.get("status", {}).get("conditions"):
                        ended(cluster.client, job, how)
                        seen[job["metadata"]["uid"]] = job["metadata"]["name"]

    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    names: list[str] = []
    yield names
    over.set()
    thread.join()
    names += seen.values()


def test_the_playbook_prepares_before_it_trains_and_only_then(cluster: Cluster) -> None:
    """A Job that failed is repeated by another run; a release that has begun to train prepares nothing more."""
    bare = cluster.objects()
    here: dict[str, Any] = {
        "trainlab_namespace": "trainlab-demo",
        "trainlab_release": "staged",
        "trainlab_values": ["values/staged-pretrain.yaml"],
        "trainlab_helm": str(build.binary("helm")),
        "trainlab_site": {"images": {"trainer": IMAGE}},
    }
    assert cluster.playbook("workspace", **here).code == 0
    with job_controller(cluster, "Failed") as failed:
        error = cluster.playbook("train", **here).error
    assert "preparing the text of staged-" in error and len(failed) == 1
    with job_controller(cluster, "Complete") as made, training_api.trainer(cluster.server.kubeconfig):
        trained = cluster.playbook("train", **here)
        assert trained.code == 0 and trained.changed, trained.text
        again = cluster.playbook("train", **here)
        assert (again.code, again.changed) == (0, 0), again.text
    assert made == failed, "made again, once"
    left = [each["metadata"]["name"] for each in cluster.client.items(BATCH, "Job", "trainlab-demo")]
    assert len(left) == 1 and "-promote-" in left[0]
    with training_api.trainer(cluster.server.kubeconfig):
        undone = cluster.playbook("teardown", teardown_volumes=True, **here)
        assert undone.code == 0, undone.text
        until(lambda: cluster.objects() <= bare)
