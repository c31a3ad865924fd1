"""A small Operator Lifecycle Manager for tests: it resolves, asks for approval, installs late and in steps, and fails on demand.

Faults by package, in the file faults.json of the server's folder: `csv-failed`, `plan-failed`, `resolution-failed`,
`late` (starts 6 s later), `stuck`. They can be removed while it runs, as a repaired cluster would behave.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

from api_server import catalog
from api_server.client import Client, Json, condition

OLM = "operators.coreos.com/v1alpha1"
LATE_SECONDS = 6.0
FAULTS = ("csv-failed", "plan-failed", "resolution-failed", "late", "stuck")


class Olm:
    """Acts on every Subscription, one step per call of `step`."""

    def __init__(self, client: Client, faults: dict[str, str], slow: float) -> None:
        """`faults` is shared with whoever reads the file; `slow` is the time of one step in seconds."""
        self._client, self.faults, self._slow = client, faults, slow
        self._since: dict[tuple[str, str], float] = {}

    def step(self) -> None:
        """Advance every Subscription by one step."""
        for subscription in self._client.items(OLM, "Subscription"):
            self._subscription(subscription)

    def _passed(self, thing: Json, mark: str, seconds: float) -> bool:
        """Tell whether this many seconds have passed since the object was first seen at this mark."""
        key = (thing["metadata"]["uid"], mark)
        return time.monotonic() - self._since.setdefault(key, time.monotonic()) >= seconds

    def _subscription(self, one: Json) -> None:
        spec, status = one["spec"], one.get("status") or {}
        fault = self.faults.get(spec["name"], "")
        package = catalog.PACKAGES.get(spec["name"])
        wanted = package.channels.get(spec["channel"]) if package and package.source == spec["source"] else None
        if wanted is None or fault == "resolution-failed":
            message = f"constraints not satisfiable: no operators found in channel {spec['channel']} of package {spec['name']}"
            self._status(one, conditions=[condition("ResolutionFailed", True, "ConstraintsNotSatisfiable", message)])
            return
        csv = spec.get("startingCSV") or wanted
        if fault == "stuck" or (fault == "late" and not self._passed(one, "late", LATE_SECONDS)):
            return
        if status.get("installedCSV"):
            self._installed(one, status["installedCSV"], fault)
        elif not status.get("installPlanRef"):
            if self._passed(one, "resolve", self._slow):
                self._plan(one, csv)
        else:
            self._install(one, csv, fault)

    def _status(self, one: Json, **fields: Any) -> None:
        self._client.status(one, {"lastUpdated": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), **fields})

    def _plan(self, one: Json, csv: str) -> None:
        metadata, approval = one["metadata"], one["spec"].get("installPlanApproval", "Automatic")
        plan: Json = {
            "apiVersion": OLM,
            "kind": "InstallPlan",
            "metadata": {
                "name": f"install-{metadata['uid'][:5]}",
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
        self._status(one, state="UpgradePending", currentCSV=csv, installPlanRef=reference, conditions=[])

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
        label = {"operators.coreos.com/" + f"{one['spec']['name']}.{namespace}"[:63].rstrip(".-_"): ""}
        for crd in catalog.owned(one["spec"]["name"], csv):
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
                "spec": {"displayName": csv, "install": {"strategy": "deployment", "spec": {"deployments": []}}},
            }
        )
        self._client.status(plan, {"phase": "Complete"})
        self._status(one, state="AtLatestKnown", installedCSV=csv, currentCSV=csv, conditions=[])

    def _installed(self, one: Json, name: str, fault: str) -> None:
        csv = self._client.look(OLM, "ClusterServiceVersion", name, one["metadata"]["namespace"])
        if csv is None:
            return
        phase = (csv.get("status") or {}).get("phase", "")
        wrong = self._group(one)
        if wrong:
            self._phase(csv, "Failed", *wrong)
        elif fault == "csv-failed":
            self._phase(csv, "Failed", "InstallCheckFailed", "install timeout: deployment told to fail by the test")
        elif phase in ("", "Failed"):
            self._phase(csv, "Pending", "RequirementsUnknown", "requirements not yet checked")
        elif phase == "Pending":
            self._phase(csv, "Installing", "InstallSucceeded", "waiting for install components to report healthy")
        elif phase == "Installing" and self._passed(csv, "healthy", self._slow):
            self._phase(csv, "Succeeded", "InstallSucceeded", "install strategy completed with no errors")

    def _phase(self, csv: Json, phase: str, reason: str, message: str) -> None:
        if (csv.get("status") or {}).get("phase") != phase:
            self._client.status(csv, {"phase": phase, "reason": reason, "message": message})

    def _group(self, one: Json) -> tuple[str, str] | None:
        """Return OLM's message when the namespace's OperatorGroup does not fit."""
        groups = self._client.items("operators.coreos.com/v1", "OperatorGroup", one["metadata"]["namespace"])
        if len(groups) != 1:
            many = "TooManyOperatorGroups" if groups else "NoOperatorGroup"
            return many, f"csv in namespace with {len(groups)} operatorgroups"
        targets = groups[0]["spec"].get("targetNamespaces") or []
        mode = catalog.PACKAGES[one["spec"]["name"]].mode
        if bool(targets) != (mode == catalog.OWN):
            return (
                "UnsupportedOperatorGroup",
                f"the operator supports {mode} only, the OperatorGroup targets {targets or 'all'}",
            )
        return None
