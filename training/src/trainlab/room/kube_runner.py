"""A round's job on a cluster: what charts/trainjob renders for values/room/adapters.yaml, with the round's own rows.

Of that rendering (`helm template`) come the ConfigMap with the phase and the training job. The hash in their names is computed anew for
each round's rows, so a run has the name that the chart would give it. A ConfigMap of the room owns them: they go with the room.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from trainlab import files
from trainlab.config import AdaptersPhase
from trainlab.config.loading import load_values, phase_hash
from trainlab.errors import UserError
from trainlab.models.fetch import datasets_dir
from trainlab.room import run_folder
from trainlab.room.interface import Status
from trainlab.run import results
from trainlab.run.kube import Kube

CORE = "/api/v1"
KINDS = {
    "ConfigMap": (CORE, "configmaps"),
    "TrainingRuntime": ("/apis/trainer.kubeflow.org/v1alpha1", "trainingruntimes"),
    "TrainJob": ("/apis/trainer.kubeflow.org/v1alpha1", "trainjobs"),
    "PyTorchJob": ("/apis/kubeflow.org/v1", "pytorchjobs"),
}
"""Kind -> path of its API and plural, in the order in which they are created."""
JOBS = ("TrainJob", "PyTorchJob")
WRITE = "write it with: helm template NAME charts/trainjob -f values/room/adapters.yaml -f SITE"


class KubeRunner:
    """Starts rounds as jobs in `namespace`; `models` and `runs` are the volumes that the jobs use, too."""

    def __init__(
        self, manifests: Path, owner: str, namespace: str, models: Path, runs: Path, state: Path, kube: Kube
    ) -> None:
        """`owner` is the ConfigMap that owns what is created. Raise UserError for a rendering that is not of recipe adapters."""
        self._manifests, self._owner, self._namespace = manifests, owner, namespace
        self._models, self._runs, self._state, self._kube = models, runs, state / "jobs", kube
        self._objects = [each for each in _flat(manifests) if _needed(each)]
        jobs = [each["kind"] for each in self._objects if each["kind"] in JOBS]
        phases = [each for each in self._objects if each["kind"] == "ConfigMap"]
        if len(jobs) != 1 or len(phases) != 1:
            raise UserError(
                f"{manifests}: holds {len(jobs)} training jobs and {len(phases)} phases, must be one of each; {WRITE}"
            )
        (self._kind,) = jobs
        self._label = next(key for key in phases[0]["metadata"]["labels"] if key.endswith("/run"))
        self._content = json.loads(phases[0]["data"]["phase.json"])
        self._name = str(phases[0]["metadata"]["name"])
        if not self._name.endswith(f"-{phase_hash(self._phase('rendered', self._content['phase']['data']['source']))}"):
            raise UserError(f"{manifests}: chart and image are of different versions, {self._name} differs; {WRITE}")

    def start(self, round_id: str, rows: Sequence[Mapping[str, Any]]) -> str:
        """Write the rows, create the job; see Runner.start. What exists is applied again, which changes nothing."""
        run_folder.write_rows(datasets_dir(self._models) / "rooms" / round_id, rows)
        phase = self._phase(round_id, f"pvc:rooms/{round_id}")
        rendered, digest = self._name.rpartition("-")[2], phase_hash(phase)
        owner = self._kube.get(self._path("ConfigMap", self._owner))
        for kind in KINDS:
            for each in (each for each in self._objects if each["kind"] == kind):
                wanted = json.loads(json.dumps(each).replace(rendered, digest))
                if kind == "ConfigMap":
                    wanted["data"]["phase.json"] = (self._state / f"{round_id}.json").read_text(encoding="utf-8")
                _follow(wanted, {"app.kubernetes.io/name": "room", "app.kubernetes.io/instance": self._owner})
                wanted["metadata"]["ownerReferences"] = [
                    {"apiVersion": "v1", "kind": "ConfigMap", "name": self._owner, "uid": owner["metadata"]["uid"]}
                ]
                self._kube.apply(self._path(kind, wanted["metadata"]["name"]), wanted)
        return f"{self._name.rpartition('-')[0]}-{digest}"

    def status(self, run: str) -> Status:
        """Return what the run's files, its job's conditions and its pods say; see Runner.status."""
        run_dir = self._runs / run
        if results.finished(run_dir):
            return run_folder.status(run_dir, "done")
        listed = self._kube.get(f"{self._path(self._kind)}?labelSelector={self._label}%3D{run}")["items"]
        if not listed:
            raise UserError(f"{self._kind} of {run} is not there; somebody has removed it")
        job = listed[0]
        conditions = {each["type"]: each for each in (job.get("status") or {}).get("conditions") or []}
        if (failed := conditions.get("Failed")) and failed["status"] == "True":
            return run_folder.status(run_dir, "failed", str(failed.get("message") or failed.get("reason")))
        spec = job["spec"]
        if spec.get("suspend") or (spec.get("runPolicy") or {}).get("suspend"):
            return run_folder.status(run_dir, "queued", "waits for its place in the queue")
        return run_folder.status(run_dir, "running", self._waits(run, job["metadata"]["name"]))

    def kill_worker(self, run: str) -> str:
        """Kill the last pod of the job, which gets no time for a checkpoint; see Runner.kill_worker."""
        running = sorted(pod["metadata"]["name"] for pod in self._pods(run) if pod["status"].get("phase") == "Running")
        if not running:
            raise UserError(f"{run}: no pod is running yet, or none any more; try again while it trains")
        self._kube.delete(f"{CORE}/namespaces/{self._namespace}/pods/{running[-1]}", grace=1)
        return f"Pod {running[-1]} was killed; the job goes on from its last checkpoint."

    def take_home(self, run: str, owner: str, name: str) -> Path | None:
        """Return a ZIP file of an owner's adapter; see TakesHome.take_home."""
        return run_folder.take_home(self._runs, self._models, run, owner, name, self._state.parent / "home")

    def _waits(self, run: str, job: str) -> str:
        """Return why no pod of the job runs, empty where one does."""
        pods = self._pods(run)
        if any(pod["status"].get("phase") in ("Running", "Succeeded") for pod in pods):
            return ""
        for pod in pods:
            for condition in pod["status"].get("conditions") or []:
                if condition["type"] == "PodScheduled" and condition["status"] == "False":
                    return f"waits for room on a node: {condition.get('message')}"
        if pods:
            return "its pod starts"
        return f"waits for its pod; `kubectl -n {self._namespace} describe {self._kind.lower()} {job}` says why"

    def _pods(self, run: str) -> list[dict[str, Any]]:
        selector = f"{self._label}%3D{run},app.kubernetes.io/component%3Dtrain"
        return list(self._kube.get(f"{CORE}/namespaces/{self._namespace}/pods?labelSelector={selector}")["items"])

    def _phase(self, round_id: str, source: str) -> AdaptersPhase:
        """Return the phase with other rows, which it also writes for the job to read."""
        content = json.loads(json.dumps(self._content))
        content["phase"]["data"]["source"] = source
        file = self._state / f"{round_id}.json"
        files.write_json(file, content)
        phase = load_values([file]).phase
        if not isinstance(phase, AdaptersPhase):
            raise UserError(
                f"{self._manifests}: phase.recipe is {phase.recipe}; a round needs adapters, as in values/room/adapters.yaml"
            )
        return phase

    def _path(self, kind: str, name: str = "") -> str:
        path, plural = KINDS[kind]
        return f"{path}/namespaces/{self._namespace}/{plural}" + (f"/{name}" if name else "")


