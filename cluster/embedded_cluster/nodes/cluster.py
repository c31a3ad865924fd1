"""Up, down and status of the cluster; called by commands.py. Nodes are processes in namespaces: cluster.sh, node.sh."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from embedded_cluster.base import cgroups, home, identity, locks, others, paths, patience, programs, running, say
from embedded_cluster.builds import build, modules, rootfs
from embedded_cluster.containers import image_store, images
from embedded_cluster.nodes import host, kept, kernel, layout

NEEDED = ("kubernetes", "etcd", "coredns", "resolves")
# on a machine like ours; patience.seconds multiplies them
READY_SECONDS = 240.0
START_SECONDS = 20.0  # until the first process of every node exists
REQUEST_SECONDS = 3.0
POLL_SECONDS = 0.3
LOG_LINES = 15


def kubectl(*argv: str) -> subprocess.CompletedProcess[str]:
    """Run kubectl on the host against the cluster; its cache stays in the cluster's folder."""
    env = {**os.environ, "KUBECONFIG": str(paths.KUBECONFIG), "KUBECACHEDIR": str(paths.CLUSTER / "kubecache")}
    command = [str(build.binary("kubernetes")), "kubectl", *argv]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def ready_nodes(since: float = 0.0) -> dict[str, bool]:
    """Node name -> whether it is Ready, and its kubelet was heard of after `since` (seconds since the epoch).

    Empty when the API server does not answer.
    """
    objects = _listed("nodes", "leases")
    # A kubelet renews its lease every 10 s, and reports an unchanged state, which may be of before a reboot, every 5 minutes.
    leases = [(each["metadata"]["name"], each["spec"]) for each in objects if each["kind"] == "Lease"]
    heard = {name: _seconds(spec["renewTime"]) for name, spec in leases if "renewTime" in spec}
    result = {}
    for node in (each for each in objects if each["kind"] == "Node"):
        name = node["metadata"]["name"]
        result[name] = _is_ready(node) and heard.get(name, 0.0) >= since
    return result


def _listed(*kinds: str) -> list[dict[str, Any]]:
    """Objects of all namespaces as the API server has them; none when it does not answer."""
    limit = f"--request-timeout={patience.seconds(REQUEST_SECONDS):.0f}s"
    done = kubectl("get", ",".join(kinds), "--all-namespaces", "-o", "json", limit)
    items: list[dict[str, Any]] = [] if done.returncode else json.loads(done.stdout)["items"]
    return items


def _seconds(written: str) -> float:
    """Seconds since the epoch of a time as Kubernetes writes it (RFC 3339)."""
    return datetime.fromisoformat(written).astimezone(UTC).timestamp()


def complete(count: int) -> bool:
    """Whether the first process of each of `count` nodes lives, and the host's link to them is there, and they are of this home."""
    return running.nodes() == _names(count) and host.link_exists() and host.owner() == paths.HOME


def _names(count: int) -> list[str]:
    return [f"n{number}" for number in range(1, count + 1)]


def parts_lock() -> AbstractContextManager[None]:
    """Let one command at a time make programs and images; others wait for it."""
    return locks.waiting(paths.CACHE / "parts.lock", "another command is making programs or images")


def make_parts(force: bool = False) -> bool:
    """Make the programs, root folder and images that `up` needs and that are missing. Returns whether any was."""
    with parts_lock():
        built = build.build_all(NEEDED)
        link_programs()
        return images.ensure(force) or built


def link_programs() -> None:
    """Link kubectl and helm under their own names in BIN, for people and playbooks."""
    for name, component in (("kubectl", "kubernetes"), ("helm", "helm"), ("helm4", "helm4")):
        target, link = build.binary(component).name, paths.BIN / name
        if (paths.BIN / target).exists() and not (link.is_symlink() and str(link.readlink()) == target):
            part = link.with_name(f".{name}.part")
            part.unlink(missing_ok=True)
            part.symlink_to(target)
            part.replace(link)


