"""What happens inside the virtual machine, from its boot to its power-off; started by the unit that disks.py writes.

Everything it prints goes to a serial port and from there to a file on the host. Lines that start with MARK are
JSON and end a stage: {"stage", "ok", "seconds", "said"}. A stage that fails ends the run, but not the teardown.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import traceback
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from e2e import machine

REPO = Path(__file__).resolve().parents[2]
MARK = "@@ "
SPACE = "first-mile"
OPERATORS = ("local-path-provisioner", "training-operator", "kserve")
ASKED = Path("/etc/trainlab-vm.json")
"""The test's parameters: the trainer image, and how long a wait may take."""
KUBECTL = (str(machine.HOME / "cache/bin/kubectl"), "--kubeconfig", str(machine.KUBECONFIG))
BEAT_SECONDS = 30
SETTLE_TRIES = 20


def asked() -> dict[str, Any]:
    """The content of ASKED."""
    return dict(json.loads(ASKED.read_text()))


def say(text: str) -> None:
    """Print a line at once."""
    print(text, flush=True)


def sh(*argv: str, ok: bool = True) -> str:
    """Run a command, print its output line by line and return it; fails when it fails, unless `ok` is unset."""
    say(f"$ {' '.join(argv)}")
    env = {**machine.ENVIRONMENT, "KUBECONFIG": str(machine.KUBECONFIG)}
    lines = []
    with subprocess.Popen(
        argv, cwd=REPO, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as running:
        for line in running.stdout or ():
            say(line.rstrip())
            lines.append(line)
    text = "".join(lines)
    if ok and running.returncode:
        raise RuntimeError(f"{' '.join(argv)} ended with {running.returncode}:\n{text[-3000:]}")
    return text


def cluster(*argv: str) -> str:
    """Run a command of the embedded cluster."""
    return sh(sys.executable, "cluster", *argv)


def kubectl(*argv: str, ok: bool = True) -> str:
    """kubectl of the embedded cluster."""
    return sh(*KUBECTL, *argv, ok=ok)


def helm(*argv: str) -> str:
    """Helm 3 of the embedded cluster."""
    return sh(str(machine.HOME / "cache/bin/helm"), "--namespace", SPACE, *argv)


def quiet(*argv: str) -> str:
    """The output of a command, without its errors."""
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout.strip()


def system() -> dict[str, Any]:
    """systemd's view of the machine, and the modules that involve the cluster."""
    failed = quiet("systemctl", "list-units", "--failed", "--plain", "--no-legend")
    loaded = {line.split()[0] for line in Path("/proc/modules").read_text().splitlines()}
    return {
        "state": quiet("systemctl", "is-system-running"),
        "failed": failed.splitlines(),
        "br_netfilter": "br_netfilter" in loaded,
        "modules": sorted(loaded),
    }


def boot() -> dict[str, Any]:
    """Wait until systemd has started everything; return what the machine is."""
    quiet("systemctl", "is-system-running", "--wait")
    return {
        "debian": Path("/etc/debian_version").read_text().strip(),
        "kernel": os.uname().release,
        "cgroups": quiet("stat", "-f", "-c", "%T", "/sys/fs/cgroup"),
        "systemd": quiet("systemctl", "--version").splitlines()[0],
        "python": sys.version.split()[0],
        "memory_mib": machine_memory(),
        **system(),
    }


def machine_memory() -> int:
    """MiB that are available."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("MemAvailable"))


def settled() -> dict[str, list[str]]:
    """The machine once two snapshots are equal: systemd's own short-lived services come and go after the boot."""
    last = machine.snapshot()
    for _ in range(SETTLE_TRIES):
        time.sleep(BEAT_SECONDS)
        now = machine.snapshot()
        if not machine.changes(last, now):
            return now
        say(f"    the machine is still changing by itself: {machine.changes(last, now)}")
        last = now
    return last


def up() -> dict[str, Any]:
    """A cluster of one node; a second run changes nothing."""
    first = cluster("up", "--nodes", "1")
    assert first.endswith("changed=true\n")
    assert cluster("up", "--nodes", "1").endswith("changed=false\n")
    kubectl("get", "nodes,pods", "-A", "-o", "wide")
    return {"nodes": machine.ready_nodes()}


def operators() -> dict[str, Any]:
    """Those that a phase by plain Helm needs."""
    cluster("operators", *OPERATORS)
    kubectl("get", "pods", "-A")
    return {"memory_mib": machine_memory()}


def train() -> dict[str, Any]:
    """A real network, gate and server, but as little computation as passes the gate; by plain Helm.

    After new CRDs the API server builds its schema anew for the first who asks, and keeps it. Emulated, that can take more than the
    32 s that client-go's discovery, so Helm, waits for the whole of it (seen once: INSTALLATION FAILED, context deadline exceeded):
    whoever asks without such a limit goes first.
    """
    kubectl("create", "namespace", SPACE)
    begin = time.monotonic()
    schema = quiet(*KUBECTL, "get", "--raw", "/openapi/v2")
    say(f"    the API's schema: {len(schema)} bytes after {time.monotonic() - begin:.0f} s")
    assert schema
    files = ("-f", "values/resnet.yaml", "-f", "values/local/resnet.yaml", "-f", "tests/vm/short.yaml")
    helm("install", "resnet", "charts/trainjob", *files, "--set", f"site.images.trainer={asked()['image']}")
    ended = kubectl_until("pytorchjobs", ("Succeeded", "Failed"), "Succeeded")
    kubectl("-n", SPACE, "logs", "-l", "app.kubernetes.io/component=train", "--tail=40")
    return {"job": ended}


def kubectl_until(kind: str, ends: tuple[str, ...], wanted: str) -> str:
    """Wait until the only object of a kind has one of the conditions `ends`, and it is the wanted one."""
    begin = time.monotonic()
    command = (*KUBECTL, "-n", SPACE)
    while True:
        listed = json.loads(quiet(*command, "get", kind, "-o", "json") or "{}").get("items", [])
        conditions = [condition for item in listed for condition in item.get("status", {}).get("conditions", [])]
        reached = [
            condition["type"] for condition in conditions if condition["status"] == "True" and condition["type"] in ends
        ]
        if reached:
            assert wanted in reached, f"{kind}: {conditions}"
            return reached[0]
        passed = time.monotonic() - begin
        assert passed < asked()["stage_seconds"], f"{kind}: none of {ends} after {passed:.0f} s: {conditions}"
        say(f"    waiting for {kind} to be {wanted}: {passed:.0f} s, available {machine_memory()} MiB")
        say(quiet(*command, "get", "pods", "--no-headers"))
        say(quiet(*command, "logs", "-l", "app.kubernetes.io/component=train", "--prefix", "--tail=2"))
        time.sleep(BEAT_SECONDS)


def serve() -> dict[str, Any]:
    """Promoted, and answering through its Service; `helm test` compares the answers with those of the run."""
    kubectl_until("jobs", ("Complete", "Failed"), "Complete")
    kubectl_until("inferenceservices", ("Ready",), "Ready")
    address = kubectl("-n", SPACE, "get", "service", "resnet-predictor", "-o", "jsonpath={.spec.clusterIP}").strip()
    with urllib.request.urlopen(f"http://{address}/v2/models/tuned", timeout=120) as reply:
        told = json.loads(reply.read())
    say(json.dumps(told))
    helm("test", "resnet", "--timeout", "15m")
    return {"model": told}


def down() -> dict[str, Any]:
    """The cluster is gone; a second run has nothing to do."""
    cluster("down")
    assert cluster("down").endswith("changed=false\n")
    return {}


def diagnose() -> None:
    """What one would look at when a stage failed."""
    kubectl("get", "pods,jobs,pytorchjobs,inferenceservices", "-A", "-o", "wide", ok=False)
    kubectl("get", "events", "-A", "--sort-by=.lastTimestamp", ok=False)
    kubectl("-n", SPACE, "logs", "--all-containers", "--tail=30", "-l", "app.kubernetes.io/instance=resnet", ok=False)
    logs = machine.FOLDER / "nodes" / "n1" / "root" / "var" / "log"
    for log in [*(machine.FOLDER / "log").glob("*.log"), logs / "kubelet.log", logs / "containerd.log"]:
        sh("tail", "-n", "25", str(log), ok=False)
    sh("dmesg", "--level=err,warn", ok=False)


def stage(name: str, work: Callable[[], dict[str, Any]]) -> bool:
    """Run a stage and print its mark; returns whether it was reached."""
    say(f"===== {name}")
    begin = time.monotonic()
    try:
        said, ok = work(), True
    except Exception:
        said, ok = {"error": traceback.format_exc()[-4000:]}, False
    say(MARK + json.dumps({"stage": name, "ok": ok, "seconds": round(time.monotonic() - begin, 1), "said": said}))
    return ok


def main() -> None:
    """All stages, one after the other; the teardown and the comparison in any case."""
    if not stage("boot", boot):
        return
    before, as_it_was = settled(), system()

    def after() -> dict[str, Any]:
        changes = machine.changes(before, settled())
        now = system()
        new = sorted(set(now.pop("modules")) - set(as_it_was["modules"]))
        was = {key: value for key, value in as_it_was.items() if key != "modules"}
        return {"changes": changes, "was": was, "is": now, "modules_new": new}

    checked = {"check": lambda: {"said": cluster("check", "--nodes", "1")}, "up": up, "operators": operators}
    reached = all(stage(name, work) for name, work in {**checked, "train": train, "serve": serve}.items())
    if not reached:
        diagnose()
    stage("down", down)
    stage("after", after)


if __name__ == "__main__":
    main()
