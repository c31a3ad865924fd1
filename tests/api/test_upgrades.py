"""One cluster through the releases of OpenShift AI from 2.25 to 3.6, with one release of the chart on it that was trained at 2.25.

Each release is its real CustomResourceDefinitions with their rules, and the versions of the components that it brings. Before each
upgrade playbooks/verify.yml names what is in its way as `rhai-cli lint` does, and what it prints is done.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from api_server import catalog, printed
from api_server.admission import Reviews
from api_server.client import Client, Json, condition
from api_server.harness import Cluster
from api_server.promotions import KSERVE, Promotions, answers
from api_server.releases import Releases, done
from api_server.server import Server
from api_server.training_api import JOBS, KUBEFLOW, TRAINER, install
from charts.rendering import IMAGE, binary
from waiting import until

from charts import upstream

pytestmark = pytest.mark.xdist_group("upgrades")
DSC, DSCI = "datasciencecluster.opendatahub.io", "dscinitialization.opendatahub.io"
CSV, OPERATORS = "operators.coreos.com/v1alpha1", "redhat-ods-operator"
KSERVES = {
    "0.15": ("github.com/kserve/kserve@v0.15.2", "h1:uph7Umk331fvBMrHHpTJNDt6+lf3IAuyiskaQw8wIAk="),
    # 0.17.1, which 3.4 contains, is not on the module proxy
    "0.17": ("github.com/kserve/kserve@v0.17.0", "h1:IaynaBFzVQz1Xyrw5n3ncqzd5Y7L1RkO+YWvVwwtMQE="),
    "0.19": ("github.com/kserve/kserve@v0.19.0", "h1:8Pbdm9Ekn1JEuHrobqJhZI4uRHyf5bk1ofb5+3kEI14="),
}
TRAINERS = {
    "2.1": ("github.com/kubeflow/trainer/v2@v2.1.0", "h1:jRABD9ZYToamNH2atHze3L/VC/v6KCAqUEqsOQOjVTg="),
    "2.3": ("github.com/kubeflow/trainer/v2@v2.3.0", "h1:Je+e7zvTLzB4qW09J1fB7pZrqvPtWuGng2NqdN5p5QU="),
}
BRINGS = {
    "2.25": ("0.15", ""),
    "3.3": ("0.15", "2.1"),
    "3.4": ("0.17", "2.1"),
    "3.5": ("0.19", "2.1"),
    "3.6": ("0.19", "2.3"),
}
"""KServe and Trainer of each release, or the newest before that the module proxy has. 2.25 has no Trainer."""
JOBSET = ("jobset", "config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml")
KINDS = {"kserve": ("InferenceService", "ServingRuntime"), "trainer": ("TrainJob", "TrainingRuntime")}
DEPRECATED, ACTIVE = "components.trainingoperator.deprecation", "workloads.trainingoperator.impacted-workloads"
TRAINED = "trains nothing new: the same run"
STAYS = "Its job stays a PyTorchJob; a new release would be a TrainJob, as site.trainingApi=trainjob makes this one, of the same run."
MOVES = "Its job is a TrainJob from now on, and no PyTorchJob."


class Platform:
    """OpenShift AI on one API server, as its operators would leave it."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        """`folder` takes what verify writes."""
        self.cluster, self.client, self._folder = cluster, cluster.client, folder
        self._converts = Reviews(convert)
        self.release = ""

    def close(self) -> None:
        """Convert no more."""
        self._converts.close()

    def upgrade(self, release: str) -> None:
        """Install a release over the one before: its APIs, its operator, and what its own setup has of components."""
        kserve, trainer = BRINGS[release]
        for name, module in (("kserve", KSERVES[kserve]), ("trainer", TRAINERS.get(trainer))):
            if module:
                files = [upstream.CRDS[kind] for kind in KINDS[name]]
                install(self.client, lambda _component, path, module=module: upstream.of_version(*module, path), files)
        if trainer:
            install(self.client, upstream.from_module, [JOBSET])
        for crd in catalog.owned("rhods-operator", f"rhods-operator.{release}.0"):
            if len(crd["spec"]["versions"]) > 1:
                config = {"conversionReviewVersions": ["v1"], "clientConfig": self._converts.client_config("convert")}
                crd["spec"]["conversion"] = {"strategy": "Webhook", "webhook": config}
            self.client.apply(crd)
        for csv in self.client.items(CSV, "ClusterServiceVersion", OPERATORS):
            self.client.delete(csv)
        name = f"rhods-operator.{catalog.RELEASES[release]['version']}"
        csv = {"apiVersion": CSV, "kind": "ClusterServiceVersion", "metadata": {"name": name, "namespace": OPERATORS}}
        install_spec = {"displayName": name, "install": {"strategy": "deployment", "spec": {"deployments": []}}}
        self.client.apply(csv | {"spec": install_spec})
        self.client.status(csv, {"phase": "Succeeded"})
        self.release = release
        wanted = catalog.RELEASES[release]["components"] | {"kueue": {"managementState": "Removed"}}
        until(lambda: self.client.path(f"{DSC}/{self.version}", "DataScienceCluster"))
        if release == "2.25":
            for name, group, kind, spec in (
                ("default-dsci", DSCI, "DSCInitialization", {"applicationsNamespace": "redhat-ods-applications"}),
                ("default-dsc", DSC, "DataScienceCluster", {"components": wanted}),
            ):
                self.client.apply({"apiVersion": f"{group}/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
        else:
            self.components(**{name: each for name, each in wanted.items() if name != "trainingoperator"})

    @property
    def version(self) -> str:
        """Of its own APIs."""
        return "v1" if self.release == "2.25" else "v2"

    def components(self, **components: Json) -> None:
        """Set components of the DataScienceCluster."""
        thing = {
            "apiVersion": f"{DSC}/{self.version}",
            "kind": "DataScienceCluster",
            "metadata": {"name": "default-dsc"},
        }
        until(lambda: self.client.path(thing["apiVersion"], "DataScienceCluster"))
        self.client.merge(thing, {"spec": {"components": components}})

    def verify(self, to: str = "", **site: Any) -> list[Json]:
        """Run playbooks/verify.yml, and return its rows."""
        rows = self._folder / "verify.json"
        self.cluster.playbook(
            "verify",
            trainlab_namespace="upgrades-helm",
            trainlab_release="demo",
            trainlab_values=["values/survival.yaml"],
            trainlab_helm=str(binary("helm")),
            trainlab_site={"images": {"trainer": IMAGE}} | site,
            stage="before",
            verify_json=str(rows),
            verify_upgrade_to=to,
        )
        result: list[Json] = json.loads(rows.read_text(encoding="utf-8"))
        rows.unlink()
        return result

    def found(self, to: str = "") -> dict[str, Json]:
        """Return the rows about the upgrade, by the name that `rhai-cli lint` has for them."""
        rows = [row for row in self.verify(to) if row["name"] == "upgrade"]
        return {lint[1]: row for row in rows if (lint := re.search(r"rhai-cli lint: ([\w.-]+)", row["why"]))}


def convert(_name: str, request: Json) -> Json:
    """Convert between v1 and v2 as the operator does (opendatahub-operator, api/datasciencecluster/v1): one component has another name.

    What only one version has goes by the schema of the other.
    """
    names = ("datasciencepipelines", "aipipelines")
    made = []
    for one in request["objects"]:
        components = (one.get("spec") or {}).get("components") or {}
        new = request["desiredAPIVersion"].endswith("/v2")
        old_name, new_name = names if new else names[::-1]
        if old_name in components:
            components[new_name] = components.pop(old_name)
        made.append(one | {"apiVersion": request["desiredAPIVersion"]})
    return {"uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": made}


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[Platform]:
    """OpenShift AI 2.25, on an API server of its own: no CustomResourceDefinition of an older release may come over a newer one."""
    server = Server(tmp_path / "server", mortal=True)
    server.start()
    client = Client(server.kubeconfig)
    install(client, upstream.from_module, [upstream.CRDS["PyTorchJob"]])
    for name in (OPERATORS, "redhat-ods-applications", "team"):
        client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    one = Platform(Cluster(server, tmp_path), tmp_path)
    one.upgrade("2.25")
    yield one
    one.close()
    server.stop()


def job(name: str, kind: str, **spec: Any) -> Json:
    """A job of somebody else."""
    api = KUBEFLOW if kind == "PyTorchJob" else TRAINER
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name, "namespace": "team"}, "spec": spec}


def ended(client: Client) -> None:
    """Let every job succeed, as the training operators would."""
    for api, kind, good, more in JOBS:
        for one in client.items(api, kind):
            client.status(one, {"conditions": [condition(good, True)], **more})


def served(helm: Releases) -> Json:
    """Return the InferenceService as the API server has it, and what it answers with."""
    one = helm.client.look(f"{KSERVE}/v1beta1", "InferenceService", "demo", helm.namespace)
    assert one
    kept = {key: value for key, value in one["metadata"].items() if key not in ("managedFields", "resourceVersion")}
    return {"metadata": kept, "spec": one["spec"], "status": one["status"], "answers": answers(helm)}


def does(platform: Platform, row: Json) -> None:
    """Run the command that a row prints."""
    printed.run(row["fix"], platform.cluster.server.folder, platform.cluster.server.kubeconfig)


def test_from_2_25_to_3_6(platform: Platform, tmp_path: Path) -> None:
    client, helm = platform.client, Releases(platform.cluster.server, "helm", "upgrades")
    promotions = Promotions(helm, tmp_path)
    first = done(helm.upgrade())
    assert "pytorchjob with 4 pods" in first
    found = platform.found()
    assert set(found) == {DEPRECATED, ACTIVE} and "upgrades-helm/" in found[ACTIVE]["what"]

    run = helm.one("PyTorchJob", KUBEFLOW)["metadata"]["labels"]["trainlab.dev/run"]
    ended(client)
    promotions.decide(run, True)
    promotions.act()
    service = {"apiVersion": f"{KSERVE}/v1beta1", "kind": "InferenceService"}
    named = {"name": "demo", "namespace": helm.namespace}
    client.status(service | {"metadata": named}, {"conditions": [condition("Ready", True)], "url": "http://demo"})
    before = served(helm)
    assert before["answers"] and set(platform.found()) == {DEPRECATED}

    mend_2_25(platform)
    for release in ("3.3", "3.4", "3.5"):
        there = served(helm)
        platform.upgrade(release)
        assert served(helm) == there
        said = done(helm.upgrade())
        assert f"{TRAINED}, {run}" in said and STAYS in said
        assert "trainjob with 4 pods" in done(helm.upgrade("--dry-run=server", release="new"))
        lives_on(helm, promotions, before)
        assert set(platform.found()) == {DEPRECATED if release != "3.5" else "components.trainingoperator.removal"}
        if release == "3.4":
            mend_3_4(platform)

    mend_3_5(platform, helm, run)
    promotions.act()
    there = served(helm)
    assert there["answers"] == before["answers"]
    platform.upgrade("3.6")
    assert served(helm) == there and platform.found() == {}
    with pytest.raises(requests.HTTPError, match=r"TrainingOperator v1 is obsolete in RHOAI 3\.6"):
        platform.components(trainingoperator={"managementState": "Managed"})
    assert operator(platform.verify())["state"] == "ok"
    last = operator(platform.verify(trainingApi="pytorchjob"))
    assert last["state"] == "error" and "site.trainingApi to trainjob" in last["fix"]
    lives_on(helm, promotions, before)
    assert helm.names("PyTorchJob", KUBEFLOW) == []


def operator(rows: list[Json]) -> Json:
    """Return the row that tells whether somebody runs the job."""
    return {row["name"]: row for row in rows}["training operator"]


def lives_on(helm: Releases, promotions: Promotions, before: Json, *site: str) -> None:
    """Answer otherwise after an upgrade, and as before after a rollback; another phase is a job that this API takes."""
    revision = json.loads(done(helm.run("status", "demo", "-o", "json")))["version"]
    done(helm.upgrade(*site, "--set", "phase.serve.max_tokens=9"))
    promotions.act()
    now = answers(helm)
    assert now and now["phase"]["phase"]["serve"]["max_tokens"] == 9
    done(helm.upgrade(*site, "--set", "phase.seed=7"))
    assert answers(helm) == now
    done(helm.run("rollback", "demo", str(revision)))
    promotions.act()
    ended(helm.client)
    until(lambda: answers(helm) == before["answers"])
    assert served(helm)["status"] == before["status"]


def mend_2_25(platform: Platform) -> None:
    """What rhai-cli lint stops at before 3.3: each is named, is an error for who asks for 3.3, and its command ends it."""
    wrong = {
        "kserve": {"serving": {"managementState": "Managed"}},
        **{name: {"managementState": "Managed"} for name in ("kueue", "codeflare", "modelmeshserving")},
    }
    initialization = {"apiVersion": f"{DSCI}/v1", "kind": "DSCInitialization", "metadata": {"name": "default-dsci"}}
    platform.components(**wrong)
    mesh = {
        "managementState": "Managed",
        "controlPlane": {"name": "basic", "namespace": "istio-system", "metricsCollection": "Istio"},
    }
    platform.client.merge(initialization, {"spec": {"serviceMesh": mesh}})
    mode = {"annotations": {"serving.kserve.io/deploymentMode": "Serverless"}}
    theirs = {
        "apiVersion": f"{KSERVE}/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": "theirs", "namespace": "team"} | mode,
        "spec": {"predictor": {"model": {"modelFormat": {"name": "any"}}}},
    }
    platform.client.apply(theirs)
    found = platform.found("3.3")
    assert {lint for lint, row in found.items() if row["state"] == "error"} == {
        "components.kserve.serverless-removal",
        "components.kueue.management-state",
        "components.codeflare.removal",
        "components.modelmesh.removal",
        "services.servicemesh.removal",
        "workloads.kserve.impacted-workloads",
    }
    assert found[DEPRECATED]["state"] == "warning"
    assert "team/theirs" in found["workloads.kserve.impacted-workloads"]["what"]
    platform.client.delete(theirs)
    for lint, row in found.items():
        if lint.startswith(("components.", "services.")) and lint != DEPRECATED:
            does(platform, row)
    assert set(platform.found("3.3")) == {DEPRECATED}
    platform.components(kueue={"managementState": "Removed"})


def mend_3_4(platform: Platform) -> None:
    """LlamaStack has another name from 3.5 on."""
    platform.components(llamastackoperator={"managementState": "Managed"})
    found = platform.found()["components.llamastackoperator.removal"]
    assert found["state"] == "warning" and found["what"].startswith("blocks an upgrade to OpenShift AI 3.5")
    does(platform, found)
    assert "components.llamastackoperator.removal" not in platform.found()


def mend_3_5(platform: Platform, helm: Releases, run: str) -> None:
    """What 3.6 does not take any more: the operator, PyTorchJobs that have not ended, and two fields of TrainJobs; then our own release."""
    runtime = {"runtimeRef": {"name": "theirs"}}
    override = {"targetJobs": [{"name": "node"}], "spec": {"nodeSelector": {"zone": "a"}}}
    replica = {"template": {"spec": {"containers": [{"name": "pytorch", "image": "any"}]}}}
    left = job("left", "PyTorchJob", pytorchReplicaSpecs={"Master": replica})
    text = job("text", "TrainJob", trainer={"numProcPerNode": "auto"}, **runtime)
    number = job("number", "TrainJob", trainer={"numProcPerNode": 2}, **runtime)
    patched = job("patched", "TrainJob", podTemplateOverrides=[override], **runtime)
    for one in (left, text, number, patched):
        platform.client.apply(one)
    found = platform.found("3.6")
    removal, text_rule, override_rule = (
        "components.trainingoperator.removal",
        "workloads.trainer.numprocpernode",
        "workloads.trainer.podtemplateoverrides",
    )
    assert {lint: row["state"] for lint, row in found.items()} == {
        removal: "error",
        ACTIVE: "error",
        text_rule: "error",
        override_rule: "warning",
    }
    for lint, name in ((ACTIVE, "left"), (text_rule, "text"), (override_rule, "patched")):
        assert re.search(rf": 1 \w+ .*\(team/{name}\)$", found[lint]["what"]), found[lint]["what"]
    for one in (left, text, number, patched):
        platform.client.delete(one)

    (theirs,) = platform.client.items(KUBEFLOW, "PyTorchJob", helm.namespace)
    pod = theirs["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]
    promotion = helm.one("Job", "batch/v1")["metadata"]["uid"]
    assert operator(platform.verify())["what"] == "trainingoperator is Managed"
    said = done(helm.upgrade("--set", "site.trainingApi=trainjob"))
    assert f"{TRAINED}, {run}" in said and MOVES in said
    until(lambda: helm.names("PyTorchJob", KUBEFLOW) == [])
    assert helm.one("TrainJob", TRAINER)["metadata"]["labels"]["trainlab.dev/run"] == run
    (replicated,) = helm.one("TrainingRuntime", TRAINER)["spec"]["template"]["spec"]["replicatedJobs"]
    again = replicated["template"]["spec"]["template"]["spec"]["containers"][0]
    assert [again[key] for key in ("command", "env", "volumeMounts")] == [
        pod[key] for key in ("command", "env", "volumeMounts")
    ]
    assert helm.one("Job", "batch/v1")["metadata"]["uid"] == promotion
    ended(platform.client)
    does(platform, found[removal])
    assert platform.found("3.6") == {}
