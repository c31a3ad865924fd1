"""Which operators to install from where, and what prevents it: pure functions used by platform_plan.

The table of operators is roles/platform/vars/main.yml, that of releases meta/releases.yml.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from . import labels
from .kube import Json
from .platform_ready import version

FILE = Path(__file__).resolve().parents[2] / "meta" / "releases.yml"
OLM = "operators.coreos.com/v1alpha1"
OWN, EVERYWHERE = "own", "all"
RHOAI, EFS = "rhoai", "efs"
COMPONENT = "operators.coreos.com/"
"""How OLM's label on all that belongs to an operator begins; it stays on what an uninstalled one leaves, its API among it."""


@cache
def releases() -> dict[str, dict[str, Any]]:
    """Return the table; the file documents its keys."""
    result: dict[str, dict[str, Any]] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return result


def span(release: str) -> str:
    """Return, as text, the OpenShift releases on which a release is supported."""
    first, *last = releases()[release]["openshift"]
    return f"{first} to {last[0]}" if last else f"{first} and later"


def pair(version: str) -> tuple[int, int]:
    """Return major and minor version, for comparing."""
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


@dataclass(frozen=True)
class Wanted:
    """What the inventory asks for: the role's variables that decide about operators, and those that may contradict them."""

    table: dict[str, Json]
    releases: dict[str, Json]
    operators: list[str]
    release: str
    channels: dict[str, str]
    sources: dict[str, str]
    versions: dict[str, str]
    approval: str
    components: dict[str, Any] = field(default_factory=dict)
    gpu_policy: Json = field(default_factory=dict)
    gpu_shares: int = 1
    training_api: str = "auto"
    storage: Json = field(default_factory=dict)
    queue: str = ""


@dataclass
class Seen:
    """What the cluster answered for one operator; `manifest` is its PackageManifest, `crd` the CustomResourceDefinition that tells
    that it is installed, and `versions` all ClusterServiceVersions, if it matters whose that is.
    """

    manifest: Json | None = None
    subscription: Json | None = None
    crd: Json | None = None
    versions: list[Json] = field(default_factory=list)
    served_before: str = ""
    groups: list[Json] = field(default_factory=list)


def wrong_names(wanted: Wanted) -> list[str]:
    """Return the unknown names in the inventory; the cluster is not queried until there are none."""
    known = ", ".join(sorted(wanted.table))
    errors = [
        f"{variable}: unknown operator {name!r}; known: {known}"
        for variable, names in (
            ("platform_operators", wanted.operators),
            ("platform_channels", wanted.channels),
            ("platform_sources", wanted.sources),
            ("platform_versions", wanted.versions),
        )
        for name in names
        if name not in wanted.table
    ]
    if RHOAI in wanted.operators and wanted.release not in wanted.releases:
        errors.append(
            f"trainlab_platform_release: unknown release {wanted.release!r} of OpenShift AI; known: {', '.join(wanted.releases)}"
        )
    return errors


def in_order(wanted: Wanted) -> list[str]:
    """Return the wanted operators and all their dependencies, each after its own."""
    order: list[str] = []

    def add(name: str) -> None:
        entry = wanted.table[name]
        extra = wanted.releases[wanted.release].get("needs", []) if name == RHOAI else []
        for other in [*entry.get("needs", []), *extra]:
            add(other)
        if name not in order:
            order.append(name)

    for name in wanted.operators:
        add(name)
    return order


def choice(wanted: Wanted, name: str) -> tuple[str, str, str]:
    """Return (channel, catalog source, version or empty): the inventory's pin, else the release's, else the table's.

    An empty channel means the package's default one.
    """
    entry = wanted.table[name]
    release = wanted.releases.get(wanted.release, {}).get("channels", {})
    channel = wanted.channels.get(name) or release.get(name) or entry["channel"]
    return str(channel), str(wanted.sources.get(name) or entry["source"]), str(wanted.versions.get(name) or "")


def release_of(csv: str) -> str:
    """Return `3.4` of `rhods-operator.3.4.3` or `rhods-operator.v3.4.3`; empty when there is no version in it."""
    match = re.search(r"\.v?(\d+\.\d+)\.", f"{csv}.")
    return match.group(1) if match else ""


