"""A real etcd, kube-apiserver and namespace controller on loopback, with test-only operators: a cluster without nodes.

Used by tests/api/conftest.py and __main__.py. The programs come from the embedded cluster's command `build`.
"""

from __future__ import annotations

import functools
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import yaml
from embedded_cluster.base import paths, programs
from embedded_cluster.builds import build
from embedded_cluster.nodes import operators
from ports import free_port

from api_server import bundles
from api_server.client import Client

PATH = (str(Path(__file__).resolve().parents[1]), str(paths.PACKAGE.parent))
"""Where the Python processes find this package and that of the embedded cluster."""
START_SECONDS = 180.0
CONTROLLERS = "namespace-controller,garbage-collector-controller,resourcequota-controller"


class Server:
    """One such cluster in `folder`; may be started by one process and stopped by another.

    `mortal` ends it with the thread that started it: pytest's workers are killed on Ctrl-C before they could stop it.
    """

    def __init__(self, folder: Path, mortal: bool = False) -> None:
        """Start nothing before `start`."""
        self.folder, self._before = folder, programs.with_us() if mortal else ()
        self.kubeconfig = folder / "kubeconfig"
        self.nobody = folder / "kubeconfig-nobody"
        self.shaky = folder / "kubeconfig-shaky"
        """The kubeconfig for the same API server with the faults of proxy.py."""
        self._pids, self._bare = folder / "pids.json", folder / "bare.json"

    def start(self) -> None:
        """Start everything and return when the operators are watching; RuntimeError with the log's end otherwise."""
        operators.make_programs(only=[])
        shutil.rmtree(self.folder, ignore_errors=True)
        (self.folder / "bin").mkdir(parents=True, mode=0o700)
        self.fault({})
        for name in ("kube-apiserver", "kube-controller-manager"):
            (self.folder / "bin" / name).symlink_to(build.binary("kubernetes"))
        etcd, peer, api, proxy = (free_port() for _ in range(4))
        self._configure(api, proxy)
        self._run(
            "etcd",
            [
                str(build.binary("etcd")),
                f"--data-dir={self.folder / 'etcd'}",
                f"--listen-client-urls=http://127.0.0.1:{etcd}",
                f"--advertise-client-urls=http://127.0.0.1:{etcd}",
                f"--listen-peer-urls=http://127.0.0.1:{peer}",
                "--unsafe-no-fsync",
            ],
        )
        key = self.folder / "sa.key"
        subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
        self._run(
            "kube-apiserver",
            [
                str(self.folder / "bin" / "kube-apiserver"),
                f"--etcd-servers=http://127.0.0.1:{etcd}",
                f"--secure-port={api}",
                "--bind-address=127.0.0.1",
                "--advertise-address=127.0.0.1",
                f"--cert-dir={self.folder / 'pki'}",
                f"--token-auth-file={self.folder / 'tokens.csv'}",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-account-signing-key-file={key}",
                f"--service-account-key-file={key}",
                "--service-cluster-ip-range=10.96.0.0/24",
                "--authorization-mode=RBAC",
                "--disable-admission-plugins=ServiceAccount",
                "--endpoint-reconciler-type=none",
            ],
        )
        self._await(self._answers, "kube-apiserver")
        self._run(
            "kube-controller-manager",
            [
                str(self.folder / "bin" / "kube-controller-manager"),
                f"--kubeconfig={self.kubeconfig}",
                f"--controllers={CONTROLLERS}",
                "--leader-elect=false",
                f"--secure-port={free_port()}",
                "--bind-address=127.0.0.1",
                f"--cert-dir={self.folder / 'pki-manager'}",
                "--concurrent-gc-syncs=2",
            ],
        )
        self._run("proxy", [sys.executable, "-m", "api_server.proxy", str(self.folder), str(proxy)])
        self._run("operators", [sys.executable, "-m", "api_server.operators_process", str(self.folder)])
        self._await((self.folder / "ready").exists, "operators")
        for name, pid in json.loads(self._pids.read_text(encoding="ascii")).items():
            self._await(functools.partial(_alive, pid), name, seconds=0.1)
        self._bare.write_text(json.dumps(sorted(Client(self.kubeconfig).objects())), encoding="utf-8")

    def left(self) -> list[str]:
        """Return the differences from the start: objects added or removed."""
        return sorted(Client(self.kubeconfig).objects() ^ set(json.loads(self._bare.read_text(encoding="utf-8"))))

    def trouble(self) -> set[str]:
        """Return what the proxy has done to requests so far: statuses, and where it cut connections."""
        lines = (self.folder / "proxy.log").read_text(encoding="utf-8").splitlines()
        return {line.split()[0] for line in lines}

    def _configure(self, port: int, proxy: int) -> None:
        users = {"admin": "system:masters", "nobody": "trainlab-nobody"}
        tokens = {user: secrets.token_hex(16) for user in users}
        lines = [f'{tokens[user]},{user},{user},"{group}"' for user, group in users.items()]
        (self.folder / "tokens.csv").write_text("\n".join(lines) + "\n", encoding="ascii")
        direct = {
            "server": f"https://127.0.0.1:{port}",
            "certificate-authority": str(self.folder / "pki" / "apiserver.crt"),
        }
        for user, file, way in (
            ("admin", self.kubeconfig, direct),
            ("nobody", self.nobody, direct),
            ("admin", self.shaky, {"server": f"http://127.0.0.1:{proxy}"}),
        ):
            config = {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "test", "cluster": way}],
                "users": [{"name": user, "user": {"token": tokens[user]}}],
                "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
                "current-context": "test",
            }
            file.write_text(yaml.safe_dump(config), encoding="utf-8")
            file.chmod(0o600)

    def _run(self, name: str, command: list[str]) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [*self._before, *command],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(PATH)},
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
            )
        pids = json.loads(self._pids.read_text(encoding="ascii")) if self._pids.exists() else {}
        self._pids.write_text(json.dumps(pids | {name: process.pid}), encoding="ascii")

    def _answers(self) -> bool:
        try:
            return (self.folder / "pki" / "apiserver.crt").exists() and Client(self.kubeconfig).ready()
        except OSError:
            return False

    def _await(self, ready: Callable[[], bool], name: str, seconds: float = START_SECONDS) -> None:
        end = time.monotonic() + seconds
        pid = json.loads(self._pids.read_text(encoding="ascii"))[name]
        while time.monotonic() < end and _alive(pid):
            if ready():
                return
            time.sleep(0.3)
        tail = "\n".join((self.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace").splitlines()[-15:])
        self.stop()
        raise RuntimeError(f"{name} ended, or did not start in {seconds:.0f} s:\n{tail}")

    def fault(self, faults: dict[str, str]) -> None:
        """Set the operators' faults from now on; {} repairs everything. Returns when they have acted on it."""
        part, done, told = self.folder / "faults.part", self.folder / "faults.done", json.dumps(faults)
        part.write_text(told, encoding="ascii")
        part.replace(self.folder / "faults.json")
        if (self.folder / "ready").exists():
            done.unlink(missing_ok=True)
            self._await(lambda: done.exists() and done.read_text(encoding="ascii") == told, "operators")

    def replay(self, statuses: Path | None) -> None:
        """Let the operators report what a bundle recorded, or what our files say, and forget all faults; on a bare cluster."""
        self.fault({bundles.BUNDLE: str(statuses)} if statuses else {})

    def stop(self) -> None:
        """End the processes and remove the folder."""
        if not self._pids.exists():
            return
        pids: dict[str, int] = json.loads(self._pids.read_text(encoding="ascii"))
        for pid in reversed(pids.values()):
            if _alive(pid):
                os.kill(pid, signal.SIGKILL)  # nothing of it is kept
        for pid in pids.values():
            while _alive(pid):
                time.sleep(0.05)
        shutil.rmtree(self.folder)


def _alive(pid: int) -> bool:
    try:
        if os.waitpid(pid, os.WNOHANG)[0] == pid:
            return False
    except ChildProcessError:
        pass
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
