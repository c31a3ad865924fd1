"""Attendees on the demo's cluster, each with nothing but their kubeconfig and the printed line: six at once, and what two see of each other."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from e2e import machine, places, policies
from e2e.commands import NAMESPACE, kubectl, objects, playbook, serving, sh, trainer_image

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(5400)]
PEOPLE, AT_ONCE = 6, 2
QUEUE = {"platform_queue": "pool", "platform_queue_quota": {"cpu": "2", "memory": "13Gi"}}
"""Room for two jobs of the phase of seconds, 6Gi each."""
SERVER, ENFORCED_SECONDS = "quick-predictor", 60.0
CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=3)"


@pytest.mark.tier
def test_six_attendees_train_in_turn_and_are_answered(demo: str, tmp_path: Path) -> None:
    """A quota for two jobs: the others wait in the order in which they came, and all are answered."""
    sh("cluster/python", "cluster", "operators", "kueue")
    playbook("platform", "-e", json.dumps(QUEUE))
    with places.handed_out(tmp_path, PEOPLE, "-e", f"attendees_cluster_queue={QUEUE['platform_queue']}") as line:
        people = [places.Attendee(f"user{number + 1}", tmp_path) for number in range(PEOPLE)]
        watched = places.together(people, line, patience=3600)
    table = {person.name: person.seconds for person in people}
    (machine.ARTIFACTS / "places.json").write_text(json.dumps(table, indent=1), encoding="utf-8")
    assert [name for name, seconds in table.items() if "answered" not in seconds] == []
    assert watched.most == AT_ONCE and len(watched.admitted) == PEOPLE and watched.out_of_order() == []
    playbook("platform_teardown")


@pytest.mark.tier
def test_one_with_many_jobs_keeps_nobody_waiting(demo: str, tmp_path: Path) -> None:
    """Two jobs fill the pool; of those that wait, the one of somebody who has none goes first, though it came last."""
    sh("cluster/python", "cluster", "operators", "kueue")
    room = {"platform_queue": "pool", "platform_queue_quota": {"cpu": "2", "memory": "2Gi"}}
    playbook("platform", "-e", json.dumps(room))
    with places.handed_out(tmp_path, 2, "-e", "attendees_cluster_queue=pool"):
        ada, grace = (places.Attendee(f"user{number}", tmp_path) for number in (1, 2))
        order = ((ada, "short", 20), (ada, "long", 60), (ada, "third", 1), (grace, "first", 1))
        for one, name, seconds in order:
            applied(one, sleeping(name, seconds), ok=True)
            time.sleep(1.1)  # Kubernetes notes seconds
        for one in (ada, grace):
            kubectl("-n", one.space, "wait", "jobs", "--all", "--for=condition=Complete", "--timeout=300s")
        began = {f"{one.name} {name}": started(one, name) for one, name, _ in order}
    assert began["user2 first"] < began["user1 third"], began
    playbook("platform_teardown")


def sleeping(name: str, seconds: int) -> dict[str, Any]:
    """A queued job for half of the pool that does nothing for so long."""
    container = {
        "name": "it",
        "image": trainer_image(),
        "command": ["sleep", str(seconds)],
        "resources": {"requests": {"cpu": "10m", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    safe = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    pod = {"restartPolicy": "Never", "securityContext": safe, "containers": [container]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": "trainlab"}},
        "spec": {"suspend": True, "template": {"spec": pod}},
    }


def started(one: places.Attendee, name: str) -> str:
    """When the queue let a job go."""
    (job,) = objects("jobs", one.space, "--field-selector", f"metadata.name={name}")
    return str(job["status"]["startTime"])


@pytest.mark.tier
def test_one_attendee_reaches_nothing_of_another(demo: str, tmp_path: Path) -> None:
    """Neither pods nor Services, nor the presenter's; what is their own and the API server's proxy are not in the way of that.

    The first one follows the attendee's sheet word for word, the second one what was printed.
    """
    with places.handed_out(tmp_path, 2) as line:
        ada, grace = (places.Attendee(f"user{number}", tmp_path, queued=False) for number in (1, 2))
        with ThreadPoolExecutor() as pool:
            began = time.monotonic()
            lines = (places.of_sheet(), line)
            list(pool.map(lambda one, said: one.train(said, began, patience=1200), (ada, grace), lines))
        own, foreign = (SERVER, 80), addresses(grace.space) + addresses(NAMESPACE)
        assert all(reached(ada, *each) for each in [own, *foreign]), "nothing enforces the policies yet"
        with policies.enforced(machine.ARTIFACTS / "kube-router.log"):
            limit = time.monotonic() + ENFORCED_SECONDS
            while still := [each for each in foreign if reached(ada, *each)]:
                assert time.monotonic() < limit, still
            assert reached(ada, *own)
            for one in (ada, grace):
                models = f"/api/v1/namespaces/{one.space}/services/{SERVER}:80/proxy/v1/models"
                assert "tuned" in kubectl("get", "--raw", models)
        volumes(ada, grace)


def addresses(space: str) -> list[tuple[str, int]]:
    """How the model of a namespace could be reached: its pod, its Service by name and by address."""
    (model, *_) = objects("inferenceservices", space)
    server = f"{model['metadata']['name']}-predictor"
    (pod,) = objects("pods", space, "-l", serving(model["metadata"]["name"]))
    (service,) = objects("services", space, "--field-selector", f"metadata.name={server}")
    return [(pod["status"]["podIP"], 8080), (f"{server}.{space}", 80), (service["spec"]["clusterIP"], 80)]


def reached(one: places.Attendee, host: str, port: int) -> bool:
    """True if a pod of theirs can connect."""
    probe = ("exec", f"deployment/{SERVER}", "--", "/opt/trainlab/venv/bin/python", "-c", CONNECT, host, str(port))
    said = kubectl("-n", one.space, *probe, ok=None)
    assert not said or "timed out" in said or "refused" in said, said
    return not said


def volumes(one: places.Attendee, other: places.Attendee) -> None:
    """Neither the other's volume by its name, nor the node's folder in which it is."""
    (claim, *_) = objects("persistentvolumeclaims", other.space)
    wanted = {key: claim["spec"][key] for key in ("accessModes", "resources", "storageClassName", "volumeName")}
    theirs: dict[str, Any] = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "theirs"}}
    applied(one, theirs | {"spec": wanted}, ok=True)
    (bound,) = objects("persistentvolumeclaims", one.space, "--field-selector", "metadata.name=theirs")
    assert bound["status"]["phase"] == "Pending"
    events: list[str] = []
    limit = time.monotonic() + ENFORCED_SECONDS
    while not any("already bound to a different claim" in said for said in events):
        assert time.monotonic() < limit, events
        events = [
            each["message"] for each in objects("events", one.space, "--field-selector", "involvedObject.name=theirs")
        ]
    folder = {
        "containers": [{"name": "it", "image": "it"}],
        "volumes": [{"name": "it", "hostPath": {"path": "/share"}}],
    }
    pod: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "folder"}}
    assert "restricted volume types" in applied(one, pod | {"spec": folder}, ok=False)


def applied(one: places.Attendee, document: dict[str, Any], ok: bool) -> str:
    """Apply it as they would; return what was said."""
    return sh("kubectl", "create", "-f", "-", given=json.dumps(document), env=one.environment, ok=ok)
