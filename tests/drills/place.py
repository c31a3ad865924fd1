"""A release of the phase of seconds on the embedded cluster: installed, looked at from the host, and removed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from embedded_cluster import identity, paths

REPO = Path(__file__).resolve().parents[2]
NAMESPACE, RELEASE = "drills", "drill"
CHECKPOINTS = 4
SETTINGS = (
    "phase.resources.nodes=2,phase.resources.processes_per_node=1,phase.resources.cpu=300m,"
    "phase.data.train_rows=24,phase.data.heldout_rows=2,phase.train.epochs=4,"
    f"phase.train.checkpoints={CHECKPOINTS},phase.evaluate.generate_rows=1,phase.evaluate.max_new_tokens=4,"
    "site.serving=false,site.storage.models.size=1Gi,site.storage.runs.size=2Gi"
)
"""The phase of seconds in two pods, 12 steps with a checkpoint every three, and little to score."""
WEIGHTS = "lora_adapter/adapter_model.safetensors"
OPERATORS = {"pytorchjob": "kubeflow", "trainjob": "kubeflow-system"}
ENDS = {"pytorchjob": "Succeeded", "trainjob": "Complete"}


@dataclass
class Place:
    """One kind of job; the model volume stays from run to run, the run directory does not."""

    api: str
    image: str
    services: str = field(default_factory=lambda: str(identity.checked_subnets(dict(os.environ))[2]))

    @property
    def operator(self) -> str:
        """Namespace of the operator of this kind of job."""
        return OPERATORS[self.api]

    @property
    def plural(self) -> str:
        """The resource of this kind of job."""
        return f"{self.api}s"

    def kubectl(self, *argv: str, namespace: str = NAMESPACE, ok: bool = True) -> str:
        """Run kubectl in a namespace and return what it printed."""
        return self._run(paths.BIN / "kubectl", "-n", namespace, *argv, ok=ok)

    def helm(self, *argv: str) -> str:
        """Run Helm in the drills' namespace."""
        return self._run(paths.BIN / "helm", "-n", NAMESPACE, *argv)

    def install(self) -> None:
        """Install the release."""
        values = ("-f", "values/quick.yaml", "-f", "values/local/quick.yaml", "-f", self.image)
        more = ("--set", f"{SETTINGS},site.trainingApi={self.api}", "--set-json", "phase.questions=[]")
        self.helm("install", RELEASE, "charts/trainjob", "--create-namespace", *values, *more)

    def remove(self) -> None:
        """Remove release and run; the volumes stay."""
        self._run(paths.BIN / "helm", "-n", NAMESPACE, "uninstall", RELEASE, "--wait", ok=False)
        self.kubectl("wait", "pods", "--all", "--for=delete", "--timeout=120s", ok=False)
        if folder := self.run_dir():
            shutil.rmtree(folder)

    def run_dir(self) -> Path | None:
        """The run directory as the host sees it."""
        return next(paths.CLUSTER.glob(f"share/rwx/*_{NAMESPACE}_{RELEASE}-runs/{RELEASE}-????????"), None)

    def step(self) -> int:
        """The last step that rank 0 left, 0 before the first."""
        with contextlib.suppress(OSError, ValueError, TypeError):
            return int((self.run_dir() / "last_step").read_text())  # type: ignore[operator]
        return 0

    def pods(self) -> list[str]:
        """Names of the training pods."""
        found = self.kubectl("get", "pods", "-l", "app.kubernetes.io/component=train", "-o", "name")
        return sorted(name.removeprefix("pod/") for name in found.split())

    def ranks(self) -> dict[int, int]:
        """Process of each rank."""
        found: dict[int, int] = {}
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = dict(part.split("=", 1) for part in (folder / "environ").read_text().split("\0") if "=" in part)
                if words.get("TRAINLAB_RUN", "").startswith(f"{RELEASE}-") and "TORCHELASTIC_RUN_ID" in words:
                    found[int(words["RANK"])] = int(folder.name)
        return found

    def end(self, seconds: float) -> str:
        """Wait for the job's end; return its condition, or why there is none."""
        limit = time.monotonic() + seconds
        while time.monotonic() < limit:
            with contextlib.suppress(subprocess.CalledProcessError, ValueError, KeyError):
                jobs: list[Any] = json.loads(self.kubectl("get", self.plural, "-o", "json"))["items"]
                for one in jobs[0].get("status", {}).get("conditions", []) if jobs else []:
                    if one["type"] in (ENDS[self.api], "Failed") and one["status"] == "True":
                        return str(one["type"])
            time.sleep(1)
        return f"no end after {seconds:.0f} s"

    def weights(self) -> str:
        """SHA-256 of what was trained."""
        folder = self.run_dir()
        return hashlib.sha256((folder / WEIGHTS).read_bytes()).hexdigest() if folder else ""

    def _run(self, *argv: Any, ok: bool = True) -> str:
        done = subprocess.run(
            [str(word) for word in argv],
            cwd=REPO,
            env={**os.environ, "KUBECONFIG": str(paths.KUBECONFIG)},
            capture_output=True,
            text=True,
            check=False,
        )
        if ok and done.returncode:
            raise subprocess.CalledProcessError(done.returncode, argv, done.stdout, done.stderr)
        return done.stdout
