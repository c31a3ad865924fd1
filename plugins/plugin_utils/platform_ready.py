"""Is it ready, still coming or broken: pure functions over objects of the cluster; used by platform_wait.

Sources: OLM's api/pkg/operators/v1alpha1 (phases and condition types), rhods-operator's DataScienceCluster status.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

Json = dict[str, Any]
READY, WAITING, FAILED = "ready", "waiting", "failed"
RESOLUTION_GRACE_SECONDS = 60.0
"""A new Subscription may report ResolutionFailed while its catalog is still being read."""
HOPELESS_SUBSCRIPTION = {"BundleUnpackFailed": "True", "InstallPlanFailed": "True"}


@dataclass(frozen=True)
class Verdict:
    """`state` is ready, waiting or failed; `text` says what was seen."""

    state: str
    text: str


def condition(thing: Json, kind: str) -> Json:
    """Return the condition of this type, {} without one."""
    found = (thing.get("status") or {}).get("conditions") or []
    return next((one for one in found if one.get("type") == kind), {})


def _words(one: Json) -> str:
    text = f"{one.get('type')}={one.get('status')}"
    reason = ": ".join(str(one[key]) for key in ("reason", "message") if one.get(key))
    return f"{text} ({reason})" if reason else text


def _value(thing: Any, path: str) -> Any:
    for key in path.split("."):
        thing = thing.get(key) if isinstance(thing, dict) else None
    return thing


def judge(thing: Json | None, ready: Json) -> Verdict:
    """Judge an object by its table entry.

    `ready` holds `condition` (a type that has to be True) or `path` and `equals`; `failed` names a condition that ends
    the wait when True; an empty `ready` only requires existence.
    """
    if thing is None:
        return Verdict(WAITING, "does not exist yet")
    broken = condition(thing, ready["failed"]) if ready.get("failed") else {}
    if broken.get("status") == "True":
        return Verdict(FAILED, _words(broken))
    if ready.get("condition"):
        found = condition(thing, ready["condition"])
        return Verdict(READY if found.get("status") == "True" else WAITING, _words(found) if found else "no status yet")
    if ready.get("path"):
        value = _value(thing, ready["path"])
        good = value == ready["equals"]
        text = f"{ready['path']} is {value!r}" + ("" if good else f", wanted {ready['equals']!r}{_unhappy(thing)}")
        return Verdict(READY if good else WAITING, text)
    return Verdict(READY, "exists")


def _unhappy(thing: Json) -> str:
    """The conditions that are not True, without those of parts that were not requested."""
    found = (thing.get("status") or {}).get("conditions") or []
    bad = [_words(one) for one in found if one.get("status") != "True" and one.get("reason") != "Removed"]
    return f"; {'; '.join(bad)}" if bad else ""


def judge_subscription(subscription: Json | None, now: datetime) -> Verdict:
    """Judge what OLM says about a Subscription before there is a ClusterServiceVersion."""
    if subscription is None:
        return Verdict(WAITING, "the Subscription does not exist yet")
    for kind, bad in HOPELESS_SUBSCRIPTION.items():
        found = condition(subscription, kind)
        if found.get("status") == bad:
            return Verdict(FAILED, _words(found))
    resolution = condition(subscription, "ResolutionFailed")
    if resolution.get("status") == "True":
        since = str(resolution.get("lastTransitionTime") or subscription["metadata"]["creationTimestamp"])
        age = (now - datetime.strptime(since[:19], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC)).total_seconds()
        return Verdict(FAILED if age > RESOLUTION_GRACE_SECONDS else WAITING, _words(resolution))
    state = _value(subscription, "status.state") or "no state yet"
    return Verdict(WAITING, f"Subscription {state}")


def judge_plan(plan: Json | None) -> Verdict:
    """Judge an InstallPlan: phases RequiresApproval, Installing, Complete, Failed."""
    phase = str(_value(plan, "status.phase") or "no phase yet")
    if phase == "Failed":
        return Verdict(FAILED, f"InstallPlan Failed: {_words(condition(plan or {}, 'Installed'))}")
    return Verdict(WAITING, f"InstallPlan {phase}")


def judge_csv(csv: Json | None) -> Verdict:
    """Judge a ClusterServiceVersion by its phase."""
    phase = str(_value(csv, "status.phase") or "no phase yet")
    why = ": ".join(str(_value(csv, f"status.{key}")) for key in ("reason", "message") if _value(csv, f"status.{key}"))
    state = {"Succeeded": READY, "Failed": FAILED}.get(phase, WAITING)
    return Verdict(state, f"phase {phase}" + (f" ({why})" if why and state != READY else ""))
