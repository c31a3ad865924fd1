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

import yaml
from embedded_cluster.base import cgroups, paths
from waiting import until

from drills import volume

REPO = Path(__file__).resolve().parents[2]
NAMESPACE, RELEASE = "drills", "drill"
CLAIM = f"{NAMESPACE}_{RELEASE}-runs"
CHECKPOINTS = 4
PATIENCE = 900.0
"""Seconds for a run with its restarts."""
RANKS = 2
EPOCHS = 4
SETTINGS: dict[str, Any] = {
    "data": {"train_rows": 24, "heldout_rows": 2},
    "evaluate": {"generate_rows": 1, "max_new_tokens": 4},
    "questions": [],
}
"""The phase of seconds, three steps an epoch, a checkpoint after each fourth of them, and little to score."""
STORAGE = {"models": {"size": "1Gi"}, "runs": {"size": "2Gi"}}
WEIGHTS = "lora_adapter/adapter_model.safetensors"
OPERATORS = {"pytorchjob": "kubeflow", "trainjob": "kubeflow-system"}
ENDS = {"pytorchjob": "Succeeded", "trainjob": "Complete"}


@dataclass
class Place:
    """One kind of job in one pod or two; the model volume stays from run to run, the run directory does not."""

    api: str
    pods_wanted: int
    site: str
    resources: dict[str, Any] = field(default_factory=dict)
    epochs: int = EPOCHS
    playbook: subprocess.Popen[bytes] | None = None
    said: Path | None = None
    before: list[str] = field(default_factory=list)

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

    def helm(self, *argv: str, given: str = "") -> str:
        """Run Helm in the drills' namespace, with `given` as stdin."""
        return self._run(paths.BIN / "helm", "-n", NAMESPACE, *argv, given=given)

    def install(self) -> None:
        """Install the release by Helm."""
        values = ("-f", "values/quick.yaml", "-f", "values/local/quick.yaml", "-f", self.site, "-f", "-")
        self.helm("install", RELEASE, "charts/trainjob", "--create-namespace", *values, given=self._values())

    def variables(self) -> dict[str, Any]:
        """What playbooks are given for the same release."""
        site = yaml.safe_load((REPO / self.site).read_text())["site"]
        own = json.loads(self._values())
        for name, sizes in STORAGE.items():
            site["storage"][name] |= sizes
        return {
            "phase": "quick",
            "trainlab_namespace": NAMESPACE,
            "trainlab_release": RELEASE,
            "trainlab_phase_overrides": own["phase"],
            "trainlab_site": site | own["site"] | {"storage": site["storage"]},
            "image_ref": site["images"]["trainer"],
        }

    def play(self, log: Path) -> subprocess.Popen[bytes]:
        """Start playbooks/train.yml for the same release."""
        extra = json.dumps(self.variables())
        argv = [".venv/bin/ansible-playbook", "-i", "inventory/local", "playbooks/train.yml", "-e", extra]
        with log.open("ab") as out:
            return subprocess.Popen(argv, cwd=REPO, stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    def cordon(self, node: str, closed: bool) -> None:
        """Close a node to new pods, or open it."""
        self._run(paths.BIN / "kubectl", "cordon" if closed else "uncordon", node)

    def uninstall(self) -> None:
        """Remove the release, and wait for its pods' end; volumes and run stay."""
        self._run(paths.BIN / "helm", "-n", NAMESPACE, "uninstall", RELEASE, "--wait", ok=False)
        self.kubectl("wait", "pods", "--all", "--for=delete", "--timeout=120s", ok=False)

    def remove(self) -> None:
        """Remove release and run; the volumes stay."""
        self.uninstall()
        if folder := self.run_dir():
            shutil.rmtree(folder)

    def claim(self) -> None:
        """Have the volume of runs, also where a cluster is newer than the table."""

        def there() -> bool:
            return any(volume.seen().glob(f"*_{CLAIM}"))

        if not there():
            self.install()
            until(there, PATIENCE, lambda: self.kubectl("get", "pvc,pods,events"))
            self.remove()

    def run_dir(self) -> Path | None:
        """The run directory as the first node sees it."""
        return next(volume.seen().glob(f"*_{CLAIM}/{RELEASE}-????????"), None)

    def step(self) -> int:
        """The last step that rank 0 left, 0 before the first."""
        with contextlib.suppress(OSError, ValueError, TypeError):
            return int((self.run_dir() / "last_step").read_text())  # type: ignore[operator]
        return 0

    def checkpoint(self) -> int:
        """The step of the newest whole checkpoint, 0 before the first."""
        folder = self.run_dir()
        whole = (folder / "checkpoints").glob("checkpoint-*/complete.json") if folder else ()
        return max((int(one.parent.name.rpartition("-")[2]) for one in whole), default=0)

    def starts(self) -> list[dict[str, Any]]:
        """The starts of the run with the steps that they `resumed` at and `reached`, as the trainer recorded them."""
        folder = self.run_dir()
        return list(json.loads((folder / "attempts.json").read_text())["starts"]) if folder else []

    def pods(self) -> list[str]:
        """Names of the training pods."""
        found = self.kubectl("get", "pods", "-l", "app.kubernetes.io/component=train", "-o", "name")
        return sorted(name.removeprefix("pod/") for name in found.split())

    def logs(self) -> str:
        """What the training pods said."""
        ours = "app.kubernetes.io/component=train"
        return self.kubectl("logs", "-l", ours, "--tail=-1", "--all-containers", "--max-log-requests=20")

    def jobs(self) -> list[str]:
        """UIDs of all jobs of this kind; the cluster need not have the operator of the other one."""
        return self.kubectl("get", self.plural, "-o", "jsonpath={.items[*].metadata.uid}").split()

    def ranks(self) -> dict[int, int]:
        """Process of each rank, in this cluster: another one of this machine may have drills, too."""
        result: dict[int, int] = {}
        for pid in cgroups.processes():
            with contextlib.suppress(OSError):
                text = Path(f"/proc/{pid}/environ").read_text()
                words = dict(part.split("=", 1) for part in text.split("\0") if "=" in part)
                name, _, number = Path(f"/proc/{pid}/comm").read_text().strip().partition(" ")
                if words.get("TRAINLAB_RUN", "").startswith(f"{RELEASE}-") and name == "rank":
                    result[int(number)] = pid
        return result

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

    def settled(self) -> None:
        """Wait for all operators: one that lost the API server starts again, and until then its webhooks refuse what comes next."""
        for kind, condition in (("nodes", "Ready"), ("deployments", "Available")):
            every = ("--all", "--all-namespaces", f"--for=condition={condition}", f"--timeout={PATIENCE:.0f}s")
            self._run(paths.BIN / "kubectl", "wait", kind, *every)  # which finds nothing with a namespace besides

    def weights(self) -> str:
        """SHA-256 of what was trained."""
        folder = self.run_dir()
        return hashlib.sha256((folder / WEIGHTS).read_bytes()).hexdigest() if folder else ""

    def _values(self) -> str:
        """The drills' own values, as JSON."""
        site = {"serving": False, "trainingApi": self.api, "storage": STORAGE}
        each = RANKS // self.pods_wanted
        resources = {"nodes": self.pods_wanted, "processes_per_node": each, "cpu": f"{300 * each}m"} | self.resources
        train = {"epochs": self.epochs, "checkpoints": CHECKPOINTS}
        return json.dumps({"phase": SETTINGS | {"train": train, "resources": resources}, "site": site})

    def _run(self, *argv: Any, ok: bool = True, given: str = "") -> str:
        done = subprocess.run(
            [str(word) for word in argv],
            cwd=REPO,
            env={**os.environ, "KUBECONFIG": str(paths.KUBECONFIG)},
            input=given,
            capture_output=True,
            text=True,
            check=False,
        )
        if ok and done.returncode:
            raise subprocess.CalledProcessError(done.returncode, argv, done.stdout, done.stderr)
        return done.stdout
