"""Installs the operators on the running cluster; called by the commands `up` and `operators`.

Everything is applied at once and then waited for together: the slowest operator determines the time.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from embedded_cluster.base import children, paths, patience
from embedded_cluster.base.say import UserError, info, step
from embedded_cluster.builds import build, modules
from embedded_cluster.containers import images
from embedded_cluster.nodes import cluster, webhook_ca
from embedded_cluster.nodes.render import AFTER, ANYWHERE, Operator, digest, render

RECORD = "trainlab-operators"
"""ConfigMap in kube-system: operator -> digest of the manifests that are installed."""
DEADLINE = 300.0
"""Seconds until all must be available: 35 on two idle cores, but the cores may be anything but idle."""
POLL = 1.5
KINDS = "deployments,pods,validatingwebhookconfigurations,mutatingwebhookconfigurations"
LOG_LINES = "12"
SLOW = ("request did not complete within", "TLS handshake timeout", "connection refused", "was refused", "i/o timeout")
"""What kubectl reports of an API server that restarts or is overloaded; 34 s for a write is that server's own limit."""
NOT_YET = ("failed calling webhook", "no matches for kind")
"""What kubectl reports of a running operator that the API server does not reach, or not list the kinds of, yet."""
HOPELESS = {"ErrImageNeverPull", "InvalidImageName", "CreateContainerConfigError", "CreateContainerError"}
NOT_READ = "have not yet been read at least once"
"""In the message of a CreateContainerConfigError: the kubelet has just started, and tries again (kubelet_pods.go, makeEnvironmentVariables)."""
HOPELESS_RESTARTS = 5

OPERATORS = {
    operator.name: operator
    for operator in (
        Operator(
            "local-path-provisioner",
            "deploy",
            "local-path-storage",
            "local-path-provisioner",
            image="rancher/local-path-provisioner",
        ),
        # Before Trainer, which looks for its CRD when it starts.
        Operator(
            "jobset", "config", "jobset-system", "jobset-controller-manager", released="registry.k8s.io/jobset/jobset"
        ),
        Operator("training-operator", "manifests", "kubeflow", "training-operator", stream=1),
        Operator("trainer", "manifests", "kubeflow-system", "kubeflow-trainer-controller-manager"),
        Operator("kserve", "config", "kserve", "kserve-controller-manager", image="kserve/kserve-controller", stream=1),
        # Last: it looks for the CRDs of the others, and its webhooks block all jobs until it runs.
        Operator("kueue", "config", "kueue-system", "kueue-controller-manager", released="registry.k8s.io/kueue/kueue"),
        Operator("kwok", "kustomize", "kube-system", "kwok-controller", default=False),
    )
}
DEFAULT = tuple(operator.name for operator in OPERATORS.values() if operator.default)
BASIC = ("local-path-provisioner", "training-operator", "kserve")
"""What a phase of the demo uses; queues and TrainJobs need the others, which are built on first use."""


def install(names: Iterable[str] | None = None) -> bool:
    """Install these operators (default: all but kwok) and wait until each is available.

    Returns whether anything was changed. Raises UserError when one cannot become available.
    """
    wanted = chosen(names)
    installed, state = _installed(), _state()
    todo = [
        operator
        for operator in wanted
        if installed.get(operator.name) != digest(operator) or not _available(operator, state)
    ]
    if not todo:
        return False
    # Fast once the commands `build` and `images` have run; nothing else builds kwok.
    with cluster.parts_lock():
        build.build_all(operator.name for operator in todo)
        images.ensure()
    with step(f"operators: {', '.join(operator.name for operator in todo)}", patience.seconds(DEADLINE)):
        prepare(operator.name for operator in todo)
        webhook_ca.make()
        # Two at a time: most of the time is spent waiting for the API server, object by object.
        children.side_by_side(
            _apply_all, [[operator for operator in todo if operator.stream == stream] for stream in (0, 1)], 2
        )
        _wait(todo)
        _wait_for_apis(todo, time.monotonic() + patience.seconds(DEADLINE))
        _record(installed | {operator.name: digest(operator) for operator in todo})
    return True


def make_programs(only: Sequence[str] | None, everything: bool = False) -> bool:
    """Build the programs of the nodes, Helm, and `only` these operators and tools (default: the default operators); render manifests.

    `everything` means all components. Returns whether anything was built. Raises UserError for an unknown name.
    """
    if only is None:
        names = [
            name
            for name, component in modules.COMPONENTS.items()
            if component.default or (everything and not component.rare)
        ]
    else:
        if unknown := sorted(set(only) - modules.COMPONENTS.keys()):
            raise UserError(f"no such program: {', '.join(unknown)}; known: {', '.join(modules.COMPONENTS)}")
        names = [*cluster.NEEDED, "helm", *only]
    with cluster.parts_lock():
        built = build.build_all(names)
        cluster.link_programs()
        if built:
            wanted = None if only is None else [name for name in only if name in OPERATORS]
            prepare(wanted)  # while the modules, which contain the manifests, are still there
            build.drop_caches()
        return built


