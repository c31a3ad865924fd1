"""plugins/plugin_utils/pods.py on pod objects as an API server returns them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from ansible_collections.trainlab.rhoai.plugins.plugin_utils.pods import diagnose, state

NOW = datetime(2026, 11, 21, 15, 0, 0, tzinfo=UTC)
KUBELET_JUST_STARTED = {  # kubernetes/kubernetes issue 129294, and seen here
    "reason": "CreateContainerConfigError",
    "message": "services have not yet been read at least once, cannot construct envvars",
}


def pod(phase: str = "Pending", **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": {"nodeName": "n1"}, "status": {"phase": phase, **status}}


def container(**state: Any) -> dict[str, Any]:
    return {"name": "pytorch", "image": "localhost/x:1", "state": state}


def waiting(seconds: int) -> dict[str, Any]:
    since = (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
    text = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."
    return {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": text,
        "lastTransitionTime": since,
    }


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"containerStatuses": [container(running={"startedAt": "2026-11-21T14:59:00Z"})]},
        {"containerStatuses": [container(waiting={"reason": "ContainerCreating"})]},
        {"containerStatuses": [container(waiting={"reason": "ErrImagePull", "message": "timeout"})]},
        {"initContainerStatuses": [container(terminated={"exitCode": 0, "reason": "Completed"})]},
        {"containerStatuses": [container(waiting=KUBELET_JUST_STARTED)]},
        {"conditions": [waiting(30)]},
    ],
)
def test_a_pod_that_may_become_well_is_left_alone(status: dict[str, Any]) -> None:
    assert diagnose(pod(**status), NOW, 60) is None


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (
            {"containerStatuses": [container(waiting={"reason": "ImagePullBackOff", "message": "Back-off"})]},
            "site.images",
        ),
        ({"containerStatuses": [container(waiting={"reason": "ErrImageNeverPull"})]}, "playbooks/image.yml"),
        (
            {"initContainerStatuses": [container(waiting={"reason": "CreateContainerConfigError"})]},
            "Secret or ConfigMap",
        ),
        (
            {"containerStatuses": [container(terminated={"exitCode": 137, "reason": "OOMKilled"})]},
            "phase.resources.memory",
        ),
        ({"containerStatuses": [container(terminated={"exitCode": 2, "reason": "Error"})]}, "exit code 2"),
        ({"conditions": [waiting(61)]}, "Insufficient nvidia.com/gpu"),
        ({"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource"}, "disk is full"),
    ],
)
def test_a_pod_beyond_hope_is_named_with_its_remedy(status: dict[str, Any], words: str) -> None:
    trouble = diagnose(pod(**status), NOW, 60)
    assert trouble is not None
    assert words in trouble.reason


def test_a_restarted_container_is_judged_by_how_it_ended() -> None:
    status = container(waiting={"reason": "CrashLoopBackOff"}) | {"lastState": {"terminated": {"exitCode": 1}}}
    trouble = diagnose(pod(containerStatuses=[status]), NOW, 60)
    assert trouble is not None
    assert trouble.previous
    assert trouble.has_log


def test_a_server_that_loads_again_after_a_reboot_is_waited_for() -> None:
    """Recorded on the embedded cluster: its node was powered off. In a loop, or ended by itself, it stays hopeless."""
    lost = {"lastState": {"terminated": {"exitCode": 255, "reason": "Unknown"}}}
    assert diagnose(pod(containerStatuses=[container(running={}) | lost]), NOW, 60) is None
    looping = container(waiting={"reason": "CrashLoopBackOff"}) | lost
    assert diagnose(pod(containerStatuses=[looping]), NOW, 60) is not None
    own = {"lastState": {"terminated": {"exitCode": 1, "reason": "Error"}}}
    assert diagnose(pod(containerStatuses=[container(running={}) | own]), NOW, 60) is not None


def test_out_of_memory_of_the_server_names_its_own_key() -> None:
    status = container(terminated={"exitCode": 137, "reason": "OOMKilled"})
    trouble = diagnose(pod(containerStatuses=[status]), NOW, 60, "phase.serve")
    assert trouble is not None
    assert "phase.serve.memory" in trouble.reason


def test_state_in_words() -> None:
    assert state(pod()) == "Pending on n1"
    assert state(pod(conditions=[waiting(1)])).startswith("waits for a node: 0/2")
    volumes = "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found"
    assert state(pod(conditions=[waiting(1) | {"message": volumes}])) == "waits for its volumes"
    assert state(pod(initContainerStatuses=[container(running={})])) == "runs pytorch"
    assert state(pod("Running", containerStatuses=[container(running={})])) == "Running on n1"
    assert state(pod(containerStatuses=[container(waiting={"reason": "ErrImagePull"})])) == "cannot pull localhost/x:1"
