"""plugins/plugin_utils/waiting.py: which failed pods end a wait, and which a job makes again."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.trainlab.rhoai.plugins.action import train_wait
from ansible_collections.trainlab.rhoai.plugins.plugin_utils import jobs
from ansible_collections.trainlab.rhoai.plugins.plugin_utils.waiting import Follower, StatusLines, watch_pods


def ended(name: str, code: int, at: str = "2026-11-24T21:00:00Z") -> dict[str, Any]:
    state = {"terminated": {"exitCode": code, "reason": "Error", "finishedAt": at}}
    status = {"phase": "Failed", "containerStatuses": [{"name": "node", "image": "i", "state": state}]}
    return {"metadata": {"name": name}, "spec": {}, "status": status}


def watched(pods: list[dict[str, Any]], restarts: bool) -> tuple[str | None, list[str]]:
    """Return the end that two looks at these pods found, and the lines they printed."""
    said: list[str] = []
    lines, api = StatusLines(said.append), SimpleNamespace(log=lambda *_, **__: "the log")
    for _look in range(2):
        result = watch_pods(api, "n", pods, lines, 60, restarts=restarts)
    return result, said


EVICTED = {"metadata": {"name": "p"}, "spec": {}, "status": {"phase": "Failed", "reason": "Evicted", "message": "m"}}


@pytest.mark.parametrize("lost", [ended("p", 128), ended("p", 137), ended("p", 200), ended("p", 143), EVICTED])
def test_a_lost_pod_is_a_line_while_the_job_may_restart_and_else_the_end(lost: dict[str, Any]) -> None:
    found, said = watched([lost], restarts=True)
    assert found is None and len([line for line in said if "lost p: " in line]) == 1
    assert str(watched([lost], restarts=False)[0]).startswith("pod p: ")


@pytest.mark.parametrize("code", [1, 2, 127])
def test_an_error_of_its_own_is_the_end_whoever_ended_first(code: int) -> None:
    pods = [ended("first", 200, "2026-11-24T20:59:00Z"), ended("second", code)]
    assert str(watched(pods, restarts=True)[0]).startswith(f"pod second: container node ended with exit code {code}")


def test_each_line_of_a_log_is_printed_once() -> None:
    """The API server sends the whole second of `sinceTime` again."""
    stamps = [f"2026-11-24T21:00:00.{number}00000000Z" for number in range(3)]
    log = "".join(f"{stamp} trainlab: line {number}\n" for number, stamp in enumerate(stamps))
    said: list[str] = []
    answers = iter([log[: log.index(stamps[2])], log, log])
    api: Any = SimpleNamespace(log=lambda *_, **__: next(answers))
    follower = Follower(api, "n", StatusLines(said.append))
    for _look in range(3):
        follower.follow("p", "c")
    assert [line.split("  ")[-1] for line in said] == ["line 0", "line 1", "line 2"]


def test_a_job_says_how_often_it_may_restart() -> None:
    assert jobs.restarts({"metadata": {"annotations": {"trainlab.dev/restarts": "3"}}}) == 3
    assert jobs.restarts({"metadata": {}}) == 0


SUSPENDED = {"type": "Suspended", "status": "True", "reason": "Suspended", "message": "TrainJob is suspended"}
RESUMED = SUSPENDED | {"status": "False", "reason": "Resumed", "message": "TrainJob is resumed"}


@pytest.mark.parametrize(
    ("suspend", "conditions", "word"),
    [
        (True, [], "queued"),  # as Kueue's webhook leaves it: nothing has reconciled it yet
        (True, [SUSPENDED], "queued"),
        (True, [RESUMED], "queued"),  # preempted a moment ago
        (False, [SUSPENDED], "running"),  # admitted a moment ago: without pods in time, its operator does not run
        (False, [RESUMED], "running"),  # left behind for the whole run
        (False, [RESUMED, {"type": "Complete", "status": "True"}], "succeeded"),
    ],
)
@pytest.mark.parametrize("kind", [jobs.PYTORCHJOB, jobs.TRAINJOB])
def test_a_condition_that_kueue_leaves_behind_is_not_the_state(
    kind: jobs.Kind, suspend: bool, conditions: list[dict[str, Any]], word: str
) -> None:
    spec = {"suspend": suspend} if kind is jobs.TRAINJOB else {"runPolicy": {"suspend": suspend}}
    named = [each | {"type": each["type"].replace("Complete", kind.succeeded)} for each in conditions]
    assert jobs.outcome(kind, {"spec": spec, "status": {"conditions": named}})[0] == word


@pytest.mark.parametrize("before", ["pods", "queue"])
def test_a_job_that_restarts_or_was_admitted_may_be_without_pods_for_a_moment(before: str) -> None:
    """Long after the start, when its first pods were due within 90 s; a job that stays without them is reported."""
    action = train_wait.ActionModule.__new__(train_wait.ActionModule)
    lines, there = StatusLines(lambda _line: None), [{"metadata": {"name": "p"}, "status": {"phase": "Running"}}]
    queued = {"runPolicy": {"suspend": True}}
    looks = [(500, there, {}) if before == "pods" else (500, [], queued), (520, [], {}), (700, [], {})]
    args: dict[str, Any] = {"namespace": "n", "start_timeout": 90, "unschedulable_timeout": 60, "step": "train"}
    follower: Any = SimpleNamespace(follow=lambda *_: None)

    def look(second: int, pods: list[Any], spec: dict[str, Any]) -> Any:
        lines.start = time.monotonic() - second
        api: Any = SimpleNamespace(items=lambda *_: pods, log=lambda *_, **__: "", get=lambda *_: {}, kubectl="kubectl")
        return action._look(api, jobs.PYTORCHJOB, {"metadata": {"name": "j"}, "spec": spec}, args, lines, follower)

    assert [look(*each) for each in looks[:2]] == [None, None]
    with pytest.raises(AnsibleActionFail, match=r"has had no pods for (200|180) s: is its operator running"):
        look(*looks[2])


def workload(**more: Any) -> dict[str, Any]:
    """A Workload of job j that has no quota."""
    metadata = {"name": "w", "ownerReferences": [{"kind": "PyTorchJob", "name": "j"}]}
    return {"metadata": metadata, "spec": more.pop("spec", {}), "status": more}


def reserved(message: str, reason: str = "Pending") -> dict[str, Any]:
    return {"type": "QuotaReserved", "status": "False", "reason": reason, "message": message}


EVICTED_BY_QUEUE = {
    "type": "Evicted",
    "status": "True",
    "reason": "Preempted",
    "message": "Preempted to accommodate a workload",
}


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (
            [workload(conditions=[reserved("resource ephemeral-storage unavailable in ClusterQueue")])],
            "resource ephemeral",
        ),
        (
            [workload(conditions=[reserved("ClusterQueue pool is inactive", "Inadmissible")])],
            "ClusterQueue pool is inactive",
        ),
        (
            [workload(conditions=[EVICTED_BY_QUEUE, reserved("insufficient quota")])],
            "sent away (Preempted): Preempted to",
        ),
        ([workload(spec={"active": False})], "put it aside"),
        (
            [workload(admissionChecks=[{"name": "prov", "state": "Pending", "message": "no room"}])],
            "check prov: no room",
        ),
        ([], "waits in the queue: is suspended"),
    ],
)
def test_a_job_in_a_queue_says_what_it_waits_for(found: list[dict[str, Any]], said: str) -> None:
    printed: list[str] = []
    action = train_wait.ActionModule.__new__(train_wait.ActionModule)
    args: dict[str, Any] = {"namespace": "n", "start_timeout": 90, "unschedulable_timeout": 60, "step": "train"}
    job = {
        "metadata": {"name": "j"},
        "spec": {"runPolicy": {"suspend": True}},
        "status": {"conditions": [{"type": "Suspended", "status": "True", "message": "is suspended"}]},
    }
    api: Any = SimpleNamespace(
        items=lambda path, *_, **__: found if "workloads" in path else [], get=lambda *_: {}, kubectl="kubectl"
    )
    follower: Any = SimpleNamespace(follow=lambda *_: None)
    assert action._look(api, jobs.PYTORCHJOB, job, args, StatusLines(printed.append), follower) is None
    assert said in printed[0]


@pytest.mark.parametrize(
    ("reason", "said"), [("DeadlineExceeded", "timeout_minutes"), ("BackoffLimitExceeded", "FailJobSet")]
)
def test_a_trainjob_that_took_too_long_says_so(reason: str, said: str) -> None:
    """JobSet names the job that failed, not why; a dry run only says that it has failed."""
    action = train_wait.ActionModule.__new__(train_wait.ActionModule)
    action._task = SimpleNamespace(check_mode=False)
    args: dict[str, Any] = {"namespace": "n", "start_timeout": 90, "unschedulable_timeout": 60, "step": "train"}
    failed = {"type": "Failed", "status": "True", "message": "applying FailJobSet failure policy action"}
    job = {"metadata": {"name": "j"}, "status": {"conditions": [failed]}}
    late = {"type": "Failed", "status": "True", "reason": reason, "message": "longer than specified deadline"}
    jobs_of = [{"metadata": {"name": "j-node-0"}, "status": {"conditions": [late]}}]
    api: Any = SimpleNamespace(
        items=lambda path, *_, **__: jobs_of if path.startswith("/apis/batch") else [], kubectl="kubectl"
    )
    with pytest.raises(AnsibleActionFail, match=said):
        action._look(api, jobs.TRAINJOB, job, args, StatusLines([].append), SimpleNamespace())
    action._task = SimpleNamespace(check_mode=True)
    looked = action._look(api, jobs.TRAINJOB, job, args, StatusLines([].append), SimpleNamespace())
    assert looked and looked["state"] == "failed"
