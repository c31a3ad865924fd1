"""Why Kueue lets a job wait, in words: pure functions over its Workload and ClusterQueue, for waits and checks."""

from __future__ import annotations

from .kube import Api, ApiError, Json
from .pods import condition, name

API = "kueue.x-k8s.io/v1beta1"
FORBIDDEN = 403
HELD = {"Hold": "is on hold (stopPolicy Hold): it admits nothing", "HoldAndDrain": "is on hold and sends its jobs away"}


def workload_of(api: Api, namespace: str, job: Json) -> Json | None:
    """Return the newest Workload that a job owns; None where there is none, or where this user may not list them."""
    try:
        found = api.items(f"/apis/{API}/namespaces/{namespace}/workloads")
    except ApiError as error:
        if error.status == FORBIDDEN:
            return None
        raise
    mine = [
        one for one in found if name(job) in [each.get("name") for each in one["metadata"].get("ownerReferences") or []]
    ]
    return max(mine, key=lambda one: str(one["metadata"].get("creationTimestamp", "")), default=None)


def waits_for(workload: Json | None) -> str:
    """Return what a Workload waits for in Kueue's own words with what ended its last attempt; empty where it says nothing."""
    if workload is None:
        return ""
    if (workload.get("spec") or {}).get("active") is False:
        return "Kueue has put it aside (spec.active of its Workload is false)"
    reserved, evicted = condition(workload, "QuotaReserved"), condition(workload, "Evicted")
    said = []
    if evicted.get("status") == "True" and evicted.get("message"):
        said.append(f"sent away ({evicted.get('reason')}): {evicted['message']}")
    if reserved.get("status") != "True" and reserved.get("message"):
        said.append(str(reserved["message"]))
    checks = (workload.get("status") or {}).get("admissionChecks") or []
    said += [
        f"check {one['name']}: {one.get('message') or one['state']}" for one in checks if one.get("state") != "Ready"
    ]
    return "; ".join(dict.fromkeys(said))


def stopped(queue: Json) -> str:
    """Return why a ClusterQueue or LocalQueue admits nothing at all; empty where it does."""
    if held := HELD.get((queue.get("spec") or {}).get("stopPolicy") or "None"):
        return held
    active = condition(queue, "Active")
    return f"is inactive: {active.get('message') or active.get('reason')}" if active.get("status") == "False" else ""
