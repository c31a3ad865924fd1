"""Up, down and status of the cluster; called by commands.py. Nodes are processes in namespaces: cluster.sh, node.sh."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

from embedded_cluster import (
    build,
    cgroups,
    home,
    host,
    identity,
    image_store,
    images,
    kernel,
    layout,
    locks,
    modules,
    others,
    paths,
    patience,
    programs,
    rootfs,
    running,
    say,
)

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


def fingerprint(count: int) -> str:
    """Changes when `up` would make a different cluster now: programs, small images, these files, nodes, networks."""
    files = sorted(
        path
        for path in paths.PACKAGE.iterdir()
        if path.name in ("node.sh", "cluster.sh", "layout.py", "containerd.toml")
    )
    text = [
        str(count),
        *map(str, identity.VARIABLES),
        image_store.folder().name,
        *(build.binary(name).name for name in NEEDED),
    ]
    own = [ref for name in NEEDED for ref in modules.COMPONENTS[name].images] + [images.PAUSE]
    text += [f"{ref} {image_store.refs().get(ref, {}).get('digest')}" for ref in own]
    return hashlib.sha256("\n".join(text).encode() + b"".join(path.read_bytes() for path in files)).hexdigest()[:16]


def ready_nodes() -> dict[str, bool]:
    """Node name -> whether it is Ready; empty when the API server does not answer."""
    done = kubectl("get", "nodes", "-o", "json", f"--request-timeout={patience.seconds(REQUEST_SECONDS):.0f}s")
    if done.returncode:
        return {}
    found = {}
    for node in json.loads(done.stdout)["items"]:
        conditions = {one["type"]: one["status"] for one in node["status"].get("conditions", [])}
        found[node["metadata"]["name"]] = conditions.get("Ready") == "True"
    return found


def runs(count: int) -> bool:
    """Whether exactly the wanted cluster is running: same versions, all nodes' processes alive, the host's link."""
    wanted = [f"n{number}" for number in range(1, count + 1)]
    same = running.state().get("fingerprint") == fingerprint(count)
    return same and running.nodes() == wanted and host.link_exists()


def parts_lock() -> AbstractContextManager[None]:
    """Let one command at a time make programs and images; others wait for it."""
    return locks.waiting(paths.CACHE / "parts.lock", "another command is making programs or images")


def make_programs(operators_wanted: Sequence[str] | None, everything: bool = False) -> bool:
    """Build the programs of the nodes and of these operators (default: the default ones), and render their manifests.

    `everything` means all components. Returns whether anything was built.
    """
    from embedded_cluster import operators

    if operators_wanted is None:
        names = [name for name, one in modules.COMPONENTS.items() if one.default or (everything and not one.rare)]
    else:
        names = [*NEEDED, "helm", *(one.name for one in operators.chosen(operators_wanted))]
    with parts_lock():
        built = build.build_all(names)
        link_programs()
        if built:
            operators.prepare(operators_wanted)  # while the modules, which contain the manifests, are still there
            build.drop_caches()
        return built


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


def up(count: int) -> bool:
    """Bring up a cluster of `count` nodes; returns False when exactly that is already running."""
    if not 1 <= count <= layout.MAX_NODES:
        raise say.UserError(f"--nodes {count}: give 1 to {layout.MAX_NODES}")
    with host.lock():
        parts = make_parts()
        if runs(count):
            return _wait_until_ready(count) or parts
        try:
            _make(count)
        except KeyboardInterrupt:
            with say.step("take the unfinished cluster down"):
                host.clear()
            raise
        return True


def _make(count: int) -> None:
    """Bring up a cluster in place of whatever exists."""
    begin = time.monotonic()
    with say.step("clear what an earlier cluster left"):
        host.clear()
        _drop_older()
    if conflicts := host.subnet_conflicts():
        raise say.UserError("\n".join(conflicts))
    with say.step(f"prepare {count} node folders"):
        _prepare(count)
    with say.step(f"start {count} nodes and their control plane", patience.seconds(READY_SECONDS)):
        _start(count)
        _wait(count, "kubeadm init", (running.SHARE / "admin.conf").exists)
        _publish(count)
    _wait_for_nodes(count)
    say.info(f"{count} nodes Ready {time.monotonic() - begin:.1f} s after the start")
    _wait_for_dns(count)


def _wait_for_nodes(count: int) -> None:
    for number in range(1, count + 1):
        with say.step(f"node n{number} Ready", patience.seconds(READY_SECONDS)):
            _wait(count, f"node n{number}", lambda name=f"n{number}": ready_nodes().get(name, False))  # type: ignore[misc]


def _wait_for_dns(count: int) -> None:
    with say.step("CoreDNS answers", patience.seconds(READY_SECONDS)):
        _wait(count, "CoreDNS", _dns_available)


def _wait_until_ready(count: int) -> bool:
    """Wait for an existing cluster, maybe busy or left unfinished by a killed `up`: it holds what the user made.

    Returns whether there was anything to wait for.
    """
    if all(ready_nodes().get(f"n{number}", False) for number in range(1, count + 1)) and _dns_available():
        return False
    try:
        _wait_for_nodes(count)
        _wait_for_dns(count)
    except say.UserError as error:
        raise say.UserError(f"{error}\n`down` and then `up` recreate the cluster without its current content") from None
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
    running.SHARE.chmod(0o700)  # holds the administrator's kubeconfig
    rwx = running.SHARE / "rwx"
    rwx.mkdir()
    rwx.chmod(0o777)
    token = f"{secrets.token_hex(3)}.{secrets.token_hex(8)}"
    for number in range(1, count + 1):
        layout.prepare(number, count, token)


def _start(count: int) -> None:
    kernel.prepare()
    for group in ("outer", *(f"n{number}" for number in range(1, count + 1))):
        cgroups.make(group)
    env = {
        "PATH": rootfs.PATH,
        "CLUSTER_CGROUPS": " ".join(str(one.at) for one in cgroups.hierarchies()),
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
    shutil.copyfile(running.SHARE / "admin.conf", part)
    part.chmod(0o600)
    part.replace(paths.KUBECONFIG)
    names = [f"n{number}" for number in range(1, count + 1)]
    state = {
        "nodes": names,
        "fingerprint": fingerprint(count),
        "addresses": {name: layout.address(number) for number, name in enumerate(names, 1)},
        "kubernetes": modules.version("kubernetes"),
    }
    part = running.STATE.with_suffix(".part")
    part.write_text(json.dumps(state, indent=1))
    part.replace(running.STATE)


def _dns_available() -> bool:
    done = kubectl("-n", "kube-system", "get", "deployment", "coredns", "-o", "jsonpath={.status.availableReplicas}")
    return done.returncode == 0 and done.stdout not in ("", "0")


def _wait(count: int, what: str, reached: Callable[[], bool]) -> None:
    """Wait for a state; raises say.UserError with the node's log as soon as a node gives up or dies, or on timeout."""
    begin = told = time.monotonic()
    starting, limit = patience.seconds(START_SECONDS), patience.seconds(READY_SECONDS)
    while not reached():
        for number in range(1, count + 1):
            log = paths.CLUSTER / "log" / f"n{number}.log"
            dead = time.monotonic() - begin > starting and running.pid(f"n{number}") is None
            if dead or (running.SHARE / f"n{number}.failed").exists():
                raise say.UserError(f"node n{number} failed while waiting for {what}; {log} ends with:\n{_tail(log)}")
        if cgroups.init_of("outer", running.OUTER_DEPTH) is None:
            raise say.UserError(f"the nodes ended while waiting for {what}; logs are in {paths.CLUSTER / 'log'}")
        if time.monotonic() - begin > limit:
            logs = paths.CLUSTER / "nodes" / "n1" / "root" / "var/log"
            raise say.UserError(
                f"{what}: not reached within {limit:.0f} s; {patience.hint()}; see {paths.CLUSTER / 'log'} and {logs}"
            )
        if time.monotonic() - told > say.HEARTBEAT_SECONDS:
            told = time.monotonic()
            say.info(f"last line of n1: {_tail(paths.CLUSTER / 'log' / 'n1.log', 1).strip()}")
        time.sleep(patience.pause(POLL_SECONDS))


def _tail(log: Path, lines: int = LOG_LINES) -> str:
    with suppress(FileNotFoundError):
        return "\n".join(f"  {line}" for line in log.read_text(errors="replace").splitlines()[-lines:])
    return "  (no log)"


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
        "shared": str(running.SHARE / "rwx") if alive else None,
        "images": {ref: one["digest"] for ref, one in image_store.refs().items()},
    }
