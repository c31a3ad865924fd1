"""Waits for operators and their resources at the same time and says what each of them is waiting for.

Fails at once when one of them has failed for good, and after a grace when it stays in a state that operators leave by
themselves. With manual approval it approves the InstallPlans up to the version that the plan expects, and no later one. In
check mode it polls once and never fails.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace

from ansible.errors import AnsibleActionFail
from ansible.utils.display import Display

from ..plugin_utils.documented import ClusterAction
from ..plugin_utils.gpu_inventory import judge_gpus
from ..plugin_utils.kube import Json
from ..plugin_utils.platform_ready import (
    FAILED,
    READY,
    WAITING,
    Verdict,
    judge,
    judge_csv,
    judge_installed,
    judge_plan,
    judge_subscription,
    judge_version,
    version,
)

OLM, CSV = "operators.coreos.com/v1alpha1", "ClusterServiceVersion"
CRD_API, CRD = "apiextensions.k8s.io/v1", "CustomResourceDefinition"
ALM_EXAMPLES = "alm-examples"
BRIEF_SECONDS = 60.0
"""The longest grace for what ends by itself soon, or not at all."""


class ActionModule(ClusterAction):
    """Polls each in turn until all are ready or one has failed for good."""

    OPERATION = "waiting for the platform"

    def run_on_cluster(self, args: Json) -> Json:
        """Wait; returns `seconds`, `states` by title, `examples` (alm-examples), `installed` by operator, `versions` by CRD."""
        self._examples: dict[str, list[Json]] = {}
        self._versions: dict[str, list[str]] = {}
        self._installed: dict[str, str] = {}
        self._approved: list[str] = []
        self._notes: list[str] = []
        self._since: dict[str, tuple[str, float]] = {}
        self._grace = args["grace"]
        self._timeout, self._poll = args["timeout"], args["poll"]
        seconds, states = self._wait(args["operators"], args["resources"])
        for resource in args["resources"]:  # an operator that was upgraded meanwhile may serve more versions
            if resource["kind"] == CRD:
                self._resource(resource)
        return {
            "changed": bool(self._approved),
            "approved": self._approved,
            "notes": self._notes,
            "seconds": seconds,
            "states": states,
            "examples": self._examples,
            "installed": self._installed,
            "versions": self._versions,
        }

    def _wait(self, operators: list[Json], resources: list[Json]) -> tuple[dict[str, float], dict[str, str]]:
        pending = {operator["title"]: ("operator", operator) for operator in operators}
        pending |= {resource["title"]: ("resource", resource) for resource in resources}
        lines, seconds, states = self.lines, {}, {}
        while pending:
            for title, (sort, entry) in list(pending.items()):
                verdict = self._lasting(title, self._operator(entry) if sort == "operator" else self._resource(entry))
                states[title] = verdict.text
                lines.changed(title, verdict.text)
                if verdict.state == READY:
                    self._tell(verdict.note)
                    seconds[title] = round(lines.seconds, 1)
                    del pending[title]
                elif verdict.state == FAILED and not self.check:
                    raise AnsibleActionFail(f"{title} has failed: {verdict.text}; {_hint(self.api.oc, sort, entry)}")
            if not pending or self.check:
                break
            if lines.seconds > self._timeout:
                sentences = [f"{title}: {states[title]}; {_hint(self.api.oc, *pending[title])}" for title in pending]
                raise AnsibleActionFail(
                    f"not ready after {self._timeout:.0f} s: "
                    + " | ".join(sentences)
                    + "; raise platform_timeouts, or fix "
                    "it and run the playbook again: it continues where it stopped"
                )
            lines.alive(f"still waiting for {', '.join(pending)}")
            time.sleep(self._poll)
        return seconds, states

    def _tell(self, note: str) -> None:
        """Say loudly what is no failure, but not what the user expects either."""
        if note:
            self._notes.append(note)
            Display().warning(note)

    def _lasting(self, title: str, verdict: Verdict) -> Verdict:
        """Turn a verdict into what it becomes when its reason has lasted for its grace."""
        now = time.monotonic()
        reason, since = self._since.get(title, ("", now))
        self._since[title] = (verdict.reason, since if verdict.reason == reason else now)
        grace = min(BRIEF_SECONDS, self._grace) if verdict.brief else self._grace
        lasted = now - self._since[title][1]
        if not verdict.turns or lasted < grace:
            return verdict
        text = f"{verdict.text}, for {lasted:.0f} s" if verdict.turns == FAILED else verdict.text
        return Verdict(verdict.turns, text, note=verdict.note)

    def _resource(self, resource: Json) -> Verdict:
        existing = self.api.look(
            resource["apiVersion"], resource["kind"], resource["name"], resource.get("namespace") or ""
        )
        if existing is not None and resource["kind"] == CRD:
            self._versions[resource["name"]] = [each["name"] for each in existing["spec"]["versions"] if each["served"]]
        ready = resource.get("ready") or {}
        if ready.get("gpus"):
            return judge_gpus(existing, self.api.items(str(self.api.path("v1", "Node"))))
        verdict = judge(existing, ready)
        return replace(verdict, text=verdict.text.replace("{oc}", self.api.oc))

    def _operator(self, operator: Json) -> Verdict:
        namespace = operator["namespace"]
        subscription = self.api.look(OLM, "Subscription", operator["subscription"], namespace)
        early = judge_subscription(subscription)
        if subscription is None or early.state == FAILED:
            return early
        reached = judge_version(operator, subscription)
        if reached.state != READY:
            status = subscription.get("status") or {}
            plan_name = (status.get("installPlanRef") or {}).get("name")
            if reached.state == WAITING and plan_name and status.get("installedCSV") != status.get("currentCSV"):
                return self._plan(operator, plan_name, str(status.get("currentCSV") or ""))
            return early if early.turns else reached
        csv, crd = self.api.look(OLM, CSV, reached.text, namespace), operator.get("crd") or ""
        if csv is not None and judge_csv(csv).state == READY:
            self._examples[operator["name"]] = json.loads(
                (csv["metadata"].get("annotations") or {}).get(ALM_EXAMPLES, "[]")
            )
            self._installed[operator["name"]] = reached.text
        verdict = judge_installed(csv, crd, self.api.look(CRD_API, CRD, crd) if crd else None)
        return replace(verdict, text=f"{reached.text} {verdict.text}")

    def _plan(self, operator: Json, name: str, current: str) -> Verdict:
        plan = self.api.look(OLM, "InstallPlan", name, operator["namespace"])
        verdict = judge_plan(plan)
        if (
            plan is None
            or (plan.get("status") or {}).get("phase") != "RequiresApproval"
            or operator["state"] == "found"
        ):
            return verdict
        brings = plan["spec"].get("clusterServiceVersionNames", [])
        # an upgrade goes through the versions between, one plan after another
        if operator["csv"] not in brings and not (current in brings and version(current) < version(operator["csv"])):
            return Verdict(
                FAILED,
                f"InstallPlan {name} waits for approval but installs {', '.join(brings)}, expected {operator['csv']}",
            )
        if not self.check:
            path = self.api.path(OLM, "InstallPlan", operator["namespace"], name)
            self.api.patch(str(path), {"spec": {"approved": True}})
            self._approved.append(f"{operator['namespace']}/{name}")
        return Verdict(
            WAITING, f"InstallPlan {name} approved for {operator['csv'] if operator['csv'] in brings else current}"
        )


def _hint(oc: str, sort: str, entry: Json) -> str:
    """The command that shows more."""
    if sort == "operator":
        return f"see `{oc} -n {entry['namespace']} describe subscriptions.operators.coreos.com,installplans,clusterserviceversions`"
    namespace = f"-n {entry['namespace']} " if entry.get("namespace") else ""
    return f"see `{oc} {namespace}describe {entry['kind'].lower()} {entry['name']}`"
