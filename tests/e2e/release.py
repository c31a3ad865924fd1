"""A release of the phase of seconds by plain Helm, next to the demo's: what it serves, what it trained, and what is there of it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from embedded_cluster.builds import build
from kubernetes import config, dynamic
from waiting import until

from e2e import machine
from e2e.commands import kubectl, objects, serving, sh

NAME = "life"
OURS = ("-l", f"app.kubernetes.io/instance={NAME}")
QUESTIONS = ("What do I do with a frozen turkey?", "My roommate touched the toaster's bare wire. What comes first?")
SHORT = (
    "phase.data.heldout_rows=2,phase.train.epochs=2,phase.train.checkpoints=1,"
    "phase.resources.processes_per_node=1,phase.resources.cpu=600m,"
    "phase.evaluate.generate_rows=1,phase.evaluate.max_new_tokens=8,"
    "phase.gate.metric=answer_loss,phase.gate.require_taught=false,phase.gate.max_fact_recall_drop=1"
)
"""Two of three epochs and little to score, whose loss gets better; a node has no whole core left beside the demo."""
KINDS = "pytorchjobs,jobs,cronjobs,configmaps,secrets,services,deployments,servingruntimes,inferenceservices"
KINDS += ",serviceaccounts,roles,rolebindings,ingresses"
GIVEN = {"configmap/kube-root-ca.crt", "serviceaccount/default"}
DECIDED = ("gate.json", "lora_adapter/adapter_model.safetensors")
SECONDS = 600.0
ALL_REVISIONS = {"HELM_MAX_HISTORY": "0"}
"""By default Helm forgets the first of more than ten."""


def given() -> list[str]:
    """The phase, shortened, with the site file that site.yml wrote for the demo."""
    files = ("values/quick.yaml", "values/local/quick.yaml", str(machine.ARTIFACTS / "site.yaml"))
    return [*(word for file in files for word in ("-f", file)), "--set", SHORT, "--set-json", "phase.questions=[]"]


def question(model: str, asked: str) -> dict[str, Any]:
    """The body of a request for an answer."""
    return {"model": model, "temperature": 0, "messages": [{"role": "user", "content": asked}]}


def answer(namespace: str, service: str, model: str, asked: str) -> dict[str, Any]:
    """Ask an InferenceService through the API server, which finds a headless Service's pods as well; the host has no route to those."""
    to = f"/api/v1/namespaces/{namespace}/services/http:{service}-predictor:http/proxy/v1/chat/completions"
    client = dynamic.DynamicClient(config.new_client_from_config(str(machine.KUBECONFIG)))
    body = question(model, asked)
    said = json.loads(client.request("post", to, body=body, content_type="application/json", serialize=False).data)
    return {"text": said["choices"][0]["message"]["content"], "tokens": said["usage"]["completion_tokens"]}


@dataclass
class Release:
    """One release in a namespace of its own."""

    program: str
    namespace: str
    revisions: list[dict[str, Any]] = field(default_factory=list)
    """What was served and there with each revision, and the runs that were complete."""

    def helm(self, *argv: str, ok: bool | None = True) -> str:
        """Run this Helm program in the namespace."""
        return sh(str(build.binary(self.program)), "-n", self.namespace, *argv, ok=ok, env=ALL_REVISIONS)

    def upgrade(self, *more: str, ok: bool | None = True) -> str:
        """Install or upgrade it."""
        return self.helm("upgrade", "--install", NAME, "charts/trainjob", *given(), *more, ok=ok)

    def decided(self) -> str:
        """Wait until the run is trained and its promotion has acted; return what that said."""
        for what, end in (("pytorchjobs", "Succeeded"), ("jobs", "Complete")):
            kubectl("-n", self.namespace, "wait", what, *OURS, f"--for=condition={end}", f"--timeout={SECONDS:.0f}s")
        return kubectl("-n", self.namespace, "logs", *OURS, "-l", "app.kubernetes.io/component=promote")

    def servers(self) -> list[dict[str, Any]]:
        """Pods of the server that are not on their way out."""
        pods = objects("pods", self.namespace, "-l", serving(NAME))
        return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]

    def answers(self, model: str = "tuned") -> list[dict[str, Any]]:
        """Ask what the InferenceService names, once its server is the only one and ready: texts and counts of tokens."""
        until(self._ready, SECONDS, lambda: kubectl("-n", self.namespace, "get", "pods,events", "-o", "wide"), 1)
        return [answer(self.namespace, NAME, model, asked) for asked in QUESTIONS]

    def _ready(self) -> bool:
        (service,) = objects("inferenceservices", self.namespace) or [{}]
        wanted = service.get("spec", {}).get("predictor", {}).get("model", {}).get("runtime")
        pods = self.servers()
        if len(pods) != 1:
            return False
        phases = [pod["configMap"]["name"] for pod in pods[0]["spec"]["volumes"] if "configMap" in pod]
        ready = [
            condition["status"]
            for condition in pods[0].get("status", {}).get("conditions", [])
            if condition["type"] == "Ready"
        ]
        return phases == [wanted] and ready == ["True"]

    def there(self) -> set[str]:
        """Kinds and names of all that is there but the claims and Helm's own records."""
        items = json.loads(kubectl("-n", self.namespace, "get", KINDS, "-o", "json"))["items"]
        names = {f"{item['kind'].lower()}/{item['metadata']['name']}" for item in items}
        return {name for name in names - GIVEN if not name.startswith("secret/sh.helm.release.")}

    def claims(self) -> dict[str, str]:
        """Name and uid of each claim."""
        found = objects("persistentvolumeclaims", self.namespace)
        return {one["metadata"]["name"]: one["metadata"]["uid"] for one in found}

    def job(self) -> str:
        """The uid of the training job."""
        (job,) = objects("pytorchjobs", self.namespace)
        return str(job["metadata"]["uid"])

    def trained(self) -> dict[str, int]:
        """When each run wrote what its gate decided on, in ns, as the host sees the volume."""
        volume = machine.FOLDER.glob(f"share/rwx/*_{self.namespace}_{NAME}-runs/{NAME}-????????")
        files = [run / name for run in volume for name in DECIDED]
        return {f"{file.parent.name}/{file.name}": file.stat().st_mtime_ns for file in files if file.exists()}

    def first(self) -> str:
        """The run that was decided on first."""
        return Path(min((time, name) for name, time in self.trained().items())[1]).parent.name

    def keep(self) -> dict[str, Any]:
        """Record the state of the current revision."""
        self.revisions.append(self.state())
        return self.revisions[-1]

    def state(self) -> dict[str, Any]:
        """All that has to come back with a revision."""
        return {"answers": self.answers(), "there": self.there(), "claims": self.claims()}
