"""A small Operator Lifecycle Manager for tests: it resolves, asks for approval, installs late and in steps, and fails on demand.

Its statuses are those of statuses/olm.yaml. Faults by package, in the file faults.json of the server's folder: `csv-failed`
(Failed until the fault is removed), `csv-hopeless` (Failed, and not tried again), `plan-failed`, `resolution-failed`, `late`
(starts 6 s later), `stuck`. They can be removed while it runs, as a repaired cluster would behave.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from api_server import catalog, recorded
from api_server.client import Client, Json, condition

OLM = "operators.coreos.com/v1alpha1"
LATE_SECONDS = 6.0
CSV, SUBSCRIPTION = "ClusterServiceVersion", "Subscription"
REINSTALLED = "gpu-operator-certified"
"""Always takes the way through a failed installation, so that every test sees one."""
FAILED_STEPS = 6
"""How many steps' time a failure that OLM repeats by itself stays at least: at one round a step, who looks twice a second on a busy machine missed it."""
RETRIED = "nfd"
"""Whose first resolution always fails, for a reason that OLM tries again."""
FAULTS = {"csv-failed": f"{CSV}, deadline exceeded", "csv-hopeless": f"{CSV}, no retry"}
"""Sequence of the ClusterServiceVersion by fault."""


class Olm:
    """Acts on every Subscription, one step per call of `step`."""

    def __init__(
        self,
        client: Client,
        faults: dict[str, str],
        slow: float,
        read: Callable[[str], Json] = recorded.read,
    ) -> None:
        """`faults` is shared with whoever reads the file; `slow` is the time of one step in seconds; `read` returns a file of statuses."""
        self._client, self.faults, self._slow = client, faults, slow
        self._since: dict[tuple[str, str], float] = {}
        self._sequences, self._replay = read("olm")["sequences"], recorded.Replay()

    def step(self) -> None:
        """Advance every Subscription by one step."""
        for subscription in self._client.items(OLM, "Subscription"):
            self._subscription(subscription)

    def _passed(self, thing: Json, mark: str, seconds: float) -> bool:
        """Tell whether this many seconds have passed since the object was first seen at this mark."""
        key = (thing["metadata"]["uid"], mark)
        return time.monotonic() - self._since.setdefault(key, time.monotonic()) >= seconds

    def _stayed(self, csv: Json) -> bool:
        return self._passed(csv, "failed", FAILED_STEPS * self._slow)

    def _subscription(self, one: Json) -> None:
        spec, status = one["spec"], one.get("status") or {}
        fault = self.faults.get(spec["name"], "")
        package = catalog.PACKAGES.get(spec["name"])
        wanted = package.channels.get(spec["channel"]) if package and package.source == spec["source"] else None
        if package is None or wanted is None or fault == "resolution-failed":
            self._unresolved(one, f"{SUBSCRIPTION}, nothing satisfies")
            return
        installed = status.get("installedCSV")
        csv = (
            _next(package.entries.get(spec["channel"], [wanted]), installed)
            if installed
            else spec.get("startingCSV") or wanted
        )
        if fault == "stuck" or (fault == "late" and not self._passed(one, "late", LATE_SECONDS)):
            return
        if not installed and self._before(one):
            return
        if installed and not self._installed(one, installed, fault):
            return
        if csv == installed:
            return
        if status.get("currentCSV") != csv:
            if self._passed(one, f"resolve {csv}", self._slow):
                self._plan(one, csv)
        else:
            self._install(one, csv, fault)

    def _before(self, one: Json) -> bool:
        """Report one more step of those before there is a plan, ours or a bundle's; tell whether there was one."""
        name = one["spec"]["name"]
        title = f"{SUBSCRIPTION} of {name}"
        if title not in self._sequences:
            title = f"{SUBSCRIPTION}, resolution is retried" if name == RETRIED else ""
        steps = self._sequences.get(title, [])
        if not steps or self._replay.ended(one, steps, title):
            return False
        self._unresolved(one, title)
        return True

    def _unresolved(self, one: Json, title: str) -> None:
        """Report a step; its messages may name package and channel."""
        spec, step = one["spec"], self._replay.step(one, self._sequences[title], title)["status"]
        conditions = [
            {"message": "", **each, **_said(each, package=spec["name"], channel=spec["channel"])}
            for each in step.get("conditions") or []
        ]
        self._status(one, **step | {"conditions": conditions})

    def _status(self, one: Json, **fields: Any) -> None:
        self._client.status(one, {"lastUpdated": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), **fields})

    def _plan(self, one: Json, csv: str) -> None:
        metadata, approval = one["metadata"], one["spec"].get("installPlanApproval", "Automatic")
        plan: Json = {
            "apiVersion": OLM,
            "kind": "InstallPlan",
            "metadata": {
                "name": f"install-{metadata['uid'][:5]}-{csv.rpartition('.')[2]}",
                "namespace": metadata["namespace"],
                "ownerReferences": [
                    {"apiVersion": OLM, "kind": "Subscription", "name": metadata["name"], "uid": metadata["uid"]}
                ],
            },
            "spec": {
                "approval": approval,
                "approved": approval == "Automatic",
                "clusterServiceVersionNames": [csv],
                "generation": 1,
            },
        }
        made = self._client.apply(plan)
        phase = "Installing" if approval == "Automatic" else "RequiresApproval"
        self._client.status(made, {"phase": phase, "catalogSources": [], "conditions": []})
        reference = {
            "apiVersion": OLM,
            "kind": "InstallPlan",
            "name": plan["metadata"]["name"],
            "namespace": metadata["namespace"],
        }
        pending = self._sequences[SUBSCRIPTION][0]["status"]
        self._status(one, **pending, currentCSV=csv, installPlanRef=reference, conditions=[])

    def _install(self, one: Json, csv: str, fault: str) -> None:
        namespace = one["metadata"]["namespace"]
        plan = self._client.look(OLM, "InstallPlan", one["status"]["installPlanRef"]["name"], namespace)
        if plan is None or not plan["spec"]["approved"]:
            return
        if fault == "plan-failed":
            failed = condition("Installed", False, "InstallComponentFailed", "told to fail by the test")
            self._client.status(plan, {"phase": "Failed", "conditions": [failed]})
            self._status(
                one, conditions=[condition("InstallPlanFailed", True, "InstallComponentFailed", "told to fail")]
            )
            return
        self._client.status(plan, {"phase": "Installing"})
        if not self._passed(plan, "install", self._slow):
            return
        old = (one.get("status") or {}).get("installedCSV")
        label = {"operators.coreos.com/" + f"{one['spec']['name']}.{namespace}"[:63].rstrip(".-_"): ""}
        owned = catalog.owned(one["spec"]["name"], csv)
        for crd in owned:
            crd["metadata"].setdefault("labels", {}).update(label)
            self._client.apply(crd)
        self._client.apply(
            {
                "apiVersion": OLM,
                "kind": "ClusterServiceVersion",
                "metadata": {
                    "name": csv,
                    "namespace": namespace,
                    "labels": label,
                    "annotations": {"alm-examples": catalog.examples(one["spec"]["name"])},
                },
                "spec": {
                    "displayName": csv,
                    "customresourcedefinitions": {"owned": [catalog.described(crd) for crd in owned]},
                    "install": {"strategy": "deployment", "spec": {"deployments": []}},
                    **({"replaces": old} if old else {}),
                },
            }
        )
        self._client.status(plan, {"phase": "Complete"})
        latest = self._sequences[SUBSCRIPTION][1]["status"]
        self._status(one, **latest, installedCSV=csv, currentCSV=csv, conditions=[])

    def _installed(self, one: Json, name: str, fault: str) -> bool:
        """Advance the ClusterServiceVersion by one step; tell whether it has succeeded."""
        csv = self._client.look(OLM, CSV, name, one["metadata"]["namespace"])
        if csv is None:
            return False
        csv |= {"apiVersion": OLM, "kind": CSV}
        status = csv.get("status") or {}
        ours = f"{CSV}, reinstalled" if one["spec"]["name"] == REINSTALLED else CSV
        theirs = f"{CSV} of {name.partition('.')[0]}"
        usual = theirs if theirs in self._sequences else ours
        wrong = self._group(one)
        sequence, after = wrong or FAULTS.get(fault) or usual, f"{CSV}, after no retry"
        if sequence == ours and (
            status.get("reason") == "InstallComponentFailedNoRetry" or self._replay.begun(csv, after)
        ):
            sequence = after
        elif sequence == ours and str(status.get("message")).startswith("install failed"):
            self._replay.skip(csv, self._sequences[usual], usual)
        elif sequence == ours and status.get("reason") == "InstallCheckFailed" and not self._stayed(csv):
            return False
        step = self._replay.step(csv, self._sequences[sequence], sequence)["status"]
        for other in {*FAULTS.values(), after} - {sequence}:
            self._replay.again(csv, other)
        if sequence == after and step["phase"] == "Succeeded":
            self._replay.skip(csv, self._sequences[usual], usual)
            self._replay.again(csv, after)
        if wrong:
            self._replay.again(csv, usual)
        if any(status.get(key) != value for key, value in step.items()):
            self._client.status(csv, step)
        if step["phase"] == "Succeeded":
            self._replaced(csv)
        return bool(step["phase"] == "Succeeded")

    def _replaced(self, csv: Json) -> None:
        """Remove the version that this one replaces."""
        old = csv["spec"].get("replaces", "")
        found = self._client.look(OLM, CSV, old, csv["metadata"]["namespace"]) if old else None
        if found:
            sequence = f"{CSV}, upgraded"
            steps = self._sequences[sequence]
            ended = self._replay.ended(found, steps, sequence)
            self._client.status(
                found | {"apiVersion": OLM, "kind": CSV}, self._replay.step(found, steps, sequence)["status"]
            )
            if ended:
                self._client.delete(found | {"apiVersion": OLM, "kind": CSV})

    def _group(self, one: Json) -> str:
        """Return OLM's sequence when the namespace's OperatorGroup does not fit; empty when it does."""
        groups = self._client.items("operators.coreos.com/v1", "OperatorGroup", one["metadata"]["namespace"])
        if len(groups) != 1:
            return f"{CSV}, two OperatorGroups" if groups else f"{CSV}, no OperatorGroup"
        targets = groups[0]["spec"].get("targetNamespaces") or []
        fits = bool(targets) == (catalog.PACKAGES[one["spec"]["name"]].mode == catalog.OWN)
        return "" if fits else f"{CSV}, another mode"


def _next(entries: list[str], installed: str) -> str:
    """Return the version to upgrade to, one entry of the channel after another, newest first; the same when there is none."""
    return entries[max(entries.index(installed) - 1, 0)] if installed in entries else entries[0]


def _said(one: Json, **names: str) -> Json:
    """Put names into the message of a condition of ours; a cluster's has its own."""
    text = str(one.get("message", ""))
    for key, value in names.items():
        text = text.replace(f"{{{key}}}", value)
    return {"message": text} if text else {}