def up(count: int, recreate: bool = False) -> bool:
    """Bring up a cluster of `count` nodes; returns False when exactly that is already running.

    A stopped one, as after a reboot, is started with what it holds. Raises say.UserError, and has changed nothing, when an
    existing cluster cannot be kept and `recreate` does not allow to remove it.
    """
    if not 1 <= count <= layout.MAX_NODES:
        raise say.UserError(f"--nodes {count}: give 1 to {layout.MAX_NODES}")
    with host.lock():
        keeps = kept.require(count, recreate)
        parts = make_parts()
        if keeps and complete(count):
            return _wait_until_ready(count) or parts
        bring, undo = (_start_again, host.stop) if keeps else (_make, host.clear)
        try:
            bring(count)
        except KeyboardInterrupt:
            with say.step(f"take the {'half started' if keeps else 'unfinished'} cluster down"):
                undo()
            raise
        return True


def _make(count: int) -> None:
    """Bring up a cluster in place of whatever exists."""
    begin = time.monotonic()
    with say.step("clear what an earlier cluster left"):
        host.clear()
        _drop_older()
    _require_subnets()
    with say.step(f"prepare {count} node folders"):
        _prepare(count)
    with say.step(f"start {count} nodes and their control plane", patience.seconds(READY_SECONDS)):
        _start(count)
        _wait(count, "kubeadm init", (running.share() / "admin.conf").exists)
        _publish(count)
    _wait_for_nodes(count)
    say.info(f"{count} nodes Ready {time.monotonic() - begin:.1f} s after the start")
    _wait_for_dns(count)


def _start_again(count: int) -> None:
    """Start the nodes of an existing cluster, whose processes are gone or partly gone, with all that they hold."""
    begin = time.monotonic()
    _require_subnets()
    with say.step("end what is left of the nodes' processes"):
        host.stop()
        for left in ("run/*", "share/*.failed"):
            for file in paths.CLUSTER.glob(left):
                file.unlink()
    since = time.time()
    with say.step(f"start {count} nodes again, with what they hold", patience.seconds(READY_SECONDS)):
        for number in range(1, count + 1):
            layout.renew(number, count)
        _start(count)
        _wait(count, "the API server", lambda: bool(ready_nodes()))
    _wait_for_nodes(count, since)
    with say.step("all pods started again", patience.seconds(READY_SECONDS)):
        _wait(count, "all pods started again", lambda: not _stale(since))
    _wait_for_dns(count)
    _load_missing()
    say.info(f"{count} nodes Ready again {time.monotonic() - begin:.1f} s after the start")


def _stale(since: float) -> bool:
    """Whether the API server still has something of before `since`.

    That is a container that counts as running since then, as its node's kubelet has not looked at it yet, or a Deployment
    that counts other pods as available than are ready.
    """
    objects = _listed("pods", "deployments")
    pods = [each for each in objects if each["kind"] == "Pod"]
    statuses = [status for pod in pods for status in pod["status"].get("containerStatuses", [])]
    times = [status["state"]["running"]["startedAt"] for status in statuses if "running" in status["state"]]
    deployments = [each for each in objects if each["kind"] == "Deployment"]
    return (
        not pods
        or any(_seconds(each) <= since for each in times)
        or any(each["status"].get("availableReplicas", 0) != _ready_pods(each, pods) for each in deployments)
    )


def _ready_pods(deployment: dict[str, Any], pods: Sequence[dict[str, Any]]) -> int:
    """How many of these pods are the Deployment's and ready."""
    labels = deployment["spec"]["selector"].get("matchLabels", {}).items()
    ready = [pod["metadata"] for pod in pods if _is_ready(pod)]
    own = [each for each in ready if each["namespace"] == deployment["metadata"]["namespace"]]
    return sum(labels <= each.get("labels", {}).items() for each in own)


