"""Checks of what the user may do, and of the Secrets that a site names."""

from __future__ import annotations

import base64
import shlex

from ..kube import FORBIDDEN, ApiError
from .cluster_state import ClusterState, Finding
from .training_api import training_api

PROJECTS = "project.openshift.io/v1"
WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
"""Since Kubernetes 1.28."""
# what installing the chart and waiting for it need: group, resource, verbs
NEEDED = (
    ("", "configmaps", ("get", "create", "patch", "delete")),
    ("", "persistentvolumeclaims", ("create", "get")),
    ("", "pods", ("create", "list", "delete")),
    ("", "pods/log", ("get",)),
    ("", "secrets", ("create", "list")),
    ("", "resourcequotas", ("list",)),
    ("", "limitranges", ("list",)),
    ("batch", "jobs", ("create", "get")),
)
# the ServiceAccount that promotes, where the site names none
PROMOTER = (
    ("", "serviceaccounts", ("create",)),
    ("rbac.authorization.k8s.io", "roles", ("create",)),
    ("rbac.authorization.k8s.io", "rolebindings", ("create",)),
)
SERVING = (
    ("serving.kserve.io", "servingruntimes", ("create", "patch", "list", "delete")),
    ("serving.kserve.io", "inferenceservices", ("get", "create", "patch")),
)
"""What the promotion does; nobody can grant in the chart's Role what they may not do."""
TRAINING = {
    "pytorchjob": (("kubeflow.org", "pytorchjobs", ("create", "list")),),
    "trainjob": (
        ("trainer.kubeflow.org", "trainjobs", ("create", "list")),
        ("trainer.kubeflow.org", "trainingruntimes", ("create",)),
    ),
}
# what a release keeps under one name for its life: an upgrade changes it, or takes it away
OF_RELEASE = ("get", "create", "patch", "delete")
LEASE = ("batch", "cronjobs", OF_RELEASE)
ENDS_LEASE = ("serving.kserve.io", "inferenceservices", ("delete",))
ROUTE = ("route.openshift.io", "routes", OF_RELEASE)
# OpenShift's admission of spec.host
ROUTE_HOST = ("route.openshift.io", "routes/custom-host", ("create",))
INGRESS = ("networking.k8s.io", "ingresses", OF_RELEASE)
TENSORBOARD = (("", "services", OF_RELEASE), ("apps", "deployments", OF_RELEASE))
MONITOR = ("monitoring.coreos.com", "podmonitors", OF_RELEASE)
Right = tuple[str, str, tuple[str, ...]]
"""API group, resource, verbs."""


def namespace_rights(facts: ClusterState) -> Finding:
    """The user may create, in the namespace, all that a release consists of."""
    exists = _namespace_exists(facts)
    if exists is not True and facts.api.serves(PROJECTS, "projectrequests"):
        if not facts.api.may("create", "namespaces", "") and not facts.api.may(
            "create", "configmaps", "", facts.namespace
        ):
            return Finding.skipped(
                f"there is no namespace {facts.namespace}: playbooks/workspace.yml requests a Project"
            )
    if exists is False and not facts.api.may("create", "namespaces", ""):
        return Finding(
            "error",
            f"namespace {facts.namespace} does not exist and this user may not create namespaces",
            "",
            f"ask an administrator for it (`kubectl create namespace {facts.namespace}`) or set trainlab_namespace",
        )
    account = facts.site["serviceAccount"]
    serving = bool(facts.site["serving"])
    core, operators = wanted(facts)
    missing, custom = [], []
    for group, resource, verbs in (*core, *operators):
        named = f"{resource}.{group}" if group else resource
        lacking = [verb for verb in verbs if not facts.api.may(verb, resource, group, facts.namespace)]
        missing += [f"{verb} {named}" for verb in lacking]
        if lacking and (group, resource, verbs) in operators and named not in custom:
            custom.append(named)
    path = f"/api/v1/namespaces/{facts.namespace}/serviceaccounts/{account}"
    if serving and account and exists and facts.api.get(path) is None:
        return Finding(
            "error",
            f"site.serviceAccount is {account}, but namespace {facts.namespace} has no such ServiceAccount",
            "no model could be promoted",
            f"`{facts.api.kubectl} -n {facts.namespace} create serviceaccount {account}`, with a Role that may create, "
            "patch, list and delete servingruntimes, and get, create and patch inferenceservices, both of serving.kserve.io, and "
            "configmaps" + ("; and delete inferenceservices, for phase.serve.hours" if _leased(facts) else ""),
        )
    if not missing:
        return Finding.ok(f"may install into {facts.namespace}")
    who = _user(facts)
    return Finding(
        "error",
        f"in namespace {facts.namespace} this user may not: {', '.join(missing)}",
        "the install would fail halfway",
        f"an administrator runs playbooks/workspace.yml with workspace_users: [{who}], which grants them, or "
        + " and ".join(f"`{command}`" for command in _grants(facts.namespace, custom, who))
        + (
            "; or name one that may promote in site.serviceAccount"
            if "create roles.rbac.authorization.k8s.io" in missing
            else ""
        ),
    )


