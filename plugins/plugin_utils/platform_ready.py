"""Is it ready, still coming or broken: pure functions over objects of the cluster; used by platform_wait.

Sources: OLM's pkg/controller/operators/olm/operator.go (transitionCSVState) and api/pkg/operators/v1alpha1 (phases, reasons,
condition types), rhods-operator's pkg/controller/reconciler; tests/api_server/statuses has their lines.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from .kube import Json, condition

READY, WAITING, FAILED = "ready", "waiting", "failed"
UNRECOVERABLE_SUBSCRIPTION = {"BundleUnpackFailed": "True", "InstallPlanFailed": "True"}
UNRECOVERABLE_VERSION = {
    "InstallComponentFailedNoRetry",
    "InvalidInstallStrategy",
    "InvalidInstallModes",
    "InvalidWebhookDescription",
    "OwnerConflict",
    "CannotModifyStaticOperatorGroupProvidedAPIs",
}
"""Reasons of a failed ClusterServiceVersion that OLM does not retry."""
GROUP_REASONS = {
    "NoOperatorGroup",
    "TooManyOperatorGroups",
    "UnsupportedOperatorGroup",
    "NoTargetNamespaces",
    "InterOperatorGroupOwnerConflict",
}
"""Those that end a moment after the OperatorGroup was repaired, and not before."""


@dataclass(frozen=True)
class Verdict:
    """`state` is ready, waiting or failed; `text` says what was seen.

    What operators recover from by themselves is `waiting`, and `turns` into failed (or ready) when the same `reason` has lasted
    for the grace that the user gives, or for a minute at most if it is `brief`. A `note` is told once it is ready.
    """

    state: str
    text: str
    turns: str = ""
    reason: str = ""
    brief: bool = False
    note: str = ""


def _words(status_condition: Json) -> str:
    text = f"{status_condition.get('type')}={status_condition.get('status')}"
    reason = ": ".join(str(status_condition[key]) for key in ("reason", "message") if status_condition.get(key))
    return f"{text} ({reason})" if reason else text


def _value(resource: Any, path: str) -> Any:
    for key in path.split("."):
        resource = resource.get(key) if isinstance(resource, dict) else None
    return resource


def judge(resource: Json | None, ready: Json) -> Verdict:
    """Judge an object by its table entry.

    `ready` holds `condition` (a type that has to be True) or `path` and `equals`; with `observed`, the status has to be that of
    the latest edit, with `said_by` (a ClusterServiceVersion) not that of an older operator, by status.release.version. `failed`
    names a condition that is bad when True: operators report it on their way, too, so it ends the wait when it lasts, or if its
    reason is among `hopeless`. `asks` says by reason of a condition what a person has to do, `{oc}` being the command line's
    client; nobody having done it, it ends the wait, too. An empty `ready` only requires existence.
    """
    if resource is None:
        return Verdict(WAITING, "does not exist yet")
    required = condition(resource, ready["condition"]) if ready.get("condition") else {}
    broken = condition(resource, ready["failed"]) if ready.get("failed") else {}
    if broken.get("status") == "True":
        reason = str(broken.get("reason"))
        if reason in ready.get("hopeless", []):
            return Verdict(FAILED, _words(broken))
        if required.get("status") != "True":
            return Verdict(WAITING, _words(broken), turns=FAILED, reason=reason)
    if ready.get("condition"):
        return Verdict(
            READY if required.get("status") == "True" else WAITING, _words(required) if required else "no status yet"
        )
    if ready.get("path"):
        value = _value(resource, ready["path"])
        good = value == ready["equals"]
        text = f"{ready['path']} is {value!r}" + ("" if good else f", wanted {ready['equals']!r}{_unhappy(resource)}")
        if good and ready.get("observed") and _stale(resource):
            return Verdict(WAITING, f"{text}, which was said before the latest change")
        if good and ready.get("said_by") and _older(resource, ready["said_by"]):
            by = _value(resource, "status.release.version")
            return Verdict(WAITING, f"{text}, which was said by {by}, {ready['said_by']} is installed")
        asked = "" if good else _asked(resource, ready.get("asks", {}))
        if asked:
            return Verdict(WAITING, f"{text}; {ready['asks'][asked]}", turns=FAILED, reason=asked)
        return Verdict(READY if good else WAITING, text)
    return Verdict(READY, "exists")


def _asked(resource: Json, asks: Json) -> str:
    """Return the reason of the first condition that waits for a person, empty without one."""
    conditions = (resource.get("status") or {}).get("conditions") or []
    return next((str(each["reason"]) for each in conditions if each.get("reason") in asks), "")


def _stale(resource: Json) -> bool:
    """Tell whether the status is that of an earlier spec; an object that does not say is believed."""
    observed = _value(resource, "status.observedGeneration")
    return observed is not None and int(observed) < int(resource["metadata"].get("generation", 0))


def _older(resource: Json, csv: str) -> bool:
    """Tell whether an operator older than this version wrote the status; one that does not say is believed."""
    numbers = re.findall(r"\d+", str(_value(resource, "status.release.version") or ""))[:3]
    return bool(numbers) and tuple(map(int, numbers)) < version(csv)[:3]


def _unhappy(resource: Json) -> str:
    """The conditions that are not True, without those of parts that were not requested."""
    conditions = (resource.get("status") or {}).get("conditions") or []
    bad = [_words(each) for each in conditions if each.get("status") != "True" and each.get("reason") != "Removed"]
    return f"; {'; '.join(bad)}" if bad else ""


def judge_subscription(subscription: Json | None) -> Verdict:
    """Judge what OLM says about a Subscription before there is a ClusterServiceVersion."""
    if subscription is None:
        return Verdict(WAITING, "the Subscription does not exist yet")
    for kind, bad in UNRECOVERABLE_SUBSCRIPTION.items():
        status_condition = condition(subscription, kind)
        if status_condition.get("status") == bad:
            return Verdict(FAILED, _words(status_condition))
    resolution = condition(subscription, "ResolutionFailed")
    if resolution.get("status") == "True":
        # a new one may say so while its catalog is still being read; only ErrorPreventedResolution is retried
        reason = str(resolution.get("reason"))
        return Verdict(WAITING, _words(resolution), FAILED, reason, brief=reason != "ErrorPreventedResolution")
    state = _value(subscription, "status.state") or "no state yet"
    return Verdict(WAITING, f"Subscription {state}")


def version(csv: str) -> tuple[int, ...]:
    """Return the numbers in a ClusterServiceVersion's name after the first dot, for comparing: (3, 4, 3) of `rhods-operator.3.4.3`."""
    return tuple(int(number) for number in re.findall(r"\d+", csv.partition(".")[2]))