def _is_ready(item: dict[str, Any]) -> bool:
    """Whether a node or pod has the condition Ready."""
    return any(each["type"] == "Ready" and each["status"] == "True" for each in item["status"].get("conditions", []))


def _load_missing() -> None:
    """Load into the nodes what the image store got while they did not run."""
    for ref in image_store.refs():
        images.load_stored(ref)


def _require_subnets() -> None:
    if conflicts := host.subnet_conflicts():
        raise say.UserError("\n".join(conflicts))


def _wait_for_nodes(count: int, since: float = 0.0) -> None:
    for name in _names(count):
        with say.step(f"node {name} Ready", patience.seconds(READY_SECONDS)):
            _wait(count, f"node {name}", lambda name=name: ready_nodes(since).get(name, False))  # type: ignore[misc]


def _wait_for_dns(count: int) -> None:
    with say.step("CoreDNS answers", patience.seconds(READY_SECONDS)):
        _wait(count, "CoreDNS", _dns_available)


def _wait_until_ready(count: int) -> bool:
    """Wait for an existing cluster, maybe busy or left unfinished by a killed `up`: it holds what the user made.

    Returns whether there was anything to wait for.
    """
    if all(ready_nodes().get(name, False) for name in _names(count)) and _dns_available():
        return False
    try:
        _wait_for_nodes(count)
        _wait_for_dns(count)
    except say.UserError as error:
        raise say.UserError(
            f"{error}\n`stop` and then `up` start the nodes anew with what they hold; `down` removes it all"
        ) from None
    return True


def _drop_older() -> None:
    """Remove programs, root folders and image stores of other versions, unless another cluster may use them."""
    if others.at_work():
        return
    build.drop_older()
    for pattern, keep in (("rootfs-*", rootfs.base()), ("image-store-*", image_store.folder())):
        for folder in paths.CACHE.glob(pattern):
            if folder != keep and folder.is_dir():
                programs.remove(str(folder))


def _prepare(count: int) -> None:
    home.make(paths.CLUSTER)
    for folder in ("run", "log", "share"):
        (paths.CLUSTER / folder).mkdir(parents=True)
    share = running.share()
    share.chmod(0o700)  # holds the administrator's kubeconfig
    rwx = share / "rwx"
    rwx.mkdir()
    rwx.chmod(0o777)
    token = f"{secrets.token_hex(3)}.{secrets.token_hex(8)}"
    for number in range(1, count + 1):
        layout.prepare(number, count, token)