def wanted(facts: ClusterState) -> tuple[list[Right], list[Right]]:
    """Return the rights that these values need: to kinds of which ClusterRole admin knows, and to those of operators."""
    site = facts.site
    core, operators = list[Right](NEEDED), list[Right](TRAINING.get(training_api(facts), ()))
    if site["serving"]:
        operators += SERVING
    if site["serving"] and not site["serviceAccount"]:
        core += PROMOTER
    if _leased(facts):
        core.append(LEASE)
        operators += [] if site["serviceAccount"] else [ENDS_LEASE]
    if site["expose"]["enabled"]:
        routes = facts.api.serves("route.openshift.io/v1", "routes")
        core.append(ROUTE if routes else INGRESS)
        core += [ROUTE_HOST] if routes and (site["expose"]["host"] or site["tensorboard"]["host"]) else []
    if site["tensorboard"]["enabled"]:
        core += TENSORBOARD
    if site["monitoring"]["enabled"]:
        operators.append(MONITOR)
    return core, operators


def _leased(facts: ClusterState) -> bool:
    """Tell whether a CronJob will take the served model down."""
    return bool(facts.site["serving"] and facts.phase["serve"]["hours"])


def _user(facts: ClusterState) -> str:
    """Return the name that the API server gives this user; YOU if it does not tell."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        return str(facts.api.send("POST", WHO, review)["status"]["userInfo"]["username"])
    except (ApiError, KeyError):
        return "YOU"


def _grants(namespace: str, custom: list[str], who: str) -> list[str]:
    """Return the commands that grant a user what is missing.

    ClusterRole admin is Kubernetes' own. Those that operators of OpenShift AI aggregate to it differ by release, and since
    August 2026 some are not; so `custom` resources get a Role.
    """
    kubectl, user = f"kubectl -n {namespace} create", f"--user={shlex.quote(who)}"
    grants = [f"{kubectl} rolebinding trainlab-admin --clusterrole=admin {user}"]
    if custom:
        grants.append(f"{kubectl} role trainlab --verb=* --resource={','.join(custom)}")
        grants.append(f"{kubectl} rolebinding trainlab --role=trainlab {user}")
    return grants


def secrets(facts: ClusterState) -> Finding:
    """Secrets that the site names exist; their values are neither kept nor printed."""
    wanted = (
        ("site.hfTokenSecret", facts.site["hfTokenSecret"], "token"),
        ("site.images.pullSecret", facts.site["images"]["pullSecret"], ".dockerconfigjson"),
        *(("site.envSecrets", name, "") for name in facts.site["envSecrets"]),
    )
    seen = []
    for key, name, entry in wanted:
        if not name:
            continue
        secret = facts.api.get(f"/api/v1/namespaces/{facts.namespace}/secrets/{name}")
        if secret is None or (entry and entry not in secret.get("data", {})):
            what = "has no such Secret" if secret is None else f"has that Secret without key {entry}"
            return Finding(
                "error",
                f"{key} is {name}, but namespace {facts.namespace} {what}",
                "the pods could not start",
                _create(facts.api.kubectl, facts.namespace, name, entry),
            )
        if entry and not base64.b64decode(secret["data"][entry]).strip():
            return Finding("error", f"{key}: key {entry} of Secret {name} is empty", "", "fill it")
        seen.append(name)
    return Finding.ok(", ".join(seen)) if seen else Finding.skipped("the site names none")


def _create(kubectl: str, namespace: str, name: str, entry: str) -> str:
    if entry == "token":
        return f"{kubectl} -n {namespace} create secret generic {name} --from-file=token=FILE, or set the key to ''"
    if not entry:
        return f"{kubectl} -n {namespace} create secret generic {name} --from-literal=VARIABLE=VALUE, or remove it from the list"
    return f"{kubectl} -n {namespace} create secret docker-registry {name} ..., or set the key to ''"


def _namespace_exists(facts: ClusterState) -> bool | None:
    """Tell whether the namespace exists; None on Forbidden, which is OpenShift's answer also for one that does not exist."""
    try:
        return facts.namespace_object is not None
    except ApiError as error:
        if error.status != FORBIDDEN:
            raise
        return None
