"""An API server that serves training, serving and queue, without their operators; the fixture `training` in conftest.py."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import requests
from waiting import until

from api_server import crds
from api_server.client import Client, Json, condition
from api_server.server import Server
from charts import upstream

KUEUE = "kueue.x-k8s.io/v1beta2"
KUEUES = (*upstream.QUEUES.values(), crds.WORKLOADS)
CRDS = (*upstream.CRDS.values(), *KUEUES)
GPUS = 4
KUBEFLOW = "kubeflow.org/v1"
TRAINER = "trainer.kubeflow.org/v1alpha1"
JOBS: tuple[tuple[str, str, str, Json], ...] = (
    (KUBEFLOW, "PyTorchJob", "Succeeded", {"replicaStatuses": {}}),
    (TRAINER, "TrainJob", "Complete", {}),
)
"""API, kind, the condition of success, and what else its status must have."""
POLL_SECONDS = 0.5


class Training(Server):
    """The real CRDs, a node that claims four GPUs, and a ClusterQueue."""

    def start(self) -> None:
        """Start, and return when all of it is ready."""
        super().start()
        client = Client(self.kubeconfig)
        install(client, upstream.from_module)
        client.apply(node(GPUS))
        client.send("PATCH", "/api/v1/nodes/n1/status", node(GPUS), "application/merge-patch+json")
        client.apply({"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": "nvidia-pool"}, "spec": {}})


def install(
    client: Client,
    read: Callable[[str, str], str],
    files: Iterable[tuple[str, str]] = CRDS,
    changed: Callable[[Json], Json] = crds.newest_stored,
) -> None:
    """Install the operators' CRDs, without the operators, and wait until of all their versions those are served that they say."""
    for component, path in files:
        crd = changed(crds.bare(read(component, path)))
        client.apply(crd)
        group, kind = crd["spec"]["group"], crd["spec"]["names"]["kind"]
        for each in crd["spec"]["versions"]:
            until(functools.partial(_served, client, f"{group}/{each['name']}", kind, each["served"]))


def _served(client: Client, api: str, kind: str, wanted: bool) -> bool:
    return (kind in client.resources(api, fresh=True)) == wanted


def node(gpus: int) -> Json:
    """Return a Node that offers GPUs; no kubelet backs it."""
    allocatable = {"cpu": "8", "memory": "64Gi"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": {"allocatable": allocatable}}


def free_claims(client: Client) -> None:
    """Remove the finalizers whose controller does not run here."""
    for kind in ("PersistentVolumeClaim", "PersistentVolume"):
        for one in client.items("v1", kind):
            client.merge(one, {"metadata": {"finalizers": None}})


@contextlib.contextmanager
def trainer(kubeconfig: Path, ends: bool = True) -> Iterator[None]:
    """Act as the training operators: each job succeeds at once, or fails unless it `ends` well; claims may go."""
    client, ended = Client(kubeconfig), threading.Event()

    def act() -> None:
        while not ended.wait(POLL_SECONDS):
            with contextlib.suppress(requests.HTTPError):  # another writer was faster; the next round sees it
                for api, kind, good, more in JOBS:
                    for job in client.items(api, kind):
                        if not job.get("status"):
                            client.status(job, {"conditions": [condition(good if ends else "Failed", True)], **more})
                free_claims(client)

    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    yield
    ended.set()
    thread.join()


@contextlib.contextmanager
def lagging_webhook(kubeconfig: Path, namespace: str) -> Iterator[None]:
    """Deny TrainJobs of `namespace`, as Trainer's webhook does while its cache lags behind, until Helm noted a failed release.

    Words: https://github.com/NVIDIA/aicr/issues/1669.
    """
    client, name = Client(kubeconfig), "validator.trainjob.trainer.kubeflow.org"
    policy = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
    jobs = {
        "apiGroups": ["trainer.kubeflow.org"],
        "apiVersions": ["*"],
        "operations": ["CREATE"],
        "resources": ["trainjobs"],
    }
    words = (
        "'spec.runtimeRef: Invalid value: TrainingRuntime.trainer.kubeflow.org \"' + object.spec.runtimeRef.name + "
        "'\" not found: specified trainingRuntime must be created before the TrainJob is created'"
    )
    denied = {"validations": [{"expression": "false", "messageExpression": words}]}
    here = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}, "resourceRules": [jobs]}
    rule = policy | {"kind": "ValidatingAdmissionPolicy", "spec": {"matchConstraints": here, **denied}}
    binding = policy | {
        "kind": "ValidatingAdmissionPolicyBinding",
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    }
    client.apply(rule)
    client.apply(binding)

    def act() -> None:
        until(
            lambda: any(each["metadata"]["labels"].get("status") == "failed" for each in _releases(client, namespace)),
            seconds=600,  # a whole play on a busy machine
        )
        client.delete(binding)
        client.delete(rule)

    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    yield
    thread.join()


def _releases(client: Client, namespace: str) -> list[Json]:
    return [
        each
        for each in client.items("v1", "Secret", namespace)
        if each["metadata"].get("labels", {}).get("owner") == "helm"
    ]
