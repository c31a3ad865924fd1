"""Jobs and servers in one queue, on a fake node with one GPU: Kueue lets in one after the other."""

import itertools
import json
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import yaml
from charts.rendering import served
from embedded_cluster.nodes import operators, render
from waiting import until

from charts import upstream
from e2e import machine
from e2e.commands import helm, helm_install, kubectl, objects, sh

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3600)]
VALUES = ("-f", "values/survival.yaml", "-f", "values/local/survival.yaml", "-f", str(machine.ARTIFACTS / "site.yaml"))
"""The last one site.yml wrote."""
TINY = (
    *("--set", "phase.data.train_rows=24,phase.data.heldout_rows=4,phase.train.epochs=1,phase.train.checkpoints=1"),
    *("--set", "phase.evaluate.generate_rows=2,phase.evaluate.max_new_tokens=8", "--set-json", "phase.questions=[]"),
    *("--set", "phase.resources.nodes=1,phase.resources.gpus_per_node=1,phase.resources.processes_per_node=1"),
    *("--set", "site.queue=gpus,site.nodeSelector.type=kwok"),
)
SMALL = (
    *("--set", "phase.data.train_rows=24,phase.data.heldout_rows=4,phase.train.epochs=4,phase.train.checkpoints=2"),
    *("--set", "phase.evaluate.generate_rows=2,phase.evaluate.max_new_tokens=8", "--set-json", "phase.questions=[]"),
    *("--set", "phase.resources.nodes=1,phase.resources.processes_per_node=1,phase.resources.cpu=500m"),
)
PREPARES = (
    *("-f", "values/staged-pretrain.yaml"),
    *("-f", str(machine.ARTIFACTS / "site.yaml"), "--set", "site.step=prepare,site.queue=gpus,site.preflight=false"),
    *("--set-string", "site.prepare.cpu=20"),
    *("--set", "site.prepare.nodeSelector.type=kwok,site.nodeSelector.type=kwok"),
)
SERVER = ("--set", "phase.serve.runtime=vllm,phase.serve.gpus=1")
NO_QUOTA = "insufficient unused quota for nvidia.com/gpu"
NO_CPUS = "insufficient unused quota for cpu"


@pytest.fixture
def queued(demo: str) -> Iterator[None]:
    """The node, its queue and the namespace of queue.yaml."""
    sh("cluster/python", "cluster", "operators", "--kwok")
    kubectl("apply", "-f", "tests/e2e/queue.yaml")
    yield
    kubectl("delete", "-f", "tests/e2e/queue.yaml")


@pytest.fixture
def preempting(demo: str) -> Iterator[None]:
    """A queue of two cores in which a job of a higher priority sends others away, and its namespace."""
    sh("cluster/python", "cluster", "operators", "jobset", "trainer", "kueue")
    kubectl("apply", "-f", "tests/e2e/preempting.yaml")
    yield
    kubectl("delete", "-f", "tests/e2e/preempting.yaml")


def urgent(number: int) -> dict[str, Any]:
    """A Job of the higher priority that takes the whole queue."""
    container = {
        "name": "wait",
        "image": image(),
        "command": ["sleep", "600"],
        "resources": {"requests": {"cpu": "900m"}},
    }
    pod = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"urgent-{number}",
            "labels": {"kueue.x-k8s.io/queue-name": "small", "kueue.x-k8s.io/priority-class": "urgent"},
        },
        "spec": {"suspend": True, "template": {"spec": pod}},
    }


def image() -> str:
    """The trainer image of the site, which is on the nodes."""
    site = yaml.safe_load((machine.ARTIFACTS / "site.yaml").read_text(encoding="utf-8"))["site"]
    return str(site["images"]["trainer"])


def pods_of(release: str) -> list[dict[str, Any]]:
    """The training pods of the release, those that are ending included."""
    return objects("pods", "preempting", "-l", f"app.kubernetes.io/instance={release}")


def trains(release: str) -> bool:
    """Whether the first pod of the release has taken a step since it started."""
    chosen = ("-l", f"app.kubernetes.io/instance={release}")
    said = kubectl("-n", "preempting", "logs", *chosen, "--tail=-1", "--prefix", ok=None)  # a pod may not have begun
    return "training from step" in said


