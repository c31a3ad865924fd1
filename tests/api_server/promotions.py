"""Promotion Jobs of the chart on the API server of training_api.py, which has no kubelet: their own command, as their own account."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import urlsplit

import numpy as np
import yaml
from safetensors.numpy import save_file
from trainlab import cli, files
from trainlab.run import kube

from api_server.client import Json
from api_server.releases import Releases

KSERVE = "serving.kserve.io"
KINDS = (
    *(("PyTorchJob", "kubeflow.org/v1"), ("TrainJob", "trainer.kubeflow.org/v1alpha1")),
    *(("TrainingRuntime", "trainer.kubeflow.org/v1alpha1"), ("Job", "batch/v1"), ("ConfigMap", "v1")),
    *(("ServiceAccount", "v1"), ("Role", "rbac.authorization.k8s.io/v1"), ("Secret", "v1")),
    *(("RoleBinding", "rbac.authorization.k8s.io/v1"), ("ServingRuntime", f"{KSERVE}/v1alpha1")),
    ("InferenceService", f"{KSERVE}/v1beta1"),
)


def account_of(helm: Releases, account: str, folder: Path) -> tuple[dict[str, str], Path]:
    """Return the environment of a pod of a service account, and the folder below `folder` with its token, so with its Role's rights."""
    path = f"/api/v1/namespaces/{helm.namespace}/serviceaccounts/{account}/token"
    token = helm.client.send("POST", path, {"spec": {}})["status"]["token"]
    config = yaml.safe_load(helm.server.kubeconfig.read_text(encoding="utf-8"))["clusters"][0]["cluster"]
    mounted = folder / "account"
    mounted.mkdir(exist_ok=True)
    (mounted / "token").write_text(token, encoding="ascii")
    (mounted / "namespace").write_text(helm.namespace, encoding="ascii")
    (mounted / "ca.crt").write_bytes(Path(config["certificate-authority"]).read_bytes())
    address = urlsplit(config["server"])
    return {
        "KUBERNETES_SERVICE_HOST": str(address.hostname),
        "KUBERNETES_SERVICE_PORT": str(address.port),
    }, mounted


class Promotions:
    """The volume of the runs, and what a kubelet does with a promotion Job."""

    def __init__(self, helm: Releases, folder: Path) -> None:
        """`folder` is the volume."""
        self.helm, self.folder, self._done = helm, folder, set[str]()

    def decide(self, run: str, promoted: bool) -> None:
        """Write what the gate of a run says, and weights that promotion can read."""
        (self.folder / run / "best_model").mkdir(parents=True, exist_ok=True)
        save_file({"weight": np.zeros(1, np.float32)}, self.folder / run / "best_model" / "model.safetensors")
        files.write_json(self.folder / run / "gate.json", {"promoted": promoted, "reasons": ["By numbers."]})

    def act(self, code: int = 0) -> None:
        """Run every promotion Job that has not run and whose run is decided; each exits with `code`."""
        for job in self.helm.client.items("batch/v1", "Job", self.helm.namespace):
            spec = job["spec"]["template"]["spec"]
            (container,) = spec["containers"]
            run = job["metadata"]["labels"]["trainlab.dev/run"]
            if job["metadata"]["uid"] in self._done or not (self.folder / run / "gate.json").exists():
                continue
            (source,) = [one["configMap"]["name"] for one in spec["volumes"] if "configMap" in one]
            held = self.helm.client.look("v1", "ConfigMap", source, self.helm.namespace)
            assert held, source
            manifests = self.folder / source
            manifests.mkdir(exist_ok=True)
            for name, text in held["data"].items():
                (manifests / name).write_text(text, encoding="utf-8")
            places = {"/runs": str(self.folder), "/etc/trainlab": str(manifests)}
            arguments = container["args"]
            for there, here in places.items():
                arguments = [argument.replace(f"={there}", f"={here}") for argument in arguments]
            self._run(spec["serviceAccountName"], [*container["command"][1:], *arguments], code)
            self._done.add(job["metadata"]["uid"])

    def _run(self, account: str, arguments: list[str], code: int) -> None:
        """Run the program with a token of the account, so with the rights of the chart's Role."""
        env, mounted = account_of(self.helm, account, self.folder)
        with (
            mock.patch.dict(os.environ, env),
            mock.patch.object(kube.Kube.in_cluster.__func__, "__defaults__", (mounted,)),  # type: ignore[attr-defined]
        ):
            try:
                cli.main(arguments)
            except SystemExit as end:
                assert end.code == code, end.code


def answers(helm: Releases, release: str = "demo") -> Json | None:
    """Return all that decides what a visitor gets, names left out; None without an InferenceService. Nothing of it may be missing."""
    service = helm.client.look(f"{KSERVE}/v1beta1", "InferenceService", release, helm.namespace)
    if service is None:
        return None
    model = service["spec"]["predictor"]["model"]
    runtime = helm.client.look(f"{KSERVE}/v1alpha1", "ServingRuntime", model["runtime"], helm.namespace)
    assert runtime, f"{model['runtime']} is gone"
    (source,) = [one["configMap"]["name"] for one in runtime["spec"]["volumes"] if "configMap" in one]
    phase = helm.client.look("v1", "ConfigMap", source, helm.namespace)
    assert phase, f"{source} is gone: the server could not start again"
    return {"service": service["spec"], "runtime": runtime["spec"], "phase": json.loads(phase["data"]["phase.json"])}


def there(helm: Releases) -> dict[str, Any]:
    """Return the names of all objects that a release may leave, and its claims as they are."""
    result: dict[str, Any] = {kind: helm.names(kind, api) for kind, api in KINDS}
    result["Secret"] = [name for name in result["Secret"] if not name.startswith("sh.helm.release")]
    claims = helm.client.items("v1", "PersistentVolumeClaim", helm.namespace)
    return result | {"claims": {claim["metadata"]["uid"]: claim["spec"] for claim in claims}}