def _follow(part: Any, labels: Mapping[str, str]) -> None:
    """Keep the pods of an object, where they have to be on one node, on that of the pod with these labels.

    With ReadWriteOnce the chart keeps the pods of a release together. Those of a round are of no release, and the room's pod, which mounts
    the same claims, follows the server.
    """
    for each in part if isinstance(part, list) else part.values() if isinstance(part, dict) else ():
        _follow(each, labels)
    if isinstance(part, dict):
        for term in (part.get("podAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution", ()):
            term["labelSelector"] = {"matchLabels": dict(labels)}


def _flat(manifests: Path) -> Iterator[dict[str, Any]]:
    try:
        documents = list(yaml.safe_load_all(manifests.read_text(encoding="utf-8")))
    except OSError as error:
        raise UserError(f"{manifests}: {error.strerror}; {WRITE}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{manifests}: is not YAML ({error}); {WRITE}") from None
    for document in documents:
        if isinstance(document, dict):
            yield from document["items"] if document.get("kind") == "List" else [document]


def _needed(document: Mapping[str, Any]) -> bool:
    """Tell whether an object of the rendering is a training job, what it is made of, or its phase."""
    labels = document.get("metadata", {}).get("labels") or {}
    if document.get("kind") == "ConfigMap":
        return "phase.json" in (document.get("data") or {}) and labels.get("app.kubernetes.io/component") == "run"
    return document.get("kind") in KINDS
