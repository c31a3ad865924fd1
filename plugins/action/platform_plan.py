"""Compares what the inventory wants with what the cluster has, before anything is applied; read-only.

Called first by roles/platform. All objections are reported in one error; without any it returns the operators in order with
their state (new, ours, found, external), the documents to apply, and the drift.
"""

from __future__ import annotations

from ansible.errors import AnsibleActionFail

from ..plugin_utils import labels
from ..plugin_utils.contradictions import contradictions
from ..plugin_utils.documented import ClusterAction
from ..plugin_utils.kube import Json, wrong_cluster
from ..plugin_utils.olm_plan import (
    EFS,
    OLM,
    Seen,
    Wanted,
    by_olm,
    choice,
    decide,
    documents,
    in_order,
    releases,
    without_role,
    wrong_names,
)
from ..plugin_utils.platform_api import PlatformApi, ours

MARKETPLACE = "openshift-marketplace"
NFS_DRIVER = "nfs.csi.k8s.io"
CRD = "apiextensions.k8s.io/v1"
DSC = "datasciencecluster.opendatahub.io"
KUEUES = ("openshift-kueue-operator", "redhat-ods-applications")
"""Namespaces of the Red Hat build of Kueue, and of the one inside OpenShift AI, of which its DataScienceCluster says more."""


class ActionModule(ClusterAction):
    """Queries everything it needs, then decides."""

    OPERATION = "looking at the cluster's operators"

    def refuse(self, args: Json) -> None:
        """Refuse an inventory that no cluster can fulfil."""
        wanted = _wanted(args)
        _refuse(wrong_names(wanted) or contradictions(wanted))

    def run_on_cluster(self, args: Json) -> Json:
        """Return operators, documents, release, drift; AnsibleActionFail with every objection."""
        wanted, resources, api = _wanted(args), args["resources"], self.api
        _refuse([text for text in [wrong_cluster(api, args["cluster_id"])] if text])
        if api.resource(OLM, "Subscription") is None:
            _refuse(
                [
                    "platform_operators: this cluster has no Operator Lifecycle Manager (operators.coreos.com); it is not "
                    "OpenShift: set platform_operators to [] and install what you need yourself"
                ]
            )
        subscriptions = api.items(str(api.path(OLM, "Subscription")))
        errors: list[str] = []
        drift: list[str] = []
        plan = []
        for name in in_order(wanted):
            plan.append(decide(wanted, name, _look(api, wanted, name, subscriptions), errors, drift))
        errors += _missing_driver(api, wanted.storage) + _second_kueue(api, plan)
        if wanted.storage.get("kind") == EFS:
            errors += without_role(wanted, plan, api.look("config.openshift.io/v1", "Authentication", "cluster"))
        if any(operator["state"] == "new" for operator in plan):
            errors += _missing_rights(api)
        _refuse(errors)
        return {
            "changed": False,
            "operators": plan,
            "documents": documents(wanted, plan),
            "resources": {
                operator["name"]: _instance(api, resources[operator["name"]])
                for operator in plan
                if operator["name"] in resources
            },
            "release": releases().get(wanted.release, {}),
            "drift": drift,
            "requests": api.requests,
        }


def _wanted(args: Json) -> Wanted:
    shares = int(args["inventory"]["gpu_shares"])  # a string where it comes from the command line
    return Wanted(args["table"], releases(), **args["inventory"] | {"gpu_shares": shares})


def _refuse(errors: list[str]) -> None:
    if errors:
        raise AnsibleActionFail(
            "nothing was applied: " + "\n  - ".join(["", *errors])
            if len(errors) > 1
            else f"nothing was applied: {errors[0]}"
        )


def _missing_rights(api: PlatformApi) -> list[str]:
    """Ask the API server whether we may install operators at all, before half of it is refused."""
    return [
        f"trainlab_kubeconfig: this user may not create {resource} in the cluster; use one with cluster-admin "
        "rights, or let an administrator run playbooks/platform.yml"
        for group, resource in (("", "namespaces"), ("operators.coreos.com", "subscriptions"))
        if not api.may("create", resource, group)
    ]


def _missing_driver(api: PlatformApi, storage: Json) -> list[str]:
    """NFS has no operator in OpenShift's catalogs: its driver has to be installed separately."""
    if storage.get("kind") != "nfs" or api.look("storage.k8s.io/v1", "CSIDriver", NFS_DRIVER) is not None:
        return []
    return [
        f"platform_storage.kind is nfs, but the cluster has no CSIDriver {NFS_DRIVER}; install it (Helm chart csi-driver-nfs of "
        "kubernetes-csi), or choose efs or odf, or set platform_storage to {}"
    ]