def prepare(names: Iterable[str] | None = None) -> None:
    """Render the manifests of these operators into the cache; needs the built kubectl, but no cluster."""
    parts = [(operator, part) for operator in chosen(names) for part in ("", AFTER)]
    children.side_by_side(lambda job: render(*job), parts, 2)


def write(folder: Path, names: Iterable[str]) -> list[str]:
    """Write the manifests of these operators for any cluster, FOLDER/NAME.yaml; return the names in the order of installation.

    UserError for one that has none.
    """
    operators = chosen(names)
    folder.mkdir(parents=True, exist_ok=True)
    for operator in operators:
        text = render(operator, ANYWHERE)
        if not text:
            raise UserError(f"{operator.name} is for the embedded cluster only; leave it out")
        (folder / f"{operator.name}.yaml").write_text(text, encoding="utf-8")
    return [operator.name for operator in operators]


def chosen(names: Iterable[str] | None) -> list[Operator]:
    """The operators of these names (default: those installed by default); UserError for an unknown name."""
    asked = set(DEFAULT if names is None else names)
    unknown = sorted(asked - OPERATORS.keys())
    if unknown:
        raise UserError(f"no such operator: {', '.join(unknown)}; known: {', '.join(OPERATORS)}")
    return [operator for operator in OPERATORS.values() if operator.name in asked]


