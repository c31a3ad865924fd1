"""What is wrong with a pod, in words, and where a pod serves a model; used by the waiting plugins and the checks.

Waiting reasons: kubernetes pkg/kubelet/images/types.go and pkg/kubelet/container/sync_result.go.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from .kube import Api, Json, condition

Pod = dict[str, Any]
UNRECOVERABLE = {
    "CreateContainerConfigError": "a Secret or ConfigMap that it needs is missing",
    "CreateContainerError": "the container runtime refuses it",
    "RunContainerError": "the container runtime could not start it",
    "InvalidImageName": "correct site.images",
    "ErrImageNeverPull": "the image is not on the node and site.images.pullPolicy is Never: run playbooks/image.yml",
    "ImagePullBackOff": "the image cannot be pulled: correct site.images, set a pull secret, or run playbooks/image.yml",
    "CrashLoopBackOff": "it keeps exiting; the reason is in its log",
}
NOT_READ = "have not yet been read at least once"
"""In the message of a CreateContainerConfigError: the kubelet has just started, and tries again (kubelet_pods.go, makeEnvironmentVariables)."""
MIN_LOST_EXIT_CODE = 128
"""Exit codes from here on: a signal, or a peer that is gone (run/attempts.py in the pod)."""
WITH_ITS_NODE = ("Unknown", "ContainerStatusUnknown")
"""Reasons of a container that ended when its node did: containerd found it gone after a reboot, or nobody saw its end."""
OUT_OF_MEMORY = "it used more memory than allowed: raise {block}.memory"
DISK_FULL = "a volume or the node's disk is full: free space, or raise site.storage.runs.size"
AUTH = "security.opendatahub.io/enable-auth"


@dataclass(frozen=True)
class Trouble:
    """Why a pod cannot go on: `container` is empty when the pod never started.

    `may_return`: a job that may restart makes this pod again (charts/trainjob, phase.resources.restarts).
    """

    pod: str
    reason: str
    container: str = ""
    previous: bool = False
    may_return: bool = False

    @property
    def has_log(self) -> bool:
        """True when the container ran, so that its last lines say more."""
        return bool(self.container)


def name(pod: Pod) -> str:
    """Name of an object."""
    return str(pod["metadata"]["name"])


def _statuses(pod: Pod) -> Iterator[dict[str, Any]]:
    status = pod.get("status", {})
    yield from status.get("initContainerStatuses") or []
    yield from status.get("containerStatuses") or []


def seconds_since(stamp: str | None, now: datetime) -> float:
    """Seconds from an API time stamp until now; 0 without a stamp."""
    if not stamp:
        return 0.0
    return (now - datetime.strptime(stamp[:19], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC)).total_seconds()


def _ended_badly(pod: Pod, status: dict[str, Any], block: str) -> Trouble | None:
    for key, previous in (("state", False), ("lastState", True)):
        ended = status.get(key, {}).get("terminated")
        if not ended or ended.get("exitCode") == 0:
            continue
        if previous and "running" in status.get("state", {}) and ended.get("reason") in WITH_ITS_NODE:
            continue
        reason = f"exit code {ended.get('exitCode')}"
        if ended.get("reason") == "OOMKilled":
            reason = f"OOMKilled, {OUT_OF_MEMORY.format(block=block)}"
        elif ended.get("message"):
            reason += f" ({' '.join(str(ended['message']).split())[-200:]})"
        lost = int(ended.get("exitCode", 0)) >= MIN_LOST_EXIT_CODE
        return Trouble(name(pod), f"container {status['name']} ended with {reason}", status["name"], previous, lost)
    return None


def diagnose(pod: Pod, now: datetime, unschedulable_seconds: float, block: str = "phase.resources") -> Trouble | None:
    """Return what stops this pod for good, None if it may still recover.

    `unschedulable_seconds`: how long a pod may wait for a node (an autoscaler needs minutes); `block` is the section
    that sizes this pod.
    """
    status = pod.get("status", {})
    if status.get("phase") == "Failed" and status.get("reason"):
        hint = f"; {DISK_FULL}" if status["reason"] == "Evicted" else ""
        return Trouble(name(pod), f"{status['reason']}: {status.get('message', 'no message')}{hint}", may_return=True)
    for each in _statuses(pod):
        trouble = _ended_badly(pod, each, block)
        if trouble:
            return trouble
        waiting = each.get("state", {}).get("waiting") or {}
        if waiting.get("reason") in UNRECOVERABLE and NOT_READ not in str(waiting.get("message", "")):
            text = f"{waiting['reason']}: {waiting.get('message', each.get('image', ''))}"
            return Trouble(name(pod), f"container {each['name']}: {text}; {UNRECOVERABLE[waiting['reason']]}")
    scheduled = condition(pod, "PodScheduled")
    if scheduled.get("reason") == "Unschedulable":
        if seconds_since(scheduled.get("lastTransitionTime"), now) > unschedulable_seconds:
            return Trouble(
                name(pod),
                f"no node has taken it for {unschedulable_seconds:.0f} s: {scheduled.get('message')}; lower "
                f"{block}, relax site.nodeSelector, add site.tolerations, or add nodes to the cluster",
            )
    return None


def state(pod: Pod) -> str:
    """Say in a few words what the pod is doing."""
    phase = str(pod.get("status", {}).get("phase", "Unknown"))
    scheduled = condition(pod, "PodScheduled")
    if scheduled.get("reason") == "Unschedulable":
        why = str(scheduled.get("message", ""))
        if (
            "persistentvolumeclaim" in why.lower()
        ):  # "0/2 nodes are available: ...": seconds, while the volumes are made
            return "waits for its volumes"
        return f"waits for a node: {why[:120]}"
    for each in _statuses(pod):
        if "running" in each.get("state", {}):
            if any(each is container for container in pod["status"].get("initContainerStatuses") or []):
                return f"runs {each['name']}"
        elif (each.get("state", {}).get("waiting") or {}).get("reason") in ("ErrImagePull", "ImagePullBackOff"):
            return f"cannot pull {each.get('image')}"
    node = pod.get("spec", {}).get("nodeName")
    return f"{phase} on {node}" if node and phase in ("Running", "Pending") else phase


def pulled(daemons: dict[str, Any]) -> tuple[int, int | None]:
    """Return (nodes that it targets, those whose pod of its newest template runs; None until its controller has seen it)."""
    status = daemons.get("status") or {}
    wanted = int(status.get("desiredNumberScheduled", 0))
    if status.get("observedGeneration", 0) < daemons["metadata"]["generation"]:
        return wanted, None
    return wanted, min(int(status.get("updatedNumberScheduled", 0)), int(status.get("numberReady", 0)))


def server_address(api: Api, namespace: str, release: str, service: Json) -> str:
    """Return the path of the server of a release, whose InferenceService this is, without a slash at its end.

    With site.auth that is a pod's: its Service then has only the port that wants a token, and the API server keeps the caller's
    for itself. Who may reach pods through it may also ask the model.
    """
    space = f"/api/v1/namespaces/{namespace}"
    if (service.get("metadata", {}).get("annotations") or {}).get(AUTH) == "true":
        for pod in api.items(f"{space}/pods", f"serving.kserve.io/inferenceservice={release}"):
            if not pod["metadata"].get("deletionTimestamp"):
                return f"{space}/pods/{name(pod)}:8080/proxy"
    return f"{space}/services/{release}-predictor:80/proxy"


def served_models(listing: Json) -> set[str]:
    """Return the names in an answer of /v1/models without the other runs on the volume, which load only when somebody asks them."""
    return {str(each["id"]) for each in listing.get("data", []) if not each.get("on_request")}
