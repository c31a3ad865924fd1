"""What the webhooks of OpenShift AI deny, as admission policies that the API server itself evaluates; used by operands.py.

What depends on another object no policy can say: profiles.py. Which of them a release has, and its words, are in statuses/rhoai-RELEASE.yaml.
"""

from __future__ import annotations

from api_server.client import Client, Json
from api_server.profiles import WHAT, Profiles

API = "admissionregistration.k8s.io/v1"
DSC, DSCI = "datasciencecluster.opendatahub.io", "dscinitialization.opendatahub.io"
KINDS = {DSC: "DataScienceCluster", DSCI: "DSCInitialization"}
QUEUE = "kueue.x-k8s.io/queue-name"
MANAGED = ("kueue.openshift.io/managed", "kueue-managed")
"""Labels of namespaces that Kueue manages, the second as older releases wrote it."""


def _rule(group: str, resource: str, *operations: str, version: str = "*") -> Json:
    return {"apiGroups": [group], "apiVersions": [version], "operations": list(operations), "resources": [resource]}


def known(what: str) -> bool:
    """Tell whether this is something that can be denied here."""
    return what == WHAT or what in _policies({})


def _policies(one: Json) -> dict[str, tuple[list[Json], str, str]]:
    """Return by name: rules, the expression that has to be true, and the kind for each object of which it is evaluated, if any.

    `one` is the entry of the file: a webhook for workloads names its `resources`.
    """
    managed = " || ".join(f"namespaceObject.metadata.?labels[?'{key}'].orValue('') == 'true'" for key in MANAGED)
    queued = f"object.metadata.?labels[?'{QUEUE}'].orValue('') != ''"
    asked = "params.?status.?components.?kueue.?managementState.orValue('') in ['Managed', 'Unmanaged']"
    kueue = "!has(object.spec.components) || !has(object.spec.components.kueue) || "
    kueue += "object.spec.components.kueue.managementState != 'Managed'"
    both = ("CREATE", "UPDATE")
    return {
        "a second DataScienceCluster": ([_rule(DSC, "datascienceclusters", "CREATE")], "false", DSC),
        "a second DSCInitialization": ([_rule(DSCI, "dscinitializations", "CREATE")], "false", DSCI),
        "deleting the DSCInitialization while there is a DataScienceCluster": (
            [_rule(DSCI, "dscinitializations", "DELETE")],
            "false",
            DSC,
        ),
        "Kueue that is Managed": ([_rule(DSC, "datascienceclusters", *both)], kueue, ""),
        "Kueue that is Managed, in version 1 of the API": (
            [_rule(DSC, "datascienceclusters", *both, version="v1")],
            kueue,
            "",
        ),
        "an edit in version 1 of the API while Trainer, which it does not know, is Managed": (
            [_rule(DSC, "datascienceclusters", "UPDATE", version="v1")],
            "params.spec.?components.?trainer.?managementState.orValue('') != 'Managed'",
            DSC,
        ),
        "a workload without a queue": (
            [_rule(*each.split("/"), *both) for each in one.get("resources", [])],
            f"!({managed}) || !({asked}) || {queued}",
            DSC,
        ),
    }


class Policies:
    """Those of one release are there while its operator is."""

    def __init__(self, client: Client) -> None:
        """Deny nothing before `step` is told to."""
        self._client, self._profiles = client, Profiles(client)
        self._made: list[Json] = []
        self._denies: list[Json] = []

    def step(self, denies: list[Json], version: str) -> None:
        """Make or remove them, all when the release changes; `version` is that of the DataScienceCluster's API."""
        if denies == self._denies:
            return
        for thing in reversed(self._made):
            self._client.delete(thing)
        self._made = []
        made = [
            thing
            for number, deny in enumerate(denies)
            for thing in ([self._profiles.webhook(deny)] if deny["what"] == WHAT else _documents(number, deny, version))
        ]
        for thing in made:
            self._client.apply(thing)
        self._made, self._denies = made, denies


def _documents(number: int, one: Json, version: str) -> list[Json]:
    rules, expression, each = _policies(one)[one["what"]]
    name = f"rhoai-{number}.tests.trainlab.rhoai"
    policy: Json = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": rules, "matchPolicy": "Exact"},
        "validations": [{"expression": expression, "message": one["message"]}],
    }
    binding: Json = {"policyName": name, "validationActions": ["Deny"]}
    if each:
        policy["paramKind"] = {"apiVersion": f"{each}/{version}", "kind": KINDS[each]}
        binding["paramRef"] = {"selector": {}, "parameterNotFoundAction": "Allow"}
    kinds = ("ValidatingAdmissionPolicy", policy), ("ValidatingAdmissionPolicyBinding", binding)
    return [{"apiVersion": API, "kind": kind, "metadata": {"name": name}, "spec": spec} for kind, spec in kinds]