def ended(kind: str, release: str) -> bool:
    """Whether the Workload of the release has finished."""
    return condition(kind, release, "Finished", "preempting") == "True"


def run_of(release: str) -> tuple[list[dict[str, Any]], str]:
    """The starts of the release's run, and the digest of what it trained."""
    folder = "/runs/$(ls /runs | head -1)"
    script = f"cat {folder}/attempts.json; echo; cat {folder}/lora_adapter/*.safetensors 2>/dev/null | sha256sum"
    volume = {"name": "runs", "persistentVolumeClaim": {"claimName": f"{release}-runs"}}
    container = {"name": "read", "image": image(), "command": ["sh", "-c", script]}
    container["volumeMounts"] = [{"name": "runs", "mountPath": "/runs"}]
    pod = {"restartPolicy": "Never", "containers": [container], "volumes": [volume]}
    reader = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"read-{release}"}, "spec": pod}
    given("apply", [reader], "-n", "preempting")
    kubectl(
        "-n", "preempting", "wait", "--for=jsonpath={.status.phase}=Succeeded", f"pod/read-{release}", "--timeout=120s"
    )
    attempts, digest = kubectl("-n", "preempting", "logs", f"read-{release}").rsplit("\n", 2)[:2]
    return json.loads(attempts)["starts"], digest


def install(release: str, api: str = "pytorchjob") -> None:
    """A job for the GPU, without a server."""
    site = ("--set", f"site.serving=false,site.trainingApi={api}")
    helm_install(f"helm install {release} charts/trainjob -n queued {shlex.join([*VALUES, *TINY, *site])}")


@pytest.mark.rest
@pytest.mark.parametrize(("api", "kind"), [("pytorchjob", "PyTorchJob"), ("trainjob", "TrainJob")])
def test_queue_admits_one_gpu_job_after_the_other(queued: None, api: str, kind: str) -> None:
    """The second job waits over quota and starts when the first is gone."""
    for release in ("first", "second"):
        install(release, api)
        waits_for(lambda release=release: bool(workload(kind, release)))  # type: ignore[misc]
    waits_for(lambda: condition(kind, "first", "Admitted") == "True")
    waits_for(lambda: condition(kind, "second", "QuotaReserved") == "False")
    assert NO_QUOTA in json.dumps(workload(kind, "second"))
    assert condition(kind, "second", "Admitted") != "True"
    helm("-n", "queued", "uninstall", "first")
    waits_for(lambda: condition(kind, "second", "Admitted") == "True")
    helm("-n", "queued", "uninstall", "second")


@pytest.mark.tier
@pytest.mark.parametrize(("api", "kind"), [("pytorchjob", "PyTorchJob"), ("trainjob", "TrainJob")])
def test_five_preemptions_cost_no_restart_and_end_in_the_same_bytes(preempting: None, api: str, kind: str) -> None:
    """A real job on the CPU, which jobs of a higher priority send away; the bytes are those of a run that nothing sent away."""
    for release in ("low", "calm"):
        site = (
            "--set",
            f"site.serving=false,site.trainingApi={api},site.queue=small",
            "--set",
            "phase.resources.restarts=1",
        )
        helm_install(f"helm install {release} charts/trainjob -n preempting {shlex.join([*VALUES, *SMALL, *site])}")
        rounds = 5 if release == "low" else 0
        for number in range(1, rounds + 1):
            waits_for(lambda: trains(release), "preempting")  # noqa: B023
            given("apply", [urgent(number)], "-n", "preempting")
            waits_for(lambda: condition(kind, "low", "Evicted", "preempting") == "True", "preempting")
            waits_for(lambda: not pods_of("low"), "preempting")  # or the next round would read what this one printed
            given("delete", [urgent(number)], "-n", "preempting")
        waits_for(lambda: ended(kind, release), "preempting", 900)  # noqa: B023
    starts, digest = run_of("low")
    assert len(starts) == 6 and [start["restart"] for start in starts] == [0] * 6
    assert all(after["resumed"] == before["reached"] for before, after in itertools.pairwise(starts))
    assert digest == run_of("calm")[1]