def _kubectl(*arguments: str, stdin: str | None = None) -> str:
    env = dict(os.environ, KUBECONFIG=str(paths.KUBECONFIG), KUBECACHEDIR=str(paths.CLUSTER / "kubectl-cache"))
    command = [str(build.binary("kubernetes")), "kubectl", *arguments]
    done = subprocess.run(command, input=stdin, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise UserError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def _apply(manifests: str) -> None:
    """Apply, and retry when the API server was merely too slow: what is applied already stays unchanged."""
    # Server-side: the CRDs are too long for the annotation of a client-side apply.
    command = ("apply", "--server-side", "--force-conflicts", "--field-manager=trainlab", "-f", "-")
    end = time.monotonic() + patience.seconds(DEADLINE)
    while True:
        try:
            _kubectl(*command, stdin=manifests)
            return
        except UserError as error:
            if not any(words in str(error) for words in SLOW) or time.monotonic() > end:
                raise
            info(f"the API server is slow, applying again: {str(error).splitlines()[-1][-120:]}")
        time.sleep(patience.pause(POLL))


def _apply_all(operators: list[Operator]) -> None:
    if operators:
        _apply("\n---\n".join(webhook_ca.sign(operator.name, render(operator)) for operator in operators))


def _installed() -> dict[str, str]:
    text = _kubectl("-n", "kube-system", "get", "configmap", RECORD, "--ignore-not-found", "-o", "json")
    data: dict[str, str] = json.loads(text).get("data", {}) if text.strip() else {}
    return data


def _record(digests: dict[str, str]) -> None:
    metadata = {"name": RECORD, "namespace": "kube-system"}
    _apply(json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": digests}))


def _state() -> list[dict[str, Any]]:
    """All objects of KINDS; none when the API server is too slow to answer, which only means to poll again."""
    try:
        items: list[dict[str, Any]] = json.loads(_kubectl("get", KINDS, "-A", "-o", "json"))["items"]
    except UserError as error:
        if not any(words in str(error) for words in SLOW):
            raise
        return []
    return items


def _wait(operators: list[Operator]) -> None:
    """Wait until all are available, then apply what needs them; fail on the first that never will be."""
    started, unavailable, limit = time.monotonic(), list(operators), patience.seconds(DEADLINE)
    before: dict[tuple[str, str], int] = {}
    while True:
        state = _state()
        before = before or _restarts(state)
        for operator in [operator for operator in unavailable if _available(operator, state)]:
            if not _finish(operator):
                continue
            unavailable.remove(operator)
            info(f"{operator.name}: available after {time.monotonic() - started:.0f} s")
        if not unavailable:
            return
        late = time.monotonic() - started > limit
        for operator in unavailable:
            reason = _hopeless(operator, state, before) or (
                f"not available after {limit:.0f} s; {patience.hint()}" if late else ""
            )
            if reason:
                raise UserError(_explain(operator, state, reason))
        time.sleep(patience.pause(POLL))


def _wait_for_apis(operators: list[Operator], end: float) -> None:
    """Wait until the API server lists the operators' kinds, for Helm: a slow one does so minutes after they run."""
    missing = wanted = {name for operator in operators for name in defined(render(operator))}
    while missing:
        try:
            missing = wanted - set(_kubectl("api-resources", "--output=name").split())
            reason = f"the API server does not list {', '.join(sorted(missing))}"
        except UserError as error:  # part of its API does not answer, which is no reason to give up before the end
            reason = str(error)
        if missing and time.monotonic() > end:
            raise UserError(f"{reason}; {patience.hint()}")
        if missing:
            time.sleep(patience.pause(POLL))


def defined(manifests: str) -> set[str]:
    """Return the names, PLURAL.GROUP, of the CustomResourceDefinitions in manifests."""
    parts = re.split(r"^---$", manifests, flags=re.MULTILINE)
    definitions = (part for part in parts if re.search(r"^kind: CustomResourceDefinition$", part, re.MULTILINE))
    return {name for part in definitions for name in re.findall(r"^  name: (\S+)$", part, re.MULTILINE)[:1]}


def _finish(operator: Operator) -> bool:
    """Apply what needs the operator; False while its kinds or its webhook (not in upstream's readiness) are not up."""
    after = render(operator, AFTER)
    try:
        if after:
            _apply(after)
    except UserError as error:
        if not any(words in str(error) for words in NOT_YET):
            raise
        return False
    return True


def _available(operator: Operator, state: list[dict[str, Any]]) -> bool:
    """Whether the deployment runs as last applied and its webhooks have the certificate that they need."""
    for item in state:
        metadata = item["metadata"]
        if item["kind"] == "Deployment":
            if (metadata.get("namespace"), metadata["name"]) != (operator.namespace, operator.deployment):
                continue
            status = item.get("status", {})
            ready = status.get("updatedReplicas", 0) == status.get("availableReplicas", 0) == item["spec"]["replicas"]
            if not ready or status.get("observedGeneration") != metadata["generation"] or status.get("replicas") != 1:
                return False
        for webhook in item.get("webhooks", ()):
            service = webhook["clientConfig"].get("service", {})
            if service.get("namespace") == operator.namespace and not webhook["clientConfig"].get("caBundle"):
                return False
    return any(item["kind"] == "Deployment" and item["metadata"]["name"] == operator.deployment for item in state)


def _pods(operator: Operator, state: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        item
        for item in state
        if item["kind"] == "Pod"
        and item["metadata"]["namespace"] == operator.namespace
        and item["metadata"]["name"].startswith(f"{operator.deployment}-")
    ]


def _restarts(state: list[dict[str, Any]]) -> dict[tuple[str, str], int]:
    """Return how often each container has restarted, by the uid of its pod and its name."""
    return {
        (pod["metadata"]["uid"], container["name"]): container.get("restartCount", 0)
        for pod in state
        if pod["kind"] == "Pod"
        for container in pod.get("status", {}).get("containerStatuses", ())
    }


def _hopeless(operator: Operator, state: list[dict[str, Any]], before: dict[tuple[str, str], int]) -> str:
    """Return why waiting is pointless; empty while it is not. `before`: restarts that do not count, one for each reboot of a kept cluster."""
    for pod in _pods(operator, state):
        for container in pod.get("status", {}).get("containerStatuses", ()):
            waiting = container.get("state", {}).get("waiting", {})
            if waiting.get("reason") in HOPELESS and NOT_READ not in waiting.get("message", ""):
                return f"{waiting['reason']}: {waiting.get('message', '')} (image {container['image']})"
            again = container.get("restartCount", 0) - before.get((pod["metadata"]["uid"], container["name"]), 0)
            if again >= patience.seconds(HOPELESS_RESTARTS):
                return f"its container restarted {again} times"
    return ""


def _explain(operator: Operator, state: list[dict[str, Any]], reason: str) -> str:
    lines = [f"operator {operator.name}, deployment {operator.namespace}/{operator.deployment}: {reason}"]
    for pod in _pods(operator, state):
        name, status = pod["metadata"]["name"], pod.get("status", {})
        lines.append(f"  pod {name}: {status.get('phase')}")
        for condition in status.get("conditions", ()):
            if condition["status"] != "True":
                lines.append(f"    {condition['type']}: {condition.get('reason', '')} {condition.get('message', '')}")
        restarted = any(container.get("restartCount") for container in status.get("containerStatuses", ()))
        previous = ("--previous",) if restarted else ()
        try:
            log = _kubectl("-n", operator.namespace, "logs", name, f"--tail={LOG_LINES}", *previous)
        except UserError as error:
            log = str(error)
        lines += [f"    | {line}" for line in log.splitlines()]
    return "\n".join(lines)