def _second_kueue(api: PlatformApi, plan: list[Json]) -> list[str]:
    """Somebody else may run upstream's Kueue, or the one inside OpenShift AI, beside which Red Hat's build must not be installed."""
    if not any(operator["name"] == "kueue" and operator["state"] == "new" for operator in plan):
        return []
    crd = api.look(CRD, "CustomResourceDefinition", "clusterqueues.kueue.x-k8s.io") or {}
    webhook = ((crd.get("spec") or {}).get("conversion") or {}).get("webhook") or {}
    service = (webhook.get("clientConfig") or {}).get("service") or {}
    served = service and api.look("v1", "Service", service["name"], service["namespace"]) is not None
    if served and service["namespace"] not in KUEUES:
        return [
            f"platform_operators: kueue: a Kueue that OLM did not install runs in namespace {service['namespace']}, beside which the Red Hat "
            "build of Kueue must not be installed; have its owner remove it, or leave rhoai and kueue out of platform_operators"
        ]
    path = api.path(f"{DSC}/v2", "DataScienceCluster") or api.path(f"{DSC}/v1", "DataScienceCluster")
    return [
        f"platform_operators: kueue: DataScienceCluster {each['metadata']['name']} is not trainlab's and has the Kueue inside OpenShift AI "
        "(spec.components.kueue.managementState is Managed), which excludes the Red Hat build of Kueue; have its owner set that to "
        "Unmanaged, or leave rhoai and kueue out of platform_operators"
        for each in (api.items(path) if path else [])
        if not ours(each)
        and each.get("spec", {}).get("components", {}).get("kueue", {}).get("managementState") == "Managed"
    ]


def _look(api: PlatformApi, wanted: Wanted, name: str, subscriptions: list[Json]) -> Seen:
    """Query everything that decides about one operator."""
    entry = wanted.table[name]
    source = choice(wanted, name)[1]
    seen = Seen(manifest=_manifest(api, entry["package"], source))
    for each in subscriptions:
        if each["spec"].get("name") == entry["package"]:
            seen.subscription = each | {"ours": ours(each)}
    if seen.subscription is None and entry["crd"]:
        seen.crd = api.look(CRD, "CustomResourceDefinition", entry["crd"])
        if seen.crd is not None and by_olm(seen.crd):
            seen.versions = api.items(str(api.path(OLM, "ClusterServiceVersion")), "!olm.copiedFrom")
    seen.served_before = _record(api, entry, seen)
    groups = api.path("operators.coreos.com/v1", "OperatorGroup", entry["namespace"])
    seen.groups = [group | {"ours": ours(group)} for group in api.items(str(groups))]
    return seen


def _record(api: PlatformApi, entry: Json, seen: Seen) -> str:
    """Return which of the operator's API groups were served before us: recorded by the first run, kept by later ones."""
    space = api.look("v1", "Namespace", entry["namespace"])
    for mine in (seen.subscription, space):
        if mine is not None and ours(mine):
            return str((mine["metadata"].get("annotations") or {}).get(labels.SERVED_BEFORE, ""))
    return ",".join(group for group in entry.get("api_groups", []) if api.get(f"/apis/{group}") is not None)


def _instance(api: PlatformApi, entry: Json) -> Json:
    """Return the table's entry, with the name of the existing instance (of these kinds a second one is ignored), and its document."""
    path = "" if entry.get("by_name") else api.path(entry["apiVersion"], entry["kind"])
    existing = (api.items(path) if path else []) or [{"metadata": entry}]
    metadata = {key: value for key, value in existing[0]["metadata"].items() if key in ("name", "namespace")}
    document = {"apiVersion": entry["apiVersion"], "kind": entry["kind"], "metadata": metadata}
    return entry | metadata | {"document": document | {"spec": entry.get("spec", {})}}


def _manifest(api: PlatformApi, package: str, source: str) -> Json | None:
    """Return the PackageManifest of this catalog: several catalogs may offer packages of the same name."""
    path = api.path("packages.operators.coreos.com/v1", "PackageManifest", MARKETPLACE)
    if path is None:
        return None
    result = api.get(f"{path}/{package}")
    if result is None or result["status"].get("catalogSource") == source:
        return result
    same = api.items(path, selector=f"catalog={source}")
    return next((manifest for manifest in same if manifest["metadata"]["name"] == package), None)