def decide(wanted: Wanted, name: str, seen: Seen, errors: list[str], drift: list[str]) -> Json:
    """Decide about one operator; adds sentences to `errors` (nothing may be applied) and `drift` (worth knowing)."""
    entry = wanted.table[name]
    channel, source, pin = choice(wanted, name)
    operator: Json = {
        "name": name,
        "title": entry["title"],
        "package": entry["package"],
        "subscription": entry["package"],
        "namespace": entry["namespace"],
        "channel": channel,
        "source": source,
        "csv": pin,
        "state": "new",
        "crd": entry["crd"],
        "record": seen.served_before,
    }
    if seen.subscription is not None:
        _existing(operator, seen.subscription, drift)
    elif seen.crd is not None and left_over(seen.crd, seen.versions):
        drift.append(
            f"{entry['title']} is not installed: its CustomResourceDefinition {entry['crd']} is left over from an earlier installation, "
            "as OLM deletes none; it is installed now, with the objects of that kind that there are"
        )
    elif seen.crd is not None:
        operator["state"] = "external"
        drift.append(
            f"{entry['title']} exists without a Subscription of {entry['package']} (its CustomResourceDefinition "
            f"{entry['crd']} exists) and is used as it is"
        )
        return operator
    if operator["state"] != "found":
        _offered(wanted, operator, seen, errors)
        _groups(operator, entry, seen, errors)
    if name == RHOAI:
        _release(wanted, operator, errors)
    return operator


def by_olm(crd: Json) -> bool:
    """Tell whether OLM has installed a CustomResourceDefinition."""
    return any(key.startswith(COMPONENT) for key in crd["metadata"].get("labels") or {})


def left_over(crd: Json, versions: list[Json]) -> bool:
    """Tell whether OLM has installed a CustomResourceDefinition and none of the ClusterServiceVersions is its operator."""
    owned = (
        each.get("name")
        for csv in versions
        for each in ((csv.get("spec") or {}).get("customresourcedefinitions") or {}).get("owned") or []
    )
    return by_olm(crd) and crd["metadata"]["name"] not in owned


def _existing(operator: Json, subscription: Json, drift: list[str]) -> None:
    """Take over name, namespace and state of an existing Subscription; report how it differs."""
    metadata, spec = subscription["metadata"], subscription["spec"]
    status = subscription.get("status") or {}
    operator["state"] = "ours" if subscription["ours"] else "found"
    operator["installed"] = status.get("installedCSV", "")
    operator["subscription"], operator["namespace"] = metadata["name"], metadata["namespace"]
    operator["channel"] = operator["channel"] or spec.get("channel", "")
    for key, wanted in (("channel", operator["channel"]), ("source", operator["source"])):
        if spec.get(key) != wanted and operator["state"] == "found":
            drift.append(
                f"{operator['title']}: Subscription {metadata['namespace']}/{metadata['name']} is not ours and has {key} "
                f"{spec.get(key)!r}, wanted {wanted!r}: left as it is; set platform_{key}s.{operator['name']} to what you want"
            )
    if status.get("state") == "UpgradePending" and operator["installed"]:
        drift.append(
            f"{operator['title']}: {status.get('currentCSV')} waits for approval, {operator['installed']} is installed"
        )


def _offered(wanted: Wanted, operator: Json, seen: Seen, errors: list[str]) -> None:
    """Check package, channel and version against the PackageManifest; fill in the version that will be installed."""
    name, package = operator["name"], operator["package"]
    if seen.manifest is None:
        errors.append(
            f"platform_sources.{name}: catalog {operator['source']!r} offers no package {package!r}; name the CatalogSource that "
            "does (`oc get packagemanifests -n openshift-marketplace`), e.g. your mirror's"
        )
        return
    channels = {each["name"]: each for each in seen.manifest["status"]["channels"]}
    operator["channel"] = operator["channel"] or str(seen.manifest["status"].get("defaultChannel"))
    if operator["channel"] not in channels:
        offered = ", ".join(f"{each} ({channels[each]['currentCSV']})" for each in sorted(channels))
        errors.append(
            f"platform_channels.{name}: package {package} has no channel {operator['channel']!r}; it has: {offered}; "
            f"the default is {seen.manifest['status'].get('defaultChannel')}"
        )
        return
    channel = channels[operator["channel"]]
    entries = [each["name"] for each in channel.get("entries") or []]
    if operator["csv"] and entries and operator["csv"] not in entries:
        errors.append(
            f"platform_versions.{name}: channel {operator['channel']!r} of {package} has no {operator['csv']!r}; it has: "
            f"{', '.join(entries[:10])}"
        )
    operator["starting"] = operator["csv"]
    operator["csv"] = operator["csv"] or channel["currentCSV"]


