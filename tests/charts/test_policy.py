"""What holds for every object and every pod of every rendering: restricted pods, no cluster-scoped object, labels, limits."""

import re

import pytest
import yaml

from charts.rendering import (
    HELMS,
    Case,
    Document,
    cases,
    documents,
    one,
    pods,
    rendered,
    served,
    template,
    with_service,
)

ALL = pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
NAMESPACED = {
    *("ConfigMap", "InferenceService", "Job", "PersistentVolumeClaim", "Pod", "PyTorchJob", "Role", "RoleBinding"),
    *("ServiceAccount", "ServingRuntime", "TrainJob", "TrainingRuntime"),
}
DNS_1035 = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
LABELS = {f"app.kubernetes.io/{name}" for name in ("name", "instance", "part-of", "managed-by")}
VERSIONS = {"app.kubernetes.io/version", "helm.sh/chart"}
"""Labels that a new version of the chart changes."""


def assert_restricted(where: str, spec: Document) -> None:
    """Check a pod spec against the Pod Security level `restricted` and our own rules."""
    assert not spec.get("hostNetwork"), where
    for volume in spec.get("volumes", []):
        kinds = set(volume) - {"name"}
        assert kinds <= {"configMap", "emptyDir", "persistentVolumeClaim", "secret"}, f"{where}: {volume}"
    for container in spec.get("initContainers", []) + spec["containers"]:
        place = f"{where}/{container['name']}"
        security = container["securityContext"]
        assert security["runAsNonRoot"] is True, place
        assert security["allowPrivilegeEscalation"] is False, place
        assert security["readOnlyRootFilesystem"] is True, place
        assert security["capabilities"] == {"drop": ["ALL"]}, place
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}, place
        assert "runAsUser" not in security, f"{place}: OpenShift gives the UID"
        asked, limit = container["resources"]["requests"], container["resources"]["limits"]
        assert asked["memory"] == limit["memory"], place
        assert "cpu" in asked and "cpu" not in limit, place
        assert any(mount["mountPath"] == "/tmp" for mount in container["volumeMounts"]), place


@ALL
def test_only_known_namespaced_kinds(case: Case) -> None:
    assert {item["kind"] for item in with_service(rendered(case))} <= NAMESPACED


@ALL
def test_every_object_carries_the_labels(case: Case) -> None:
    for item in served(rendered(case)):  # KServe gives its labels to its pods
        assert not VERSIONS & set(item["metadata"]["labels"])
    for item in with_service(rendered(case)):
        labels = item["metadata"]["labels"]
        assert set(labels) >= LABELS, item["kind"]
        assert set(labels) >= VERSIONS or item in served(rendered(case)), item["kind"]
        assert labels["app.kubernetes.io/instance"] == case.phase
        if item["kind"] != "PersistentVolumeClaim":  # both volumes outlive a run
            assert labels["trainlab.dev/run"].startswith(f"{case.phase}-")
        assert len(item["metadata"]["name"]) <= 63