def _start(count: int) -> None:
    kernel.prepare()
    for group in ("outer", *_names(count)):
        cgroups.make(group)
    env = {
        "PATH": rootfs.PATH,
        "CLUSTER_CGROUPS": " ".join(str(hierarchy.at) for hierarchy in cgroups.hierarchies()),
        "CLUSTER_CGROUP_VERSION": str(cgroups.version()),
        "CLUSTER_GROUP": identity.GROUP,
        "CLUSTER_NODES": str(count),
        "CLUSTER_NET": layout.NET,
        "CLUSTER_PODS": layout.PODS,
        "CLUSTER_SERVICES": layout.SERVICES,
        "CLUSTER_ROOTFS": str(rootfs.base()),
        "CLUSTER_BIN": str(paths.BIN),
    }
    with (paths.CLUSTER / "log" / "outer.log").open("wb") as log:
        subprocess.Popen(
            ["bash", str(paths.PACKAGE / "cluster.sh"), "launch", str(paths.CLUSTER), str(count)],
            env=env,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    limit = patience.seconds(START_SECONDS)
    end = time.monotonic() + limit
    while not (paths.CLUSTER / "run" / "switch").exists():
        if time.monotonic() > end:
            raise say.UserError(
                f"the switch between the nodes did not start within {limit:.0f} s; {patience.hint()}; end of its log:\n"
                f"{_tail(paths.CLUSTER / 'log' / 'outer.log')}"
            )
        time.sleep(0.05)
    outer = cgroups.init_of("outer", running.OUTER_DEPTH)
    if outer is None:
        raise say.UserError(f"the outer namespace ended at once:\n{_tail(paths.CLUSTER / 'log' / 'outer.log')}")
    host.connect(outer)


def _publish(count: int) -> None:
    """Write the administrator's kubeconfig and the state file."""
    part = paths.KUBECONFIG.with_suffix(".part")
    shutil.copyfile(running.share() / "admin.conf", part)
    part.chmod(0o600)
    part.replace(paths.KUBECONFIG)
    names = _names(count)
    state = {
        "nodes": names,
        "made_with": kept.made_with(count),
        "addresses": {name: layout.address(number) for number, name in enumerate(names, 1)},
        "kubernetes": modules.version("kubernetes"),
    }
    part = running.state_file().with_suffix(".part")
    part.write_text(json.dumps(state, indent=1))
    part.replace(running.state_file())


def _dns_available() -> bool:
    done = kubectl("-n", "kube-system", "get", "deployment", "coredns", "-o", "jsonpath={.status.availableReplicas}")
    return done.returncode == 0 and done.stdout not in ("", "0")


def _wait(count: int, what: str, reached: Callable[[], bool]) -> None:
    """Wait for a state; raises say.UserError with the node's log as soon as a node gives up or dies, or on timeout."""
    begin = reported = time.monotonic()
    starting, limit = patience.seconds(START_SECONDS), patience.seconds(READY_SECONDS)
    while not reached():
        for number in range(1, count + 1):
            log = paths.CLUSTER / "log" / f"n{number}.log"
            dead = time.monotonic() - begin > starting and running.pid(f"n{number}") is None
            if dead or (running.share() / f"n{number}.failed").exists():
                raise say.UserError(f"node n{number} failed while waiting for {what}; {log} ends with:\n{_tail(log)}")
        if cgroups.init_of("outer", running.OUTER_DEPTH) is None:
            raise say.UserError(f"the nodes ended while waiting for {what}; logs are in {paths.CLUSTER / 'log'}")
        if time.monotonic() - begin > limit:
            logs = paths.CLUSTER / "nodes" / "n1" / "root" / "var/log"
            raise say.UserError(
                f"{what}: not reached within {limit:.0f} s; {patience.hint()}; see {paths.CLUSTER / 'log'} and {logs}"
            )
        if time.monotonic() - reported > say.HEARTBEAT_SECONDS:
            reported = time.monotonic()
            say.info(f"last line of n1: {_tail(paths.CLUSTER / 'log' / 'n1.log', 1).strip()}")
        time.sleep(patience.pause(POLL_SECONDS))


def _tail(log: Path, lines: int = LOG_LINES) -> str:
    with suppress(FileNotFoundError):
        return "\n".join(f"  {line}" for line in log.read_text(errors="replace").splitlines()[-lines:])
    return "  (no log)"


def stop() -> bool:
    """End the nodes and keep what they hold, for the next `up`; returns whether any ran."""
    with host.lock(), say.step("stop the nodes"):
        return host.stop()


def down() -> bool:
    """Remove the cluster; returns whether anything was there."""
    with host.lock(), say.step("take the cluster down"):
        return host.clear()


def status() -> dict[str, Any]:
    """What runs: nodes and whether each is Ready, kubeconfig, addresses, images."""
    state = running.state()
    alive = running.nodes()
    ready = ready_nodes() if alive else {}
    return {
        "name": identity.NAME,
        "running": bool(alive),
        "nodes": {name: ready.get(name, False) and name in alive for name in state.get("nodes", [])},
        "addresses": state.get("addresses", {}),
        "api": f"https://{state['addresses']['n1']}:6443" if alive else None,
        "kubeconfig": str(paths.KUBECONFIG) if alive else None,
        "kubernetes": state.get("kubernetes"),
        "shared": str(running.share() / "rwx") if alive else None,
        "images": {ref: entry["digest"] for ref, entry in image_store.refs().items()},
    }