def _groups(operator: Json, entry: Json, seen: Seen, errors: list[str]) -> None:
    """Two OperatorGroups in a namespace, or one of the wrong mode, make OLM refuse every operator in it."""
    strangers = [group for group in seen.groups if not group["ours"]]
    operator["group"] = entry["group"] if not strangers else ""
    targets = strangers[0]["spec"].get("targetNamespaces") or [] if strangers else []
    if len(seen.groups) > 1:
        names = ", ".join(group["metadata"]["name"] for group in seen.groups)
        errors.append(
            f"namespace {operator['namespace']} has {len(seen.groups)} OperatorGroups ({names}), so OLM installs nothing there; "
            "delete all but one"
        )
    elif strangers and bool(targets) != (entry["group"] == OWN):
        mode = "its own namespace" if entry["group"] == OWN else "all namespaces (no targetNamespaces)"
        errors.append(
            f"OperatorGroup {operator['namespace']}/{strangers[0]['metadata']['name']} is not ours and targets "
            f"{', '.join(targets) or 'all namespaces'}, but {operator['package']} only installs for {mode}; delete that OperatorGroup"
        )


def _release(wanted: Wanted, operator: Json, errors: list[str]) -> None:
    """The version that will be reached has to belong to the release that the components are chosen for.

    Of an operator of ours that is the version that its channel, or pin, leads to: OLM upgrades to it, and never goes back.
    """
    installed = str(operator.get("installed") or "")
    if installed and operator["csv"] and operator["state"] == "ours" and version(installed) > version(operator["csv"]):
        release = release_of(installed)
        if release != wanted.release:
            errors.append(
                f"trainlab_platform_release: {wanted.release!r} is wanted but {installed} is installed, and OLM installs no "
                f"older version; set trainlab_platform_release to {release!r}"
            )
        return
    csv = (installed if operator["state"] == "found" else "") or operator["csv"]
    release = release_of(csv)
    if release and release != wanted.release:
        where = "is installed" if csv == installed else f"is what channel {operator['channel']!r} installs"
        errors.append(
            f"trainlab_platform_release: {wanted.release!r} is wanted but {csv} {where}; set trainlab_platform_release to {release!r}, or "
            f"platform_channels.{RHOAI} to a channel of {wanted.release}"
        )


def without_role(wanted: Wanted, plan: list[Json], authentication: Json | None) -> list[str]:
    """Refuse the EFS driver without its role on a cluster that gives out tokens for roles (STS), where it never gets credentials.

    `authentication` is OpenShift's Authentication `cluster`: it names an issuer of tokens on such clusters only.
    """
    issuer = str(((authentication or {}).get("spec") or {}).get("serviceAccountIssuer") or "")
    ours = any(operator["name"] == EFS and operator["state"] in ("new", "ours") for operator in plan)
    if not issuer or not ours or wanted.storage.get("roleArn"):
        return []
    return [
        f"platform_storage.roleArn is empty, but this cluster uses AWS STS (its token issuer is {issuer}), where the EFS driver "
        "gets its credentials from a role; create one with the rights of the driver and set platform_storage.roleArn to its ARN"
    ]


def documents(wanted: Wanted, plan: list[Json]) -> list[Json]:
    """Return Namespaces, then OperatorGroups, then Subscriptions of all operators that are ours to install."""
    ours = [operator for operator in plan if operator["state"] in ("new", "ours")]
    namespaces = {
        our["namespace"]: {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                "name": our["namespace"],
                "labels": {"openshift.io/cluster-monitoring": "true"},
                "annotations": {labels.SERVED_BEFORE: our["record"]},
            },
        }
        for our in ours
    }
    groups = [
        {
            "apiVersion": "operators.coreos.com/v1",
            "kind": "OperatorGroup",
            "metadata": {
                "name": our["namespace"],
                "namespace": our["namespace"],
                "annotations": {labels.SERVED_BEFORE: our["record"]},
            },
            "spec": {"targetNamespaces": [our["namespace"]]} if our["group"] == OWN else {},
        }
        for our in ours
        if our.get("group")
    ]
    return [*namespaces.values(), *groups, *(_subscription(wanted, our) for our in ours)]


def _subscription(wanted: Wanted, operator: Json) -> Json:
    spec = {
        "name": operator["package"],
        "channel": operator["channel"],
        "source": operator["source"],
        "sourceNamespace": "openshift-marketplace",
        "installPlanApproval": wanted.approval,
    }
    if operator.get("starting"):
        spec["startingCSV"] = operator["starting"]
    if operator["name"] == EFS and wanted.storage.get("roleArn"):
        # without it the operator asks for no credentials and does not say so: openshift/library-go,
        # pkg/operator/csi/credentialsrequestcontroller/credentials_request_controller.go, shouldSync
        spec["config"] = {"env": [{"name": "ROLEARN", "value": str(wanted.storage["roleArn"])}]}
    return {
        "apiVersion": OLM,
        "kind": "Subscription",
        "metadata": {
            "name": operator["subscription"],
            "namespace": operator["namespace"],
            "annotations": {labels.SERVED_BEFORE: operator["record"]},
        },
        "spec": spec,
    }