def judge_version(operator: Json, subscription: Json) -> Verdict:
    """Judge whether the installed version is the expected one: READY, or what still has to happen.

    `operator` is one of platform_plan. Of somebody else's, and of one without an expected version, only what OLM is doing counts;
    an upgrade that waits for approval is not waited for.
    """
    status = subscription.get("status") or {}
    installed, current = str(status.get("installedCSV") or ""), str(status.get("currentCSV") or "")
    expected = "" if operator.get("state") == "found" else str(operator.get("csv") or "")
    manual = (subscription.get("spec") or {}).get("installPlanApproval") == "Manual"
    if not installed:
        return Verdict(WAITING, f"Subscription {status.get('state') or 'no state yet'}")
    if expected and version(installed) < version(expected):
        text = f"{installed} is installed, {expected} is expected"
        if current == installed and status.get("state") == "AtLatestKnown":
            return Verdict(WAITING, f"{text}, and OLM offers no upgrade to it", FAILED, "NoUpgrade", brief=True)
        return Verdict(WAITING, text)
    if expected and manual and operator.get("starting") and version(installed) > version(expected):
        return Verdict(
            FAILED,
            f"{installed} is installed, newer than platform_versions.{operator['name']}, and OLM installs no older version; set it to "
            f"{installed}, or remove it",
        )
    if current and current != installed and not manual:
        return Verdict(WAITING, f"{current} is replacing {installed}")
    return Verdict(READY, installed)


def judge_plan(plan: Json | None) -> Verdict:
    """Judge an InstallPlan: phases RequiresApproval, Installing, Complete, Failed."""
    phase = str(_value(plan, "status.phase") or "no phase yet")
    if phase == "Failed":
        return Verdict(FAILED, f"InstallPlan Failed: {_words(condition(plan or {}, 'Installed'))}")
    return Verdict(WAITING, f"InstallPlan {phase}")


def judge_csv(csv: Json | None) -> Verdict:
    """Judge a ClusterServiceVersion by its phase and reason: OLM repeats most failed installations by itself."""
    phase = str(_value(csv, "status.phase") or "no phase yet")
    reason = str(_value(csv, "status.reason") or "")
    why = ": ".join(str(_value(csv, f"status.{key}")) for key in ("reason", "message") if _value(csv, f"status.{key}"))
    text = f"phase {phase}" + (f" ({why})" if why and phase != "Succeeded" else "")
    if phase == "Failed" and reason in UNRECOVERABLE_VERSION:
        return Verdict(FAILED, text)
    if phase == "Failed":
        return Verdict(WAITING, text, FAILED, reason, brief=reason in GROUP_REASONS)
    return Verdict(READY if phase == "Succeeded" else WAITING, text)


def judge_installed(csv: Json | None, crd: str, definition: Json | None) -> Verdict:
    """Judge the expected version: it has succeeded, and its API is served.

    `definition` is the CustomResourceDefinition `crd`, empty where none is waited for: some operators bring it after their
    installation, or let another operator bring it.
    """
    verdict = judge_csv(csv)
    if verdict.state != READY or not crd:
        return verdict
    served = judge(definition, {"condition": "Established"})
    return verdict if served.state == READY else Verdict(WAITING, f"{verdict.text}, but its API {crd} {served.text}")
