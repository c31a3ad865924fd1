"""Waits for operators and their resources at the same time and says what each of them is waiting for.

Fails at once when one of them has failed for good. With manual approval it approves the one InstallPlan that installs the
version that the plan expects, and no other. In check mode it polls once and never fails.
"""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime

from ansible.errors import AnsibleActionFail
from ansible_collections.trainlab.rhoai.plugins.plugin_utils.cluster_action import ClusterAction
from ansible_collections.trainlab.rhoai.plugins.plugin_utils.documented import CLUSTER
from ansible_collections.trainlab.rhoai.plugins.plugin_utils.kube import Json
from ansible_collections.trainlab.rhoai.plugins.plugin_utils.platform_ready import (
    FAILED,
    READY,
    WAITING,
    Verdict,
    judge,
    judge_csv,
    judge_plan,
    judge_subscription,
)
from ansible_collections.trainlab.rhoai.plugins.plugin_utils.waiting import StatusLines

OLM, CSV = "operators.coreos.com/v1alpha1", "ClusterServiceVersion"
ALM_EXAMPLES = "alm-examples"


class ActionModule(ClusterAction):
    """Polls each in turn until all are ready or one has failed for good."""

    OPERATION = "waiting for the platform"
    TARGET = CLUSTER

    def run_on_cluster(self, args: Json) -> Json:
        """Wait; returns `seconds` and `states` by title, `examples` (alm-examples) by operator, `versions` by CRD."""
        self._examples: dict[str, list[Json]] = {}
        self._versions: dict[str, list[str]] = {}
        self._approved: list[str] = []
        self._timeout, self._poll = args["timeout"], args["poll"]
        seconds, states = self._wait(args["operators"], args["resources"])
        return {
            "changed": bool(self._approved),
            "approved": self._approved,
            "seconds": seconds,
            "states": states,
            "examples": self._examples,
            "versions": self._versions,
        }

    def _wait(self, operators: list[Json], resources: list[Json]) -> tuple[dict[str, float], dict[str, str]]:
        pending = {one["title"]: ("operator", one) for one in operators}
        pending |= {one["title"]: ("resource", one) for one in resources}
        lines, seconds, states = StatusLines(), {}, {}
        while pending:
            for title, (sort, one) in list(pending.items()):
                verdict = self._operator(one) if sort == "operator" else self._resource(one)
                states[title] = verdict.text
                lines.changed(title, verdict.text)
                if verdict.state == READY:
                    seconds[title] = round(lines.seconds, 1)
                    del pending[title]
                elif verdict.state == FAILED and not self.check:
                    raise AnsibleActionFail(f"{title} has failed: {verdict.text}; {_hint(self.api.oc, sort, one)}")
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

    def _resource(self, one: Json) -> Verdict:
        found = self.api.look(one["apiVersion"], one["kind"], one["name"], one.get("namespace") or "")
        if found is not None and one["kind"] == "CustomResourceDefinition":
            self._versions[one["name"]] = [each["name"] for each in found["spec"]["versions"] if each["served"]]
        return judge(found, one.get("ready") or {})

    def _operator(self, one: Json) -> Verdict:
        namespace = one["namespace"]
        subscription = self.api.look(OLM, "Subscription", one["subscription"], namespace)
        status = (subscription or {}).get("status") or {}
        early = judge_subscription(subscription, datetime.now(UTC))
        if early.state == FAILED:
            return early
        installed = status.get("installedCSV")
        plan_name = (status.get("installPlanRef") or {}).get("name")
        if not installed and plan_name:
            return self._plan(one, plan_name)
        if not installed:
            return early
        csv = self.api.look(OLM, CSV, installed, namespace)
        verdict = judge_csv(csv)
        if csv is not None and verdict.state == READY:
            self._examples[one["name"]] = json.loads((csv["metadata"].get("annotations") or {}).get(ALM_EXAMPLES, "[]"))
        return Verdict(verdict.state, f"{installed} {verdict.text}")

    def _plan(self, one: Json, name: str) -> Verdict:
        plan = self.api.look(OLM, "InstallPlan", name, one["namespace"])
        verdict = judge_plan(plan)
        if plan is None or (plan.get("status") or {}).get("phase") != "RequiresApproval":
            return verdict
        brings = plan["spec"].get("clusterServiceVersionNames", [])
        if one["csv"] not in brings:
            return Verdict(
                FAILED,
                f"InstallPlan {name} waits for approval but installs {', '.join(brings)}, expected {one['csv']}",
            )
        if not self.check:
            path = self.api.path(OLM, "InstallPlan", one["namespace"], name)
            self.api.patch(str(path), {"spec": {"approved": True}})
            self._approved.append(f"{one['namespace']}/{name}")
        return Verdict(WAITING, f"InstallPlan {name} approved for {one['csv']}")


def _hint(oc: str, sort: str, one: Json) -> str:
    """The command that shows more."""
    if sort == "operator":
        return f"see `{oc} -n {one['namespace']} describe subscriptions.operators.coreos.com,installplans,clusterserviceversions`"
    namespace = f"-n {one['namespace']} " if one.get("namespace") else ""
    return f"see `{oc} {namespace}describe {one['kind'].lower()} {one['name']}`"