@pytest.mark.tier
def test_jobset_counts_no_pod_that_sigterm_ends_and_the_deadline_bounds_them(preempting: None) -> None:
    """A TrainJob's pod is deleted twice, as a drained node does it, with one restart allowed; it would train for longer than it may."""
    long = "phase.train.epochs=100,phase.resources.restarts=1,phase.resources.timeout_minutes=4"
    site = ("--set", f"site.serving=false,site.trainingApi=trainjob,site.queue=small,{long}")
    helm_install(f"helm install told charts/trainjob -n preempting {shlex.join([*VALUES, *SMALL, *site])}")
    for _round in range(2):
        waits_for(lambda: trains("told"), "preempting")
        gone = pods_of("told")[0]["metadata"]["name"]
        kubectl("-n", "preempting", "delete", "pod", gone)
    waits_for(lambda: trains("told"), "preempting")
    waits_for(lambda: bool(failed("told")), "preempting", 600)
    (jobset,) = objects("jobsets.jobset.x-k8s.io", "preempting")
    assert jobset["status"].get("restarts", 0) == 0, jobset["status"]
    assert "FailJobSet" in failed("told"), jobset["status"]
    (job,) = (one for one in objects("jobs", "preempting") if one["metadata"]["name"].startswith("told-"))
    assert "DeadlineExceeded" in json.dumps(job["status"]), job["status"]
    starts, _digest = run_of("told")
    assert [start["restart"] for start in starts] == [0, 0, 0] and {start["ended"] for start in starts} == {143}, starts
    assert all(after["resumed"] == before["reached"] for before, after in itertools.pairwise(starts))


def failed(release: str) -> str:
    """The message of the release's TrainJob that has failed; empty before."""
    (job,) = objects("trainjobs", "preempting", "-l", f"app.kubernetes.io/instance={release}")
    conditions = job.get("status", {}).get("conditions", [])
    return next((one["message"] for one in conditions if one["type"] == "Failed" and one["status"] == "True"), "")


@pytest.mark.tier
@pytest.mark.parametrize("kind", ["Job", "Pod"])
def test_a_job_that_prepares_counts_in_the_queue(queued: None, kind: str) -> None:
    """By its Job where Kueue has Jobs among its frameworks, else by its pod, as with those that OpenShift AI asks of Kueue."""
    with frameworks(("pod",), without="batch/job") if kind == "Pod" else nullcontext():
        for release in ("first", "second"):
            helm_install(f"helm install {release} charts/trainjob -n queued {shlex.join(PREPARES)}")
            waits_for(lambda release=release: bool(workload(kind, release)))  # type: ignore[misc]
        waits_for(lambda: condition(kind, "first", "Admitted") == "True")
        waits_for(lambda: NO_CPUS in json.dumps(workload(kind, "second")))
        owners = [
            each["metadata"]["ownerReferences"][0]["kind"] for each in objects("workloads.kueue.x-k8s.io", "queued")
        ]
        assert owners == [kind, kind], "a pod that counts beside its Job would count twice"
        helm("-n", "queued", "uninstall", "first")
        waits_for(lambda: condition(kind, "second", "Admitted") == "True")
        helm("-n", "queued", "uninstall", "second")
        waits_for(lambda: not objects("pods", "queued"))


@pytest.mark.tier
def test_a_server_counts_in_the_queue(queued: None) -> None:
    """With the frameworks that OpenShift AI asks of Kueue: a job waits while a server has the GPU, a server while a job has it."""
    with frameworks(("pod", "deployment")):
        serve("apply")
        waits_for(lambda: condition("Pod", "asked", "Admitted") == "True")
        install("train")
        waits_for(lambda: NO_QUOTA in json.dumps(workload("PyTorchJob", "train")))
        serve("delete")
        waits_for(lambda: condition("PyTorchJob", "train", "Admitted") == "True")
        serve("apply")
        waits_for(lambda: NO_QUOTA in json.dumps(workload("Pod", "asked")))
        helm("-n", "queued", "uninstall", "train")
        waits_for(lambda: condition("Pod", "asked", "Admitted") == "True")
        serve("delete")