@ALL
def test_every_pod_is_restricted(case: Case) -> None:
    objects = with_service(rendered(case))
    for where, _, spec in pods(objects):
        assert_restricted(where, spec)
        assert spec["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}, where
        assert spec["automountServiceAccountToken"] is (where == "Job"), f"{where}: only the promotion needs a token"
        for container in spec.get("initContainers", []) + spec["containers"]:
            assert container["terminationMessagePolicy"] == "FallbackToLogsOnError", where
    assert_restricted("ServingRuntime", one(objects, "ServingRuntime")["spec"])
    predictor = one(objects, "InferenceService")["spec"]["predictor"]
    assert predictor["securityContext"]["runAsNonRoot"] is True
    assert predictor["automountServiceAccountToken"] is False


@ALL
def test_models_are_read_only_but_for_the_fetch(case: Case) -> None:
    """Whatever its name: the volume of the models' claim."""
    read = 0
    for where, _, spec in pods(rendered(case)):
        claims = {each["name"]: each.get("persistentVolumeClaim", {}).get("claimName") for each in spec["volumes"]}
        for container in spec["containers"]:
            for mount in container["volumeMounts"]:
                if claims[mount["name"]] == f"{case.phase}-models":
                    assert mount["readOnly"] is True, where
                    read += 1
    assert read


@ALL
def test_promotion_may_touch_only_its_own_service(case: Case) -> None:
    objects = rendered(case)
    for rule in one(objects, "Role")["rules"]:
        (kind,), verbs = rule["resources"], set(rule["verbs"])
        assert not {"*", "watch", "update"} & verbs and kind in ("configmaps", "servingruntimes", "inferenceservices")
        if kind != "servingruntimes":  # those of earlier runs have names that are not known any more
            assert verbs == {"create"} or rule["resourceNames"], rule
            assert not {"delete", "list"} & verbs


def test_who_ends_a_lease_may_delete_only_the_service_of_its_release() -> None:
    case = cases()[0]
    found = documents(template(case.files, f"site.trainingApi={case.api}", "phase.serve.hours=2", release=case.phase))
    (account,) = {
        each["spec"]["jobTemplate"]["spec"]["template"]["spec"]["serviceAccountName"]
        for each in found
        if each["kind"] == "CronJob"
    }
    (role,) = [each for each in found if each["kind"] == "Role" and each["metadata"]["name"] == account]
    assert role["rules"] == [
        {
            "apiGroups": ["serving.kserve.io"],
            "resources": ["inferenceservices"],
            "resourceNames": [case.phase],
            "verbs": ["get", "delete"],
        }
    ]


@ALL
def test_operators_rules_that_no_schema_says(case: Case) -> None:
    """Exactly one Master, Worker omitted instead of 0, container names, one number of processes.

    training-operator and JobSet derive Services from a job's name: DNS-1035, minus the length of their pods' suffixes.
    """
    objects = rendered(case)
    name = one(objects, "PyTorchJob" if case.api == "pytorchjob" else "TrainJob")["metadata"]["name"]
    assert DNS_1035.fullmatch(f"{name}-worker-99")
    if case.api == "pytorchjob":
        job = one(objects, "PyTorchJob")["spec"]
        replicas = job["pytorchReplicaSpecs"]
        assert replicas["Master"]["replicas"] == 1
        assert "Worker" not in replicas or replicas["Worker"]["replicas"] >= 1
        assert isinstance(job["nprocPerNode"], str)
        assert job["runPolicy"]["cleanPodPolicy"] == "None"
        for replica in replicas.values():
            assert [item["name"] for item in replica["template"]["spec"]["containers"]] == ["pytorch"]
    else:
        job = one(objects, "TrainJob")["spec"]
        runtime = one(objects, "TrainingRuntime")
        assert job["runtimeRef"]["name"] == runtime["metadata"]["name"]
        assert job["trainer"]["numNodes"] == runtime["spec"]["mlPolicy"]["numNodes"]
        assert isinstance(job["trainer"]["numProcPerNode"], int)
        (node,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
        assert node["name"] == "node"
        assert [item["name"] for item in node["template"]["spec"]["template"]["spec"]["containers"]] == ["node"]
    for where, _, spec in pods(objects):
        for container in spec["containers"]:
            names = [item["name"] for item in container.get("env", [])]
            assert not [name for name in names if name.startswith("PET_") or name in ("RANK", "WORLD_SIZE")], where


@pytest.mark.parametrize("name", HELMS)
def test_runtime_is_created_before_the_job_that_names_it(name: str) -> None:
    """Trainer's webhook refuses a TrainJob without its runtime, and Helm sorts the kinds."""
    (case,) = [one for one in cases() if one.name == "survival-local-trainjob"]
    text = template(case.files, "site.trainingApi=trainjob", name=name).stdout
    assert -1 < text.index("kind: TrainingRuntime\n") < text.index("kind: TrainJob\n")


def test_the_promotion_is_the_last_object_that_helm_makes() -> None:
    """An upgrade that fails at an object of a kind that Helm does not know, and makes last, has promoted nothing by then."""
    (case,) = [one for one in cases() if one.name == "survival-local-pytorchjob"]
    on = ("site.monitoring.enabled=true", "site.expose.enabled=true", "site.platform=openshift")
    loaded = [one for one in yaml.load_all(template(case.files, *on).stdout, yaml.CSafeLoader) if one]
    (made,) = [one["items"] for one in loaded if one["kind"] == "List"]
    assert [one["kind"] for one in made] == ["PodMonitor", "Route", "PyTorchJob", "Job"]
    assert not {"PodMonitor", "Route"} & {one["kind"] for one in loaded}


def test_evictions_do_not_count_as_attempts_to_promote() -> None:
    """A drained node, or a pod of a higher priority: the Job makes its pod again however often that happens while it waits."""
    (case,) = [one for one in cases() if one.name == "survival-local-pytorchjob"]
    spec = one(rendered(case), "Job")["spec"]
    first, second = spec["podFailurePolicy"]["rules"]
    assert first == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    assert second["action"] == "FailJob" and spec["template"]["spec"]["restartPolicy"] == "Never"


@pytest.mark.parametrize("api", ["pytorchjob", "trainjob"])
def test_a_pod_that_is_told_to_end_has_time_for_a_checkpoint_and_is_no_loss(api: str) -> None:
    """Torchrun gives ranks 30 seconds; 143 is the code of a pod that kept a checkpoint at SIGTERM."""
    objects = documents(template(cases()[0].files, f"site.trainingApi={api}"))
    if api == "pytorchjob":
        roles = one(objects, "PyTorchJob")["spec"]["pytorchReplicaSpecs"].values()
        assert {role["restartPolicy"] for role in roles} == {"ExitCode"}
        pods_of = [role["template"]["spec"] for role in roles]
    else:
        (job,) = one(objects, "TrainingRuntime")["spec"]["template"]["spec"]["replicatedJobs"]
        spec = job["template"]["spec"]
        rules = {rule["action"]: rule["onExitCodes"]["values"] for rule in spec["podFailurePolicy"]["rules"]}
        assert rules == {"FailJob": [1, 2], "Ignore": [143]}
        pods_of = [spec["template"]["spec"]]
    assert {pod["terminationGracePeriodSeconds"] for pod in pods_of} == {60}


@ALL
def test_no_command_names_a_hyper_parameter(case: Case) -> None:
    for where, _, spec in pods(rendered(case)):
        for container in spec["containers"]:
            words = " ".join(container["command"] + container.get("args", []))
            assert not {"epochs", "batch", "learning"} & set(words.replace("-", " ").split()), where


def test_one_node_has_no_worker_and_no_spread() -> None:
    case = cases()[0]
    objects = documents(template(case.files, "phase.resources.nodes=1", "site.trainingApi=pytorchjob"))
    job = one(objects, "PyTorchJob")["spec"]["pytorchReplicaSpecs"]
    assert list(job) == ["Master"]
    assert "topologySpreadConstraints" not in job["Master"]["template"]["spec"]
