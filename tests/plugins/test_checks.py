"""Each check of the role verify: once failing, once passing, on objects served over HTTP."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.trainlab.rhoai.plugins.plugin_utils.checks import AFTER, BEFORE, run_all
from ansible_collections.trainlab.rhoai.plugins.plugin_utils.checks.storage import BLOCK_ONLY

from plugins.checking import (
    HOOKS,
    ISVC,
    JOBS,
    NS,
    OPENSHIFT,
    REVIEW,
    SLICES,
    STORAGE,
    Case,
    all_but,
    both,
    break_,
    claim,
    node,
    want,
)


@pytest.fixture
def case(cluster: Any) -> Case:
    return Case(cluster)


def test_a_cluster_with_everything_has_no_finding(case: Case) -> None:
    assert {title: found.what for title, found in case.states().items() if found.state in ("error", "warning")} == {}


NO_CLAIMS = both(
    break_(f"{NS}/persistentvolumeclaims/survival-models", 404),
    break_(f"{NS}/persistentvolumeclaims/survival-runs", 404),
)
FULL_DISK = node("n1")
FULL_DISK["status"]["conditions"].append({"type": "DiskPressure", "status": "True", "message": "low"})
BUSY = {
    "metadata": {"namespace": "x"},
    "spec": {"nodeName": "n1", "containers": [{"resources": {"requests": {"cpu": "2"}}}]},
}
BUSY_TOO = {**BUSY, "spec": {**BUSY["spec"], "nodeName": "n2"}}
TAINTED = node("n1", **{"nvidia.com/gpu": "8"})
TAINTED["spec"] = {"taints": [{"key": "dedicated", "effect": "NoSchedule"}]}
EBS = {"metadata": {"name": "shared"}, "provisioner": "ebs.csi.aws.com"}
NOT_READY = {"status": {"conditions": [{"type": "Ready", "status": "False", "message": "pod is gone"}]}}
FAILED = {"metadata": {"name": "survival-1"}, "status": {"conditions": [{"type": "Failed", "status": "True"}]}}
GPU_PHASE = want(phase__resources__gpus_per_node=1)

SERVING_HOOK = {
    "name": "inferenceservice.kserve-webhook-server.validator",
    "clientConfig": {"service": {"namespace": "kserve", "name": "webhook"}},
    "rules": [{"resources": ["inferenceservices"]}],
}
PROJECTS = break_("/apis/project.openshift.io/v1", {"resources": [{"name": "projectrequests"}]})

FAULTS = [
    (
        "training webhook",
        break_(SLICES, {"items": [{"endpoints": [{"conditions": {"ready": False}}]}]}),
        "error",
        "no ready pod",
    ),
    (
        "serving webhook",
        break_(HOOKS, {"items": [{"webhooks": [SERVING_HOOK]}]}),
        "error",
        "webhook has no ready pod",
    ),
    ("queue", want(site__queue="team"), "error", "the cluster has no Kueue"),
    ("storage", both(NO_CLAIMS, break_(STORAGE, {"items": []})), "error", "no StorageClass shared"),
    (
        "storage",
        both(NO_CLAIMS, break_(STORAGE, {"items": [EBS]})),
        "error",
        "does not offer ReadWriteMany; the 4 pods of the job run on several nodes and share the volume; set",
    ),
    (
        "storage",
        both(NO_CLAIMS, break_(STORAGE, {"items": [EBS]}), want(phase__resources__nodes=1)),
        "error",
        "does not offer ReadWriteMany; which site.storage.models.accessMode asks for; set that to ReadWriteOnce, which keeps all pods "
        "of the release on one node, or site.storage.models.storageClass to a class of shared storage",
    ),
    ("storage", both(NO_CLAIMS, want(site__storage__runs__storageClass="")), "error", "no default StorageClass"),
    (
        "storage",
        want(site__storage__data__size="1Gi", site__storage__data__storageClass="fast"),
        "error",
        "site.storage.data.storageClass: there is no StorageClass fast",
    ),
    ("claims", want(site__storage__data__size="1Gi"), "error", "claim survival-data is missing"),
    ("nodes", break_("/api/v1/nodes", {"items": [FULL_DISK]}), "error", "too little disk"),
    ("nodes", want(site__nodeSelector={"a": "b"}), "error", "site.nodeSelector"),
    ("GPUs", GPU_PHASE, "error", "gpus_per_node is 1"),
    ("GPUs", both(GPU_PHASE, break_("/api/v1/nodes", {"items": [TAINTED]})), "error", "site.tolerations"),
    (
        "GPUs",
        both(GPU_PHASE, break_("/api/v1/nodes", {"items": [node("g", **{"nvidia.com/gpu": "2"})]})),
        "error",
        "have room for 2",
    ),
    ("room for training", want(phase__resources__memory="9Gi"), "error", "phase.resources.memory"),
    ("room for training", break_("/api/v1/pods", {"items": [BUSY, BUSY_TOO]}), "error", "there is room for 0"),
    ("room for serving", want(phase__serve__cpu="3"), "error", "phase.serve.cpu"),
    ("rights", break_(REVIEW, {"status": {"allowed": False}}), "error", "this user may not"),
    (
        "rights",
        both(break_(NS, 404), break_(REVIEW, {"status": {"allowed": False}})),
        "error",
        "may not create namespaces",
    ),
    ("rights", break_(REVIEW, all_but("pytorchjobs")), "error", "--resource=pytorchjobs.kubeflow.org`"),
    (
        "rights",
        both(break_(REVIEW, all_but("trainjobs")), want(site__trainingApi="trainjob")),
        "error",
        "--resource=trainjobs.trainer.kubeflow.org`",
    ),
    ("rights", break_(REVIEW, all_but("roles")), "error", "workspace_users"),
    ("rights", want(site__serviceAccount="prepared"), "error", "no such ServiceAccount"),
    (
        "rights",
        want(site__serviceAccount="prepared", phase__serve__hours=2),
        "error",
        "and delete inferenceservices, for phase.serve.hours",
    ),
    ("secrets", want(site__hfTokenSecret="hub"), "error", "no such Secret"),
    (
        "secrets",
        want(site__envSecrets=["trackers"]),
        "error",
        "site.envSecrets is trackers, but namespace demo has no such Secret",
    ),
    (
        "secrets",
        both(break_(f"{NS}/secrets/s3", {"data": {}}), want(site__envSecrets=["s3", "trackers"])),
        "error",
        "create secret generic trackers --from-literal=VARIABLE=VALUE",
    ),
    ("model", want(phase__model__source="pypi:other==1.0"), "error", "images/trainer/models.in"),
    ("image reference", want(site__images__pullPolicy="IfNotPresent"), "error", "push the image"),
    ("image reference", want(site__images__trainer=""), "error", "no registry offers the trainer image"),
    ("namespace", break_(NS, 404), "error", "does not exist"),
    ("namespace", break_(NS, {"metadata": {"labels": {}}}), "warning", "level none"),
    ("claims", break_(f"{NS}/persistentvolumeclaims/survival-runs", claim(phase="Pending")), "error", "is Pending"),
    ("image", want(site__images__trainer="localhost/t:2"), "warning", "no node reports"),
    ("run", break_(JOBS, {"items": [FAILED]}), "error", "run playbooks/train.yml again; it resumes"),
    ("run", break_(JOBS, {"items": []}), "error", "no training job"),
    ("served model", break_(f"{ISVC}/survival", 404), "warning", "no InferenceService"),
    ("served model", break_(f"{ISVC}/survival", NOT_READY), "error", "pod is gone"),
    ("served model", break_(f"{NS}/services/survival-predictor:80/proxy/v1/models", 503), "error", "does not answer"),
]


@pytest.mark.parametrize(("title", "fault", "state", "words"), FAULTS, ids=[f"{each[0]}-{each[3]}" for each in FAULTS])
def test_a_fault_is_found_with_its_remedy(
    case: Case, title: str, fault: Callable[[Case], None], state: str, words: str
) -> None:
    fault(case)
    found = case.states()[title]
    assert found.state == state, found
    assert words in found.sentence


def test_the_chart_knows_the_same_block_storage() -> None:
    text = (Path(__file__).parents[2] / "charts/trainjob/templates/_cluster.tpl").read_text(encoding="utf-8")
    (listed,) = re.findall(r'define "trainjob.blockOnly" -}}(.+?){{- end', text, re.DOTALL)
    assert set(listed.split()) == BLOCK_ONLY


def test_every_check_has_a_fault() -> None:
    untried = {"helm"}  # needs no cluster: test_helm_of_the_wrong_version
    assert {each[0] for each in FAULTS} | untried | OPENSHIFT == set(BEFORE) | set(AFTER)
    assert len({**BEFORE, **AFTER}) >= 25


HELM = "Error: UPGRADE FAILED: execution error at (trainjob/templates/checks.yaml:5:4): "
QUOTA = "ResourceQuota team: pods is 4, 0 in use, the release makes 5; pods could not be created; raise it, or free what is in use"


@pytest.mark.parametrize(
    ("refused", "rows"),
    [
        ("", [("ok", "the chart refuses nothing", "", "")]),
        (
            f"{HELM}site.serving: true, but no KServe; set it to false",
            [("error", "site.serving: true, but no KServe", "", "set it to false")],
        ),
        (
            f"{HELM}\n- {QUOTA}\n- phase.x: missing",
            [
                ("error", *QUOTA.rsplit("; ", 2)),
                ("error", "phase.x: missing", "", ""),
            ],
        ),
        (
            'Error: secrets is forbidden: User "ada" cannot list resource',
            [
                (
                    "skipped",
                    'not checked, this user may not: Error: secrets is forbidden: User "ada" cannot list resource',
                    "",
                    "",
                )
            ],
        ),
        ("Error: UPGRADE FAILED: timed out", [("error", "Error: UPGRADE FAILED: timed out", "", "")]),
    ],
)
def test_what_the_chart_refuses_is_a_row_a_line(
    case: Case, refused: str, rows: list[tuple[str, str, str, str]]
) -> None:
    case.options.helm, case.options.helm_refused = "sh", refused
    found = [finding for title, finding in run_all(case.cluster_state(), "before") if title == "release"]
    assert [(each.state, each.what, each.why, each.fix) for each in found] == rows


def test_what_may_not_be_read_is_skipped(case: Case) -> None:
    case.cluster.objects["/api/v1/nodes"] = 403
    found = case.states()
    assert found["nodes"].state == "skipped"
    assert "may not" in found["nodes"].what


@pytest.mark.parametrize(
    ("names", "state", "words"),
    [
        (["tuned"], "ok", "answers as tuned"),
        (["tuned", "run-2"], "ok", "answers as run-2, tuned"),
        (["base"], "error", "lists base, not tuned"),
        ([], "error", "lists no model, not tuned"),
    ],
)
def test_the_tuned_model_is_served_beside_whatever_the_engine_has(
    case: Case, names: list[str], state: str, words: str
) -> None:
    listed = {"data": [*({"id": name} for name in names), {"id": "survival-0a1b2c3d", "on_request": True}]}
    break_(f"{NS}/services/survival-predictor:80/proxy/v1/models", listed)(case)
    found = case.states()["served model"]
    assert found.state == state and words in found.sentence
    case.phase["serve"]["weights"] = "base"
    assert case.states()["served model"].state == ("ok" if "base" in names else "error")


def test_rights_are_asked_for_under_the_users_own_name(case: Case) -> None:
    case.cluster.objects[REVIEW] = all_but("pytorchjobs")
    assert "--user=YOU`" in case.states()["rights"].fix, "before Kubernetes 1.28"
    who = {"status": {"userInfo": {"username": "kube:ann lee"}}}
    case.cluster.objects["/apis/authentication.k8s.io/v1/selfsubjectreviews"] = who
    fix = case.states()["rights"].fix
    assert "workspace_users: [kube:ann lee]" in fix and fix.count("--user='kube:ann lee'`") == 2


@pytest.mark.parametrize(
    ("before", "used", "other"),
    [
        (None, "trainjobs", "pytorchjobs"),
        ({"api": "trainjob"}, "trainjobs", "pytorchjobs"),
        ({"api": "pytorchjob"}, "pytorchjobs", "trainjobs"),
        ({"run": "of an older chart"}, "pytorchjobs", "trainjobs"),
    ],
)
def test_rights_to_a_training_api_that_is_not_used_do_not_matter(
    case: Case, before: dict[str, str] | None, used: str, other: str
) -> None:
    """With `auto` a release stays the kind of job that it is; a new one is a TrainJob where JobSet is served, too."""
    objects = case.cluster.objects
    objects["/apis/trainer.kubeflow.org/v1alpha1"] = {"resources": [{"name": "trainjobs"}]}
    objects["/apis/jobset.x-k8s.io/v1alpha2"] = {"resources": [{"name": "jobsets"}]}
    if before is not None:
        objects[f"{NS}/configmaps/survival"] = {"data": before}
    objects[REVIEW] = all_but(other)
    assert case.states()["rights"].state == "ok"
    objects[REVIEW] = all_but(used)
    assert f"create {used}." in case.states()["rights"].what
    if before is None:
        del objects["/apis/jobset.x-k8s.io/v1alpha2"]
        assert case.states()["rights"].state == "ok"


ROUTES = break_("/apis/route.openshift.io/v1", {"resources": [{"name": "routes"}]})
EXPOSED = want(site__expose__enabled=True)
HOST = want(site__expose__host="m.example.com")
DELETE = {"resource": "inferenceservices", "verb": "delete"}


@pytest.mark.parametrize(
    ("refused", "wanted", "lacking"),
    [
        ({"resource": "cronjobs"}, want(phase__serve__hours=2), "create cronjobs.batch"),
        (DELETE, want(phase__serve__hours=2), "delete inferenceservices.serving.kserve.io"),
        ({"resource": "ingresses"}, EXPOSED, "create ingresses.networking.k8s.io"),
        ({"resource": "routes"}, both(ROUTES, EXPOSED), "patch routes.route.openshift.io"),
        ({"subresource": "custom-host"}, both(ROUTES, EXPOSED, HOST), "create routes/custom-host.route.openshift.io"),
        ({"resource": "podmonitors"}, want(site__monitoring__enabled=True), "delete podmonitors.monitoring.coreos.com"),
        ({"resource": "trainingruntimes"}, want(site__trainingApi="trainjob"), "create trainingruntimes.trainer"),
    ],
    ids=lambda value: " ".join(value.values()) if isinstance(value, dict) else "",
)
def test_rights_to_what_only_some_values_make(
    case: Case, refused: dict[str, str], wanted: Callable[[Case], None], lacking: str
) -> None:
    """Asked for with those values, and not without them."""
    case.cluster.objects[REVIEW] = lambda review: {
        "status": {"allowed": not refused.items() <= review["spec"]["resourceAttributes"].items()}
    }
    assert case.states()["rights"].state == "ok"
    wanted(case)
    assert lacking in case.states()["rights"].what


def test_rights_of_a_lease_that_cannot_be_are_not_asked_for(case: Case) -> None:
    """Nothing is served; or a prepared account ends the lease, so that nobody has to grant its right."""
    want(phase__serve__hours=2, site__serving=False)(case)
    case.cluster.objects[REVIEW] = all_but("cronjobs")
    assert case.states()["rights"].state == "ok"
    want(site__serving=True, site__serviceAccount="prepared")(case)
    case.cluster.objects[f"{NS}/serviceaccounts/prepared"] = {"metadata": {"name": "prepared"}}
    case.cluster.objects[REVIEW] = lambda review: {
        "status": {"allowed": not DELETE.items() <= review["spec"]["resourceAttributes"].items()}
    }
    assert case.states()["rights"].state == "ok"


@pytest.mark.parametrize("status", [404, 403])
def test_who_gets_a_project_needs_no_right_yet(case: Case, status: int) -> None:
    """OpenShift answers 403 for a namespace that does not exist."""
    both(break_(NS, status), break_(REVIEW, {"status": {"allowed": False}}))(case)
    assert case.states()["rights"].state == "error"
    PROJECTS(case)
    found = case.states()["rights"]
    assert found.state == "skipped" and "requests a Project" in found.what


def test_own_pods_are_not_in_the_way(case: Case) -> None:
    mine = {"namespace": "demo", "labels": {"app.kubernetes.io/instance": "survival"}}
    case.cluster.objects["/api/v1/pods"] = {"items": [{**BUSY, "metadata": mine}, {**BUSY_TOO, "metadata": mine}]}
    assert case.states()["room for training"].state == "ok"


def test_tolerated_gpu_nodes_count(case: Case) -> None:
    GPU_PHASE(case)
    case.phase["resources"]["nodes"] = 1
    case.site["tolerations"] = [{"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}]
    case.cluster.objects["/api/v1/nodes"] = {"items": [TAINTED]}
    assert case.states()["GPUs"].state == "ok"


def test_helm_of_the_wrong_version(case: Case, tmp_path: Any) -> None:
    for version, state in (("v2.17.0+g1", "error"), ("v3.22.0+g1", "ok"), ("v4.3.1+g1", "ok")):
        program = tmp_path / f"helm-{version}"
        program.write_text(f"#!/bin/sh\necho {version}\n", encoding="utf-8")
        program.chmod(0o755)
        case.options.helm = str(program)
        assert BEFORE["helm"](case.cluster_state()).state == state
    case.options.helm = str(tmp_path / "none")
    assert "no such program" in BEFORE["helm"](case.cluster_state()).sentence


@pytest.mark.parametrize(("from_here", "state"), [(True, "error"), (False, "warning")])
def test_a_hub_that_cannot_be_reached(case: Case, monkeypatch: pytest.MonkeyPatch, from_here: bool, state: str) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    case.phase["model"]["source"] = f"hf:a/b@{'0' * 40}"
    case.options.models_from_here = from_here
    assert case.states()["model"].state == state


def test_the_hub_that_pods_use_is_asked(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    revision = "1" * 40
    case.site["env"] = {"HF_ENDPOINT": case.cluster.url}
    case.cluster.objects[f"/api/models/a/b/revision/{revision}"] = {"id": "a/b"}
    case.phase["model"]["source"] = f"hf:a/b@{revision}"
    assert case.states()["model"].state == "ok"


@pytest.mark.parametrize(("answer", "state"), [({"id": "a/b"}, "ok"), (404, "error"), (401, "error"), (500, "warning")])
def test_what_the_hub_says(case: Case, monkeypatch: pytest.MonkeyPatch, answer: Any, state: str) -> None:
    monkeypatch.setenv("HF_ENDPOINT", case.cluster.url)
    revision = "1" * 40
    case.cluster.objects[f"/api/models/a/b/revision/{revision}"] = answer
    case.phase["model"]["source"] = f"hf:a/b@{revision}"
    assert case.states()["model"].state == state


def test_a_prepared_account_needs_no_right_to_make_roles(case: Case) -> None:
    case.cluster.objects[f"{NS}/serviceaccounts/prepared"] = {"metadata": {"name": "prepared"}}
    case.cluster.objects[REVIEW] = all_but("roles")
    assert "or name one that may promote in site.serviceAccount" in case.states()["rights"].sentence
    case.site["serviceAccount"] = "prepared"
    assert case.states()["rights"].state == "ok"