def serve(verb: str) -> None:
    """Let kubectl apply or delete what the promotion of a run would make."""
    lines = helm("template", "asked", "charts/trainjob", "-n", "queued", *VALUES, *TINY, *SERVER)
    given(verb, [one for one in served(list(yaml.safe_load_all(lines))) if one["kind"] != "ConfigMap"], "-n", "queued")


def given(verb: str, things: list[dict[str, Any]], *where: str) -> None:
    """Give kubectl documents on its standard input; `where` names the namespace of those that name none."""
    options = ("--force-conflicts", "--server-side") if verb == "apply" else ("--ignore-not-found",)
    kubectl(*where, verb, *options, "-f", "-", given=yaml.safe_dump_all(things))


@contextmanager
def frameworks(more: tuple[str, ...], without: str = "") -> Iterator[None]:
    """Kueue with these integrations of pods and what makes them, and their webhooks for this namespace alone, and without another.

    The embedded cluster has them off: with upstream's webhooks no pod could be made anywhere while Kueue's is down.
    """
    manifests = yaml.load_all(render.render(operators.OPERATORS["kueue"]), yaml.CSafeLoader)
    (config,) = (manifest for manifest in manifests if manifest["metadata"]["name"] == "kueue-manager-config")
    (key,) = config["data"]
    settings = yaml.safe_load(config["data"][key])
    named = settings["integrations"]["frameworks"]
    settings["integrations"]["frameworks"] = [name for name in named if name != without] + list(more)
    extra = [webhooks("Mutating", more), webhooks("Validating", more)]
    try:
        restarted(config | {"data": {key: yaml.safe_dump(settings)}})
        given("apply", extra)
        yield
    finally:
        given("delete", extra)
        restarted(config)


def restarted(config: dict[str, Any]) -> None:
    """Kueue reads its settings when it starts."""
    given("apply", [config])
    for words in (("restart",), ("status", "--timeout=180s")):
        kubectl("-n", "kueue-system", "rollout", *words, "deployment/kueue-controller-manager")


def webhooks(sort: str, integrations: tuple[str, ...]) -> dict[str, Any]:
    """Upstream's for these integrations, called as the others of this cluster are."""
    kind = f"{sort}WebhookConfiguration"
    upstream_ones = yaml.safe_load_all(upstream.from_module("kueue", "config/components/webhook/manifests.yaml"))
    (result,) = (one for one in upstream_ones if one["kind"] == kind)
    (installed,) = (
        one for one in objects(kind.lower()) if one["metadata"]["name"] == f"kueue-{sort.lower()}-webhook-configuration"
    )
    client = installed["webhooks"][0]["clientConfig"]
    chosen = [one for one in result["webhooks"] if one["name"][1:-6] in integrations]
    for one in chosen:
        path = one["clientConfig"]["service"]["path"]
        one["clientConfig"] = client | {"service": client["service"] | {"path": path}}
        one["namespaceSelector"] = {"matchLabels": {"kubernetes.io/metadata.name": "queued"}}
    return result | {"metadata": {"name": "trainlab-servers-counted"}, "webhooks": chosen}


def workload(kind: str, release: str, namespace: str = "queued") -> dict[str, Any]:
    """Kueue's Workload of the release's job; empty while there is none."""
    for one in objects("workloads.kueue.x-k8s.io", namespace):
        owner = one["metadata"]["ownerReferences"][0]
        if owner["kind"] == kind and owner["name"].startswith(f"{release}-"):
            return one
    return {}


def condition(kind: str, release: str, name: str, namespace: str = "queued") -> str:
    """The status of a condition of that Workload."""
    found = workload(kind, release, namespace).get("status", {}).get("conditions", [])
    return next((one["status"] for one in found if one["type"] == name), "")


def waits_for(is_true: Callable[[], bool], namespace: str = "queued", seconds: float = 180) -> None:
    until(is_true, seconds, lambda: kubectl("-n", namespace, "get", "workloads,pods,events", "-o", "wide"), 1)
