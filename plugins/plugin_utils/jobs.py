"""The two kinds of training jobs, what their status says, and why Kueue lets one wait; used by train_failed, train_wait and checks.

Condition types: training-operator v1 (pkg/apis/kubeflow.org/v1/common_types.go), Trainer v2 (trainjob_types.go).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from . import kueue
from .kube import FORBIDDEN, Api, ApiError, Json, condition
from .labels import RESTARTS, RUN
from .pods import name

HELD = {"Hold": "is on hold (stopPolicy Hold): it admits nothing", "HoldAndDrain": "is on hold and sends its jobs away"}


@dataclass(frozen=True)
class Kind:
    """Where a job kind is served and how its pods and its end are recognized."""

    kind: str
    group_version: str
    plural: str
    pod_label: str
    succeeded: str
    failed: str = "Failed"

    def path(self, namespace: str) -> str:
        """API path of the objects in a namespace."""
        return f"/apis/{self.group_version}/namespaces/{namespace}/{self.plural}"

    def of_release(self, api: Api, namespace: str, release: str) -> list[Json]:
        """Return the objects of this kind that belong to a release; none where the kind is not served."""
        return api.items(self.path(namespace), f"app.kubernetes.io/instance={release}")

    def of_run(self, api: Api, namespace: str, release: str, run: str) -> list[Json]:
        """Return those of one run of a release."""
        return [job for job in self.of_release(api, namespace, release) if run_of(job) == run]


PYTORCHJOB = Kind("PyTorchJob", "kubeflow.org/v1", "pytorchjobs", "training.kubeflow.org/job-name", "Succeeded")
TRAINJOB = Kind("TrainJob", "trainer.kubeflow.org/v1alpha1", "trainjobs", "jobset.sigs.k8s.io/jobset-name", "Complete")
KINDS = {"pytorchjob": PYTORCHJOB, "trainjob": TRAINJOB}
BATCH = Kind("Job", "batch/v1", "jobs", "batch.kubernetes.io/job-name", "Complete")


def run_of(job: dict[str, Any]) -> str:
    """Return the run that a job belongs to; its own name also tells its specification."""
    return str(job["metadata"].get("labels", {}).get(RUN, ""))


def preparing(api: Api, namespace: str, release: str) -> list[Json]:
    """Return the Jobs that make a release's text ready (site.step prepare), by the name that the chart gives them."""
    return [job for job in BATCH.of_release(api, namespace, release) if name(job).startswith(f"{release}-prepare-")]


def restarts(job: dict[str, Any]) -> int:
    """Return how often a job may lose a pod and go on."""
    return int(job["metadata"].get("annotations", {}).get(RESTARTS, "0"))


def outcome(kind: Kind, job: dict[str, Any]) -> tuple[str, str]:
    """Return (`succeeded`, `failed`, `queued` or `running`; the message of the status)."""
    for word, kinds in (("failed", kind.failed), ("succeeded", kind.succeeded)):
        status_condition = condition(job, kinds)
        if status_condition.get("status") == "True":
            return word, str(status_condition.get("message", ""))
    if suspended(job):
        held = condition(job, "Suspended")
        return "queued", str(held.get("message", "")) if held.get("status") == "True" else ""
    return "running", ""


def suspended(job: dict[str, Any]) -> bool:
    """Tell whether a job is to wait, from its specification, which Kueue writes: its condition `Suspended` comes after that, and stays.

    A TrainJob that Kueue has not admitted has no condition at first; one that runs again keeps `Suspended` (kubeflow/sdk issue 803).
    """
    spec = job.get("spec") or {}
    return bool(spec.get("suspend") or (spec.get("runPolicy") or {}).get("suspend"))


def took_too_long(api: Api, namespace: str, kind: Kind, job: dict[str, Any]) -> str:
    """Return that a TrainJob has met its deadline, of which JobSet's status names only the Job; empty otherwise."""
    if kind is not TRAINJOB:
        return ""
    selector = f"{kind.pod_label}={job['metadata']['name']}"
    failures = [condition(batch_job, BATCH.failed) for batch_job in api.items(BATCH.path(namespace), selector)]
    late = next((each["message"] for each in failures if each.get("reason") == "DeadlineExceeded"), "")
    return f"it took longer than phase.resources.timeout_minutes allows ({late})" if late else ""


def live(kind: Kind, jobs: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the newest of the jobs of a release; a changed phase leaves one, an interrupted upgrade may leave two."""
    current = [job for job in jobs if not job["metadata"].get("deletionTimestamp")]
    return max(current, key=lambda job: str(job["metadata"].get("creationTimestamp", "")), default=None)


def workload_of(api: Api, namespace: str, job: Json) -> Json | None:
    """Return the newest Workload that a job owns; None where there is none, or where this user may not list them."""
    try:
        workloads = api.items(kueue.path(api, "workloads", namespace))
    except ApiError as error:
        if error.status == FORBIDDEN:
            return None
        raise
    mine = [
        workload
        for workload in workloads
        if name(job) in [each.get("name") for each in workload["metadata"].get("ownerReferences") or []]
    ]
    return max(mine, key=lambda workload: str(workload["metadata"].get("creationTimestamp", "")), default=None)


def waits_for(workload: Json | None) -> str:
    """Return what a Workload waits for in Kueue's own words with what ended its last attempt; empty where it says nothing."""
    if workload is None:
        return ""
    if (workload.get("spec") or {}).get("active") is False:
        return "Kueue has put it aside (spec.active of its Workload is false)"
    reserved, evicted = condition(workload, "QuotaReserved"), condition(workload, "Evicted")
    reasons = []
    if evicted.get("status") == "True" and evicted.get("message"):
        reasons.append(f"sent away ({evicted.get('reason')}): {evicted['message']}")
    if reserved.get("status") != "True" and reserved.get("message"):
        reasons.append(str(reserved["message"]))
    checks = (workload.get("status") or {}).get("admissionChecks") or []
    reasons += [
        f"check {check['name']}: {check.get('message') or check['state']}"
        for check in checks
        if check.get("state") != "Ready"
    ]
    return "; ".join(dict.fromkeys(reasons))


def stopped(queue: Json) -> str:
    """Return why a ClusterQueue or LocalQueue admits nothing at all; empty where it does."""
    if held := HELD.get((queue.get("spec") or {}).get("stopPolicy") or "None"):
        return held
    active = condition(queue, "Active")
    return f"is inactive: {active.get('message') or active.get('reason')}" if active.get("status") == "False" else ""
